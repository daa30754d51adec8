"""The docstring of a tool: what the model is told about it and about each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*(.*)$")
_OTHER_SECTION = re.compile(r"^(Returns|Raises|Yields|Notes?|Examples?):")
_ENTRY = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def parse_docstring(doc: str | None, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the text before `Args:` and the description of each parameter of `names` in it."""
    text: list[str] = []
    about: dict[str, list[str]] = {}
    current: list[str] | None = None
    depth = 0  # indentation of the entries; continuation lines are deeper
    where = "text"  # then "args", then "rest": what follows the arguments is not for the model
    for line in inspect.cleandoc(doc or "").splitlines():
        rest = line
        start = _SECTION.match(line)
        if start:
            where, rest = "args", start[2]
        elif where == "args" and _OTHER_SECTION.match(line):
            where = "rest"
        if where == "text":
            text.append(line)
        if where != "args":
            continue
        entry = _ENTRY.match(rest)
        indent = len(rest) - len(rest.lstrip())
        if entry and entry[1] in names:
            depth = indent
            current = about.setdefault(entry[1], [])
            rest = entry[2]
        elif entry and indent <= depth:
            current = None  # an entry for something that is no parameter
        if current is not None and rest.strip():
            current.append(rest.strip())
    described = {name: " ".join(lines) for name, lines in about.items() if lines}
    return "\n".join(text).strip(), described
