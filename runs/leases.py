"""The right to advance a run: one live lease, a fence that only grows, the database clock.

A lease is live while its worker's beat is fresh *and* its call deadline has not passed. Losing it
takes away the right to advance, never the duty to record what was found out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from uuid import UUID, uuid4

from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction

from agentcore import failpoints
from agentcore.lifecycle import RUN_TERMINAL, RUN_UNLEASED, RunState
from runs import controls, history, isolation, prepared, sql, transitions
from runs.models import Run
from runs.view import Seen, beside, read_beside
from runs.worker import WorkerIdentity
from tools import clock

log = logging.getLogger(__name__)

TRIES = 3
"""Tries of a transaction about the lease after a lost connection."""

UNREACHABLE = (OperationalError, InterfaceError, InternalError)
"""The database cannot be written to now: a lost connection, a time-out, a standby or a server that
is read-only for a while (which psycopg calls an internal error). It says nothing about the work."""

LIVE_LEASE = (
    "(r.lease_worker IS NOT NULL AND r.call_deadline_at > clock_timestamp() AND EXISTS ("
    "SELECT 1 FROM runs_worker w WHERE w.id = r.lease_worker"
    " AND w.beat_at > clock_timestamp() - make_interval(secs => %(dead_after)s)))"
)
"""SQL on `runs_run r`: somebody may be working on it. Needs the parameter `dead_after` (s)."""

DUE = f"r.ended_at IS NULL AND r.wake_at <= clock_timestamp() AND NOT {LIVE_LEASE}"
"""SQL on `runs_run r`: its time has come and nobody works on it. Same parameter."""

_LEAVES_BY_CLAIM = {
    RunState.WAITING_APPROVAL: RunState.DISPATCHING_TOOLS,
    RunState.WAITING_CHILD: RunState.DISPATCHING_TOOLS,
}


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one claim: compared under the lock before every advance."""

    run_id: UUID
    worker: UUID
    token: UUID
    fence: int
    seen: Seen | None = field(default=None, compare=False, repr=False)

    def holds(self, run: Run) -> bool:
        return run.fence == self.fence and run.claim_token == self.token


def claim(*, run_id: UUID, revision: int | None, worker: WorkerIdentity) -> Lease | None:
    """Take the lease of a due run that nobody works on; None when there is nothing to take.

    `revision` is what the message says; another one means the message is stale. Waiting states
    are left in the same statement, since they hold no lease. After a lost connection the row is
    asked whether the claim was committed after all. Raises the database's error when it stays away.
    """
    token = uuid4()
    for left in reversed(range(TRIES)):
        try:
            if left == TRIES - 1 and (lease := _at_once(run_id, revision, worker, token)):
                return lease
            return prepared.again(lambda: _claim(run_id, revision, worker, token))
        except UNREACHABLE as error:
            connection.close()
            if not left:
                raise
            log.warning("run %s: claim failed, trying again: %s", run_id, error)
    raise AssertionError("unreachable")


def _at_once(
    run_id: UUID, revision: int | None, worker: WorkerIdentity, token: UUID
) -> Lease | None:
    """A claim in one message, where it may be one."""
    if connection.in_atomic_block or isolation.is_isolated(1):  # the first claim sets a time, too
        return None
    return prepared.again(lambda: _claim_at_once(run_id, revision, worker, token))


FIRST = 1
"""The revision of a run of which there is no other row than its own and its first event."""


def _claim_at_once(
    run_id: UUID, revision: int | None, worker: WorkerIdentity, token: UUID
) -> Lease | None:
    """The claim of a run that lies free and has lost nobody, with all that a drive reads of it, as
    one message, which is one transaction; None for what has to be looked at under the lock.

    A worker for each step claims a run four times a turn: one message each time instead of six,
    which took away a quarter of the CPU of its workers and a third of PostgreSQL's.
    """
    after = history.known(run_id)
    margin = transitions.claim_margin().total_seconds()
    values = [worker.id, token, margin, run_id]
    texts = [(_take(revision is not None), values if revision is None else [*values, revision])]
    if revision != FIRST:
        texts += beside(run_id, after=after)
    failpoints.hit("claim.before_commit")
    asked = clock.now()
    taken, *found = sql.rows(texts)
    local = clock.answered(asked)
    if not taken:
        return None
    failpoints.hit("claim.after_commit")
    *columns, now, stamp = taken[0]
    run = sql.row_of(Run, columns)
    rows = read_beside(found, after=after) if found else None
    seen = Seen(run, now, local, controls.at(stamp), rows)
    return Lease(run_id=run_id, worker=worker.id, token=token, fence=run.fence, seen=seen)


@cache
def _take(with_revision: bool) -> str:
    waiting = ", ".join(f"'{state}'" for state in sorted(RUN_UNLEASED))
    return (
        f"{transitions.TAKE} WHERE id = %s{' AND revision = %s' if with_revision else ''}"
        " AND lease_worker IS NULL AND claims = 0 AND wake_at <= clock_timestamp()"
        f" AND state NOT IN ({waiting}) RETURNING {sql.columns_of(Run)}, clock_timestamp(),"
        " (SELECT stamp FROM runs_controls WHERE id = 1)"
    )


def _claim(run_id: UUID, revision: int | None, worker: WorkerIdentity, token: UUID) -> Lease | None:
    asked = clock.now()
    with transaction.atomic(durable=True):
        run, now = transitions.lock_run(run_id)
        local = clock.answered(asked)
        if run.claim_token == token:  # an earlier try whose reply was lost
            return Lease(run_id=run_id, worker=worker.id, token=token, fence=run.fence)
        if revision is not None and run.revision != revision:
            return None
        if not _is_due(run, now) or (run.lease_worker is not None and is_live(run_id=run_id)):
            return None
        if not isolation.may_claim(run.claims, isolating=worker.isolating):
            return None
        draft = transitions.Draft(run=run, now=now, event="run.resumed")
        _leave_waiting(draft)
        draft.take_lease(worker=worker.id, token=token)
        if isolation.is_isolated(run.claims):  # else the column, which is indexed, stays
            draft.set_run(wake_at=isolation.wake_if_lost(claims=run.claims, now=now))
        failpoints.hit("claim.before_commit")
        end = transitions.write_at_once(run, draft, actor=worker.actor, held={})
        if end is None:
            raise RuntimeError(f"run {run_id}: its locked row has changed")
        end.carry(run)
    failpoints.hit("claim.after_commit")
    seen = Seen(run, now, local)
    return Lease(run_id=run_id, worker=worker.id, token=token, fence=run.fence, seen=seen)


def give_back(lease: Lease) -> None:
    """Release the lease of a drive that the database broke off: its process lives, so this is no
    death to count. Left to lapse when the database cannot be reached.
    """
    for _ in range(TRIES):
        try:
            actor = f"worker:{lease.worker}"
            with transitions.locked_run(lease.run_id, actor=actor, event="run.released") as draft:
                if lease.holds(draft.run):
                    draft.release()
                    draft.set_run(wake_at=draft.now, hinted_at=None)
        except UNREACHABLE as error:
            connection.close()
            log.warning("run %s: the lease could not be given back: %s", lease.run_id, error)
        else:
            return


def _is_due(run: Run, now: datetime) -> bool:
    return run.state not in RUN_TERMINAL and run.wake_at <= now


def is_live(*, run_id: UUID) -> bool:
    """Whether somebody may be working on the run now. Ask with the run row locked."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {LIVE_LEASE} FROM runs_run r WHERE r.id = %(id)s",
            {"id": run_id, "dead_after": settings.AGENTCORE_OPTIONS.worker_dead_after},
        )
        return bool(cursor.fetchone()[0])


def _leave_waiting(draft: transitions.Draft) -> None:
    state = RunState(draft.run.state)
    if state in _LEAVES_BY_CLAIM:
        draft.move_run(_LEAVES_BY_CLAIM[state])
    elif state is RunState.RETRY_WAIT:
        over = {} if draft.run.stop_reason else {"reason": ""}  # what it waited for
        draft.move_run(RunState(draft.run.resume_to or ""), **over)
