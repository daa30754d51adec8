"""Which test proves which requirement: `python -m tests.requirements_report`.

Reads the markers from the source of the tests, so it needs no database and imports no test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "requirements.md"
_LINE = re.compile(r"^- \*\*(R\d+)\*\* (.+)$", re.MULTILINE)


def requirements() -> dict[str, str]:
    """Number -> text, in the order of the list."""
    return dict(_LINE.findall(LIST.read_text(encoding="utf-8")))


def proofs() -> dict[str, list[str]]:
    """Number -> test ids (`file::test`, or the file for a module's `pytestmark`)."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for test, number in marked(path.read_text(encoding="utf-8")):
            test_id = f"{name}::{test}" if test else name
            if test_id not in found[number]:
                found[number].append(test_id)
    return dict(found)


def marked(source: str) -> list[tuple[str, str]]:
    """(test, number) of every `pytest.mark.requirement` in `source`; test "" is the module.

    Raises ValueError for a number that is not written as a plain string.
    """
    return _marked(ast.parse(source), "")


def _marked(node: ast.AST, owner: str) -> list[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        owner = f"{owner}::{node.name}" if owner else node.name
    found = []
    if isinstance(node, ast.Call) and _is_marker(node.func):
        found = [(owner, _number(argument)) for argument in node.args]
    for child in ast.iter_child_nodes(node):
        found += _marked(child, owner)
    return found


def _is_marker(function: ast.expr) -> bool:
    """`pytest.mark.requirement`, and nothing else that is called so."""
    return ast.unparse(function) == "pytest.mark.requirement"


def _number(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise ValueError(f"line {argument.lineno}: write the number of a requirement as a string")


def report() -> str:
    """Every requirement with its tests, or `open`, and a count."""
    proven = proofs()
    lines = []
    for number, text in requirements().items():
        tests = proven.get(number, [])
        lines.append(f"{number:<5} {text if len(text) <= 100 else text[:99] + '…'}")
        lines += [f"      {test}" for test in tests] or ["      open"]
    covered = sum(number in proven for number in requirements())
    lines.append(f"\n{covered} of {len(requirements())} requirements have a test.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report())
