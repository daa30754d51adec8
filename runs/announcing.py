"""What follows from an event, in its own transaction: webhooks, the next of a session, readers."""

from __future__ import annotations

from runs.models import Event, Run
from runs.sessions import wake_next
from runs.waking import wake_on_commit
from runs.webhooks.outbox import record


def announce(run: Run, event: Event, *, listened: bool = True) -> None:
    """Called with the event row written and the transaction open."""
    if listened:
        record(run, event)
    if run.session_id is not None and run.ended_at is not None:
        wake_next(run.session_id)
    if event.seq > 1:  # nobody can wait for a run whose id was not answered yet
        wake_on_commit(run.id)
