"""The project's source as syntax trees, for the tests of its shape."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("agentcore", "tools", "approvals", "runs", "config")
BESIDE = ("examples", "bench")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tracked_files() -> tuple[Path, ...]:
    """What a commit would hold: git's files and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(ROOT / name for name in listed.split("\0") if (ROOT / name).is_file()))


@cache
def python_files(*packages: str) -> tuple[Path, ...]:
    """The modules below `packages`; migrations are written by a machine and left out."""
    return tuple(
        path
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def nodes(*packages: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every syntax node of the modules below `packages`."""
    for path in python_files(*packages):
        for node in ast.walk(tree_of(path)):
            yield path, node


def place(path: Path, node: ast.AST) -> str:
    return f"{name_of(path)}:{getattr(node, 'lineno', 0)}"


def functions(path: Path) -> Iterator[FunctionNode]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, FunctionNode):
            yield node


def imported(node: ast.AST) -> list[str]:
    """The modules that one import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def called(node: ast.AST) -> str:
    """The last name of what a call calls ("" for other nodes)."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def text_of(node: ast.AST) -> str:
    """The text of a string or f-string, with `?` for what is put in ("" for other nodes)."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "?" for part in node.values)
    return ""
