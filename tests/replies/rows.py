"""One row of the reply table: a body, what the desk offers, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runs.models import Run
from tests.agentcore.loopback import Answer
from tests.replies.desk import Desk, said
from tests.replies.tools_of_the_desk import MADE

INPUT, STATE = "user", "developer"
NOTE = "developer"
OUT = "function_call_output"


@dataclass(frozen=True)
class Row:
    """`first` is the decision of turn 1 and `code` how its problem begins; `actions` are (tool,
    state, reason) of all actions; `attempts` are (outcome, error class) of all model calls;
    `history` the item types (or roles of messages) of the last request, without the input at its
    beginning and the task state at its end.
    """

    first: str
    state: str = "COMPLETED"
    stop: str | None = None
    code: str = ""
    actions: tuple[tuple[str, str, str], ...] = ()
    attempts: tuple[tuple[str, str], ...] = (("SUCCESS", ""), ("SUCCESS", ""))
    history: tuple[str, ...] = ()
    made: int = 0
    requests: int = 2
    tools: tuple[str, ...] = ("get_order", "refund_order")
    names: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    layer: str = ""


ONCE = (("SUCCESS", ""),)
ENDED: dict[str, Any] = {"attempts": ONCE, "requests": 1}
CALLED: dict[str, Any] = {"first": "TOOL_CALLS", "history": ("function_call", OUT)}
INVALID: dict[str, Any] = {"first": "INVALID", "history": (NOTE,)}


def play(desk: Desk, row: Row, *answers: Answer) -> Run:
    """Let the model answer `answers` and then an answer that claims nothing; check everything."""
    desk.script(*answers, said())
    run = desk.start(tools=row.tools, names=row.names)
    desk.drive(run)
    desk.check(run)
    turns, requests = desk.turns(run), desk.requests()
    assert (run.state, run.stop_reason) == (row.state, row.stop), run.reason
    assert row.reason in run.reason
    assert (run.failure or {}).get("layer", "") == row.layer
    assert turns[0].decision == row.first
    assert turns[0].problem.startswith(row.code)
    found = [(a.tool.removeprefix("desk."), a.state, a.reason) for a in desk.actions(run)]
    assert found == list(row.actions)
    tried = [(a.outcome, a.error_class) for a in desk.attempts(run)]
    assert tried == list(row.attempts)
    assert len(requests) == row.requests
    assert history_of(requests[-1]) == row.history
    assert len(MADE) == row.made
    return run


def history_of(request: dict[str, Any]) -> tuple[str, ...]:
    """The types of a request's items, messages by their role, between input and task state."""
    kinds = [
        item.get("role", "message") if item.get("type", "message") == "message" else item["type"]
        for item in request["input"]
    ]
    assert kinds[0] == INPUT
    assert kinds[-1] == STATE
    return tuple(kinds[1:-1])
