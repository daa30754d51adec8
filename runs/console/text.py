"""Text for people: nothing hidden, nothing interpreted. Pure functions, no database, no clock."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

MAX_TEXT = 20_000
"""Characters of one untrusted text that a page shows."""

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_VARIATION = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))


def visible(value: object) -> str:
    """`value` as text in which every invisible or direction-changing character is spelled out.

    A right-to-left override becomes `⟨U+202E⟩`. Line feeds and tabs stay. Not escaped: the template
    does that.
    """
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"⟨U+{ord(char):04X}⟩" if _is_hidden(char) else char for char in text)


def _is_hidden(char: str) -> bool:
    if char in " \n\t":
        return False
    if char in _BLANK_LETTERS or any(low <= ord(char) <= high for low, high in _VARIATION):
        return True
    category = unicodedata.category(char)
    return category in _HIDDEN_CATEGORIES or category == "Zs"


def capped(value: object, limit: int = MAX_TEXT) -> str:
    """`value` as visible text of at most `limit` characters, saying what was cut."""
    text = str(value)
    if len(text) <= limit:
        return visible(text)
    return visible(text[:limit]) + f"\n… {len(text) - limit} more characters are not shown"


def short(value: object, limit: int = 80) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(str(value).split())
    return visible(line if len(line) <= limit else line[: limit - 1] + "…")


def json_text(value: Any) -> str:
    """JSON, indented, keys sorted."""
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)


def goal(value: Any) -> str:
    """What a run was asked, out of its input: the text itself, or the input as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("goal", "task", "request", "message", "question", "text", "prompt"):
            if isinstance(value.get(name), str) and value[name]:
                return str(value[name])
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """One leaf of a JSON value: where it is, what type it has, how it reads."""

    path: str
    kind: str
    text: str


def cells(value: Any, path: str = "") -> list[Cell]:
    """The leaves of a JSON value, keys sorted as in its canonical form: `lines[0].sku`, `A-1`."""
    return list(_walk(value, path))


def _walk(value: Any, path: str) -> Iterator[Cell]:
    if isinstance(value, dict) and value:
        for name, item in sorted(value.items()):
            yield from _walk(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]")
    else:
        yield Cell(path or "(value)", _kind(value), _leaf(value))


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes/no"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict | list):
        return "empty object" if isinstance(value, dict) else "empty list"
    return "text"


def _leaf(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return '""' if value == "" else str(value)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of an impact: a field before and after."""

    path: str
    before: str
    after: str
    changed: bool


def changes(before: Any, after: Any) -> list[Change]:
    """`before` and `after` field by field, what changes first; a missing side reads `—`."""
    old = {cell.path: cell.text for cell in (cells(before) if before else [])}
    new = {cell.path: cell.text for cell in (cells(after) if after else [])}
    lines = [
        Change(path, old.get(path, "—"), new.get(path, "—"), old.get(path) != new.get(path))
        for path in sorted({*old, *new})
    ]
    return sorted(lines, key=lambda line: not line.changed)


def span(length: timedelta) -> str:
    """A length of time in the two largest units: `3 min 20 s`, `4 h 5 min`."""
    seconds = int(abs(length.total_seconds()))
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, name in units:
        count, seconds = divmod(seconds, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def money(micros: int) -> str:
    """An amount in millionths of a US dollar: `0.0421 USD`, `12.00 USD`."""
    dollars = micros / 1_000_000
    return f"{dollars:.2f} USD" if abs(dollars) >= 1 or not micros else f"{dollars:.4f} USD"


def relative(value: datetime, now: datetime) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    difference = value - now
    if abs(difference) < timedelta(seconds=1):
        return "now"
    return f"in {span(difference)}" if value > now else f"{span(difference)} ago"


_SHAPES = {"active": "►", "wait": "◔", "alert": "▲", "good": "✓", "bad": "✕", "off": "○"}
_KINDS = {
    "wait": "WAITING_APPROVAL AWAITING_APPROVAL WAITING_CHILD RETRY_WAIT PENDING",
    "alert": "UNKNOWN RECONCILING NEEDS_HUMAN SUSPENDED CANCELLING INCOMPLETE AMBIGUOUS LOST",
    "good": "COMPLETED SUCCEEDED APPROVED CONSUMED SUCCESS APPROVE",
    "bad": "FAILED REJECTED DENIED REFUSED REJECT",
    "off": "CANCELLED VOIDED EXPIRED ABANDONED NO_EFFECT",
}
_KIND_OF = {state: kind for kind, states in _KINDS.items() for state in states.split()}


@dataclass(frozen=True, slots=True)
class Chip:
    """A state as colour class, shape and words, so that no reader depends on one of them."""

    kind: str
    shape: str
    words: str


def chip(state: object) -> Chip:
    """How a state of a run, action, approval or attempt is shown."""
    kind = _KIND_OF.get(str(state), "active")
    return Chip(kind, _SHAPES[kind], str(state).replace("_", " ").capitalize())
