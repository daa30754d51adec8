"""House numbers: small functions, small files, thin tasks, typed and named arguments."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source import (
    BESIDE,
    PRODUCT,
    ROOT,
    FunctionNode,
    functions,
    name_of,
    place,
    python_files,
    tree_of,
)

FILE_LINES = 400
FUNCTION_LINES = 50
FUNCTION_LINES_AT_MOST = 70
LONG_FUNCTIONS: dict[str, str] = {}
"""`file::function` -> why it is longer than 50 lines. Nothing may be longer than 70."""
TASK_LINES = 5
SUBJECTS = {
    "View",
    "Draft",
    "Run",
    "ActionJournal",
    "Attempt",
    "Sequence[Attempt]",
    "Sequence[Result]",
    "datetime",
}
"""What the journal works on may come first; every other fact is named by the caller."""


def _lines(node: FunctionNode) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_longer_than_400_lines() -> None:
    sizes = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*PRODUCT, *BESIDE, "tests")
    }
    long = {name: size for name, size in sizes.items() if size > FILE_LINES}
    assert long == {}, f"a file of more than {FILE_LINES} lines holds two things: split it"


def test_no_function_is_longer_than_50_lines() -> None:
    long = {
        f"{name_of(path)}::{node.name}": _lines(node)
        for path in python_files(*PRODUCT, *BESIDE)
        for node in functions(path)
        if _lines(node) > FUNCTION_LINES
    }
    assert set(long) == set(LONG_FUNCTIONS), (
        f"a function of more than {FUNCTION_LINES} lines cannot be read at once: {long}"
    )
    assert all(size <= FUNCTION_LINES_AT_MOST for size in long.values())


def test_no_test_is_longer_than_70_lines() -> None:
    long = {
        f"{name_of(path)}::{node.name}": _lines(node)
        for path in python_files("tests")
        for node in functions(path)
        if _lines(node) > FUNCTION_LINES_AT_MOST
    }
    assert long == {}, "a test may tell a longer story, not a novel"


def test_a_task_only_calls_a_use_case() -> None:
    path = ROOT / "runs" / "tasks.py"
    long = {}
    for node in functions(path):
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > TASK_LINES:
            long[node.name] = lines
    assert long == {}, f"a task body has at most {TASK_LINES} lines: move the rest to the driver"


def _untyped(node: FunctionNode) -> list[str]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    extra = [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
    missing = [
        argument.arg
        for argument in [*arguments, *extra]
        if argument.annotation is None and argument.arg not in {"self", "cls"}
    ]
    return missing + ([] if node.returns else ["return"])


def test_every_function_is_typed() -> None:
    untyped = [
        f"{place(path, node)} {node.name}: {', '.join(_untyped(node))}"
        for path in python_files(*PRODUCT)
        for node in functions(path)
        if _untyped(node)
    ]
    assert untyped == [], "types are the first documentation of a function"


def _public(path: Path) -> list[FunctionNode]:
    return [
        node
        for node in tree_of(path).body
        if isinstance(node, FunctionNode) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize(
    ("module", "subjects"),
    [("runs/services.py", frozenset()), ("runs/journal.py", frozenset(SUBJECTS))],
)
def test_use_cases_and_journal_take_their_facts_by_name(
    module: str, subjects: frozenset[str]
) -> None:
    positional = [
        f"{node.name}({argument.arg})"
        for node in _public(ROOT / module)
        for argument in [*node.args.posonlyargs, *node.args.args]
        if not (argument.annotation and ast.unparse(argument.annotation) in subjects)
    ]
    assert positional == [], "two strings in the wrong order are a wrong refund: use `*,`"
