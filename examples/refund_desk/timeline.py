"""A run's events as lines for people: each turn with its four links and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

LINKS = {
    "compile": "compile_context",
    "model": "call_model",
    "tools": "dispatch_tools",
    "observe": "observe",
}
_LINK_OF_ATTEMPT = {"MODEL": "model", "POSTCONDITION": "observe"}
_ENDS = ("COMPLETED", "INCOMPLETE", "FAILED", "CANCELLED")
_WAITS = ("WAITING_APPROVAL", "RETRY_WAIT", "SUSPENDED", "RECONCILING")


@dataclass(slots=True)
class Row:
    """One link of one turn without a pause in it. Times are seconds since the run was created.

    `said` tells what came of it: of each action its last state only.
    """

    turn: int
    link: str
    began: float
    ended: float
    said: dict[str, str] = field(default_factory=dict)
    closed: bool = False


def rows(events: Sequence[dict[str, Any]]) -> list[Row]:
    """The links a run went through, in order, from the JSON of its events."""
    found: list[Row] = []
    if not events:
        return found
    start = _time(events[0])
    for event in events:
        at = (_time(event) - start).total_seconds()
        last = len(found) - 1
        for move in event["data"].get("transitions", []):
            row = _row_of(move, found, since=last, at=at)
            row.ended = at
            name, text = _text(move, event["actor"])
            row.said.pop(name, None)
            if text:
                row.said[name] = text
            row.closed |= move.get("object") == "run" and move.get("to") in _WAITS
    return found


def _row_of(move: dict[str, Any], found: list[Row], *, since: int, at: float) -> Row:
    """The row of a move: one that this event goes on with or has begun, else a new one."""
    link = _link(move, found)
    turn = max(1, int(move.get("turn") or (found[-1].turn if found else 1)))
    for row in found[max(0, since) :]:
        if (row.turn, row.link) == (turn, link) and not row.closed:
            return row
    row = Row(turn, link, _began(found, at), at)
    found.append(row)
    return row


def _began(found: list[Row], at: float) -> float:
    """A link begins where the one before it ended, but after a pause with what woke the run."""
    if not found:
        return 0.0
    return at if found[-1].closed else found[-1].ended


def lines(events: Sequence[dict[str, Any]]) -> list[str]:
    """The timeline as aligned text."""
    shown: list[str] = []
    turn, ended = 0, 0.0
    for row in rows(events):
        if row.turn != turn:
            turn = row.turn
            shown.append(f"  turn {turn}")
        if row.began > ended:
            shown.append(f"    {'(waited)':<16} {row.began:7.3f} s {_took(ended, row.began)}")
        ended = row.ended
        took = _took(row.began, row.ended)
        name = LINKS.get(row.link, row.link)
        shown.append(
            f"    {name:<16} {row.ended:7.3f} s {took}  {', '.join(row.said.values())}".rstrip()
        )
    return shown


def _took(began: float, ended: float) -> str:
    return f"{(ended - began) * 1000:8.0f} ms"


def _time(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["created_at"])


def _link(move: dict[str, Any], found: list[Row]) -> str:
    match move.get("object"):
        case "run":
            return str(move.get("step") or "compile")
        case "attempt":
            return _LINK_OF_ATTEMPT.get(str(move.get("kind")), "tools")
        case "action":
            return "model" if move.get("from") is None else "tools"
        case "approval":
            return "tools"
    return found[-1].link if found else "compile"


def _text(move: dict[str, Any], actor: dict[str, Any]) -> tuple[str, str]:
    """What a move is about and what to say of it; empty for what the rows show anyway."""
    to = str(move.get("to", ""))
    match move.get("object"):
        case "run" if to in _WAITS or to in _ENDS:
            return "run", f"run {to}"
        case "action":
            name = str(move.get("tool", "action")).rpartition(".")[2]
            return str(move.get("id")), f"{name} {to}"
        case "approval" if to in ("APPROVED", "REJECTED") and actor.get("type") == "user":
            return "approval", f"{to.lower()} by {actor.get('id')}"
        case "attempt" if to != "STARTED":
            kind = str(move.get("kind", "")).lower()
            plain = to == "SUCCESS" and kind in ("model", "tool")  # the actions say it
            return str(move.get("id")), "" if plain else f"{kind} {to}"
    return "", ""
