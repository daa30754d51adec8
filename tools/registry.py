"""All declared tools of this process. A tool with a mistake is listed, but never handed out."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tools.strict import Problem

if TYPE_CHECKING:
    from tools.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one tool."""

    tool: str
    code: str
    message: str


_lock = threading.Lock()
_declared: dict[tuple[str, str, int], ToolSpec] = {}
_specs: tuple[ToolSpec, ...] = ()
_by_name: dict[str, ToolSpec] = {}
_by_wire: dict[str, ToolSpec] = {}


def register(spec: ToolSpec) -> None:
    """Add a declaration, or replace the earlier state of the same function."""
    with _lock:
        code = spec.fn.__code__ if hasattr(spec.fn, "__code__") else None
        line = code.co_firstlineno if code else 0
        _declared[(spec.fn.__module__, spec.fn.__qualname__, line)] = spec
        _rebuild()


def get(name: str) -> ToolSpec | None:
    """The usable tool `app_label.function`, or None."""
    return _by_name.get(name)


def by_wire(name: str) -> ToolSpec | None:
    """The usable tool that the model calls `app_label__function`, or None."""
    return _by_wire.get(name)


def all_tools() -> tuple[ToolSpec, ...]:
    """Every usable tool, by name."""
    return tuple(spec for spec in _specs if not spec.rejected)


def rejected() -> tuple[ToolSpec, ...]:
    """Every tool that a mistake keeps from being used; `problems` says which."""
    return tuple(spec for spec in _specs if spec.rejected)


def findings() -> tuple[Finding, ...]:
    """All errors and warnings about all declared tools, for the system checks."""
    return tuple(
        Finding(spec.name, problem.code, problem.message)
        for spec in _specs
        for problem in spec.problems
    )


@contextmanager
def isolated() -> Iterator[None]:
    """For tests: start empty, and put back at the end what was there before."""
    with _lock:
        before = dict(_declared)
        _declared.clear()
        _rebuild()
    try:
        yield
    finally:
        with _lock:
            _declared.clear()
            _declared.update(before)
            _rebuild()


def _rebuild() -> None:
    global _specs, _by_name, _by_wire  # noqa: PLW0603  (replaced whole, so readers need no lock)
    same_wire: dict[str, list[ToolSpec]] = defaultdict(list)
    for spec in _declared.values():
        same_wire[spec.wire_name].append(spec)
    specs: list[ToolSpec] = []
    for wire_name, group in same_wire.items():
        for spec in group:
            if len(group) == 1:
                specs.append(spec)
                continue
            where = ", ".join(sorted(f"{s.fn.__module__}.{s.fn.__qualname__}" for s in group))
            clash = Problem("E007", f"the wire name {wire_name!r} is declared twice: {where}")
            specs.append(replace(spec, problems=(*spec.problems, clash)))
    _specs = tuple(sorted(specs, key=lambda spec: (spec.name, spec.fn.__module__)))
    _by_name = {spec.name: spec for spec in _specs if not spec.rejected}
    _by_wire = {spec.wire_name: spec for spec in _specs if not spec.rejected}
