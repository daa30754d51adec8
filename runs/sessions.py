"""Sessions: making and deleting them, and which run of a session may go.

At most one run of a session works at a time. A second one is refused, or waits: its `wake_at` is
its deadline until the run before it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from django.db import connection, transaction

from runs import dispatch
from runs.models import Run
from runs.once import Within
from runs.refusals import Refused, invalid
from runs.rest_models import Session
from runs.selectors import database_clock
from runs.starting import Caller

_NEXT = """
    UPDATE runs_run r SET wake_at = clock_timestamp(), hinted_at = NULL
    WHERE r.state = 'QUEUED' AND r.ended_at IS NULL AND r.wake_at = r.deadline_at
      AND r.session_id {which}
      AND NOT EXISTS (SELECT 1 FROM runs_run e
                      WHERE e.session_id = r.session_id AND e.ended_at IS NULL AND e.id < r.id)
    RETURNING r.id, r.revision, r.state, r.priority
"""


def create_session(
    *,
    caller: Caller,
    agent: str = "",
    metadata: Mapping[str, str] | None = None,
    within: Within | None = None,
) -> Session:
    """A new session; with `agent` only for runs of that agent. Opens its own transaction."""
    if agent and caller.agents and agent not in caller.agents:
        raise Refused(code="agent_forbidden", detail=f"The token is not for the agent {agent}.")
    with transaction.atomic(durable=True):
        if within:
            within.begin()
        row = Session.objects.create(
            tenant=caller.tenant,
            agent=agent,
            metadata=dict(metadata or {}),
            created_by=caller.principal,
            created_at=database_clock(),
        )
        if within:
            within.end(row, run_id=None)
    return row


def delete_session(*, session: Session) -> None:
    """Take a session away; its runs stay. Raises `Refused` (session_busy)."""
    with transaction.atomic(durable=True):
        locked = Session.objects.select_for_update(no_key=True).get(pk=session.pk)
        _refuse_while_open(locked)
        locked.deleted_at = locked.deleted_at or database_clock()
        locked.save(update_fields=["deleted_at"])


def join_session(*, caller: Caller, session_id: UUID, agent: str, conflict: str) -> bool:
    """Lock the session for a new run in the open transaction; whether the run has to wait.

    Raises `Refused` (invalid_input, session_busy).
    """
    rows = Session.objects.select_for_update(no_key=True)
    found = rows.filter(tenant=caller.tenant, id=session_id, deleted_at__isnull=True).first()
    if found is None:
        raise invalid("/session", "unknown_session", "there is no session with this id.")
    if found.agent not in ("", agent):
        raise invalid("/agent", "other_agent", f"the session is for the agent {found.agent}.")
    if conflict == "reject":
        _refuse_while_open(found)
        return False
    return Run.objects.filter(session_id=session_id, ended_at__isnull=True).exists()


def _refuse_while_open(session: Session) -> None:
    rows = Run.objects.filter(session_id=session.pk, ended_at__isnull=True)
    busy = rows.order_by("id").values_list("id", flat=True).first()
    if busy is not None:
        run = f"run_{busy.hex}"
        raise Refused(
            code="session_busy",
            detail=f"{run} of the session is still open. Wait for its end, or cancel it.",
            context={"run": run},
        )


def wake_next(session_id: UUID) -> None:
    """In the transaction that ended a run of the session: let the next one go."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT.format(which="= %s"), [session_id])
        woken = cursor.fetchall()
    for run_id, revision, state, word in woken:
        priority = dispatch.priority_of(state, word)
        hint = partial(
            dispatch.hint, run_id=run_id, revision=revision, step="compile", priority=priority
        )
        transaction.on_commit(hint, robust=True)


def wake_waiting() -> int:
    """Let every run go that waits for nothing any more; the net under `wake_next`."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_NEXT.format(which="IS NOT NULL"))
        return int(cursor.rowcount)
