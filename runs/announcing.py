"""What follows from an event, in its own transaction: webhooks, the next of a session, readers."""

from __future__ import annotations

from runs import sql
from runs.models import Event, Run
from runs.sessions import wake_next
from runs.waking import wake_on_commit
from runs.webhooks.outbox import record


def announce(run: Run, event: Event | None, *, listened: bool = True) -> None:
    """Called with the event row written and the transaction open."""
    if event is None:
        return
    if listened:
        record(run, event)
    if run.session_id is not None and run.ended_at is not None:
        wake_next(run.session_id)
    wake_readers(run, event)


def outbox_of(run: Run, event: Event | None) -> list[sql.Text]:
    """The statements of `announce` for a run that wakes no other."""
    with sql.held_back() as statements:
        if event is not None:
            record(run, event)
    return statements


def wake_readers(run: Run, event: Event | None) -> None:
    """After the commit, also of a transaction that Django does not know of."""
    if event is not None and event.seq > 1:  # nobody can wait for a run whose id is not known yet
        wake_on_commit(run.id)
