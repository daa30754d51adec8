"""The one event of a transaction: its public type, what it says, its place in the chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.conf import settings

from agentcore import canonical
from agentcore.lifecycle import RunState
from runs import sql
from runs.models import Event, Run

if TYPE_CHECKING:
    from runs.transitions import Draft


def event_of(run: Run, drafts: Sequence[Draft], *, actor: str, data: dict[str, Any]) -> Event:
    """The event of the transaction that writes `drafts`; `run` carries the head of its chain."""
    event = sql.new(
        Event,
        run_id=run.id,
        seq=run.event_seq + 1,
        type=_event_type(drafts),
        actor=actor,
        revision_before=run.revision,
        revision_after=run.revision + 1,
        data=data,
        txn=drafts[0].txn,
        created_at=drafts[-1].now,
    )
    event.hash = hash_after(run.event_head, event)
    return event


def hash_after(previous: str, event: Event) -> str:
    """The hash that chains `event` to the one before it."""
    body: dict[str, Any] = {
        "run": str(event.run_id),
        "seq": event.seq,
        "type": event.type,
        "actor": event.actor,
        "revision": [event.revision_before, event.revision_after],
        "data": event.data,
        "at": event.created_at.isoformat(),
    }
    key = settings.AGENTCORE_OPTIONS.event_key
    return canonical.event_hash(key=key, previous=previous, body=body)


_RUN_EVENTS = {
    RunState.COMPLETED: "run.completed",
    RunState.INCOMPLETE: "run.incomplete",
    RunState.FAILED: "run.failed",
    RunState.CANCELLED: "run.cancelled",
    RunState.CANCELLING: "run.cancelling",
    RunState.WAITING_APPROVAL: "run.requires_action",
    RunState.SUSPENDED: "run.requires_action",
}


def _event_type(drafts: Sequence[Draft]) -> str:
    """The public type of the transaction: where the run came to rest, else its last action move,
    else what the draft says."""
    if drafts[-1].named:
        return drafts[-1].event
    moves = [move for draft in drafts for move in draft.transitions]
    rest = [move["to"] for move in moves if move["object"] == "run"]
    if rest and rest[-1] in _RUN_EVENTS:
        return _RUN_EVENTS[RunState(rest[-1])]
    if any(move["object"] == "child" and move["to"] == "STARTED" for move in moves):
        return "run.child_started"
    for move in reversed(moves):
        if move["object"] == "action":
            return f"action.{_ACTION_EVENTS.get(move['to'], move['to'].lower())}"
    return drafts[-1].event


_ACTION_EVENTS = {"RUNNING": "started"}
