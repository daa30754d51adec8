"""What does not move, by cause. The conditions are those of the sweep: `leases.DUE` and
`leases.LIVE_LEASE`, so that board and sweep never disagree about who works on a run.

Each cause has its words, what happens by itself, and exactly one safe action (`unsticking.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.db import connection

from agentcore.lifecycle import RUN_LIVE, STEPS, RunState, step_of
from runs.fleet import Fleet, look
from runs.leases import DUE, LIVE_LEASE

Remedy = Literal["requeue", "release", "cancel", "open", ""]
SHOWN = 50
"""Rows of one cause that are listed."""
QUEUED_FOR = timedelta(seconds=60)
"""A run that is due longer than this is late."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why runs stand still. `where` is SQL on `runs_run r`."""

    name: str
    title: str
    words: str
    by_itself: str
    remedy: Remedy
    label: str
    where: str
    since: str = "r.wake_at"


_MODEL_RETRY = "r.ended_at IS NULL AND r.state = 'RETRY_WAIT' AND r.resume_to = 'CALLING_MODEL'"
_OPEN_WRITE = (
    "SELECT {what} FROM runs_actionjournal a WHERE a.run_id = r.id AND a.ended_at IS NULL"
    " AND a.state IN ('UNKNOWN', 'NEEDS_HUMAN')"
)
_EXPIRED = (
    "SELECT {what} FROM approvals_approval p WHERE p.run_id = r.id AND p.state = 'PENDING'"
    " AND p.expires_at <= clock_timestamp()"
)
_POISON = "(r.claims >= %(isolate_after)s OR (r.state = 'SUSPENDED' AND r.reason LIKE 'POISON%%'))"

CAUSES: tuple[Cause, ...] = (
    Cause(
        "poison",
        "Kills its process",
        "Its processes died again and again before anything was recorded.",
        "It is driven alone; after that it stays suspended until a person decides.",
        "cancel",
        "Cancel",
        f"r.ended_at IS NULL AND r.state <> 'CANCELLING' AND {_POISON}",
        "coalesce(r.started_at, r.created_at)",
    ),
    Cause(
        "lost_lease",
        "Lease lost",
        "The worker that held it is gone, and nobody has taken it since.",
        "The sweep sends its message again; the next worker takes it with a new fence.",
        "release",
        "Release the lease",
        f"{DUE} AND r.lease_worker IS NOT NULL AND r.claims < %(isolate_after)s",
        "greatest(r.wake_at, least(r.call_deadline_at, clock_timestamp()))",
    ),
    Cause(
        "no_worker",
        "No worker for its step",
        "It is due, and no living worker serves the queue of its step.",
        "It goes on as soon as a worker with that queue starts.",
        "requeue",
        "Send again",
        f"{DUE} AND r.lease_worker IS NULL AND r.claims < %(isolate_after)s"
        " AND coalesce(r.resume_to, r.state) = ANY(%(unserved)s)",
    ),
    Cause(
        "approval_expired",
        "Approval out of time",
        "The time to decide is over, and no worker has written that down yet.",
        "The next worker that takes it marks the question expired or asks anew.",
        "requeue",
        "Send again",
        f"r.ended_at IS NULL AND r.state = 'WAITING_APPROVAL' AND NOT {LIVE_LEASE}"
        f" AND EXISTS ({_EXPIRED.format(what='1')})",
        f"({_EXPIRED.format(what='min(p.expires_at)')})",
    ),
    Cause(
        "queued",
        "Due, but not taken",
        "It has been due for more than a minute though workers serve its step.",
        "A worker takes it when it is its turn; the sweep sends the message again until then.",
        "requeue",
        "Send again",
        f"{DUE} AND r.lease_worker IS NULL AND r.claims < %(isolate_after)s"
        " AND r.state <> 'WAITING_APPROVAL'"
        " AND r.wake_at < clock_timestamp() - %(late)s::interval"
        " AND NOT coalesce(r.resume_to, r.state) = ANY(%(unserved)s)",
    ),
    Cause(
        "model_retry",
        "Model call is retried",
        "The model or the way to it failed; the call is made again with growing pauses.",
        "A worker calls the model again at the time shown.",
        "open",
        "Open",
        _MODEL_RETRY,
    ),
    Cause(
        "unknown",
        "Unknown outcome blocks it",
        "A write was sent and nobody knows what became of it. No further write starts.",
        "The downstream is asked while its tool can; else a person gives a verdict.",
        "open",
        "Open",
        f"r.ended_at IS NULL AND EXISTS ({_OPEN_WRITE.format(what='1')})",
        f"({_OPEN_WRITE.format(what='min(coalesce(a.first_sent_at, a.created_at))')})",
    ),
)


@dataclass(frozen=True, slots=True)
class StuckRun:
    """One run of a cause. `at` is when it goes on by itself, where a time is known."""

    run_id: UUID
    agent: str
    state: str
    revision: int
    since: datetime
    wake_at: datetime


@dataclass(frozen=True, slots=True)
class Group:
    """The runs of one cause; `more` when not all are listed."""

    cause: Cause
    runs: list[StuckRun]
    more: bool


@dataclass(frozen=True, slots=True)
class System:
    """Something that holds up many runs at once."""

    title: str
    words: str
    cure: str


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that does not move now."""

    groups: list[Group]
    system: list[System]
    fleet: Fleet
    now: datetime
    dead_deliveries: bool = False

    @property
    def count(self) -> int:
        return sum(len(group.runs) for group in self.groups)


def board(*, limit: int = SHOWN) -> Board:
    """Every cause with its first `limit` runs, oldest first."""
    fleet = look()
    now, waiting, dead = _deliveries()
    parameters = _parameters(fleet)
    groups = [_group(cause, parameters, limit) for cause in CAUSES]
    return Board(groups, _system(fleet, waiting), fleet, now, dead)


def is_stuck(*, run_id: UUID, cause: str) -> bool:
    """Whether the run still stands still for this reason."""
    found = next((item for item in CAUSES if item.name == cause), None)
    if found is None:
        return False
    parameters = {**_parameters(look()), "id": run_id}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM runs_run r WHERE r.id = %(id)s AND {found.where}", parameters
        )
        return cursor.fetchone() is not None


def _parameters(fleet: Fleet) -> dict[str, Any]:
    options = settings.AGENTCORE_OPTIONS
    return {
        "dead_after": options.worker_dead_after,
        "isolate_after": options.isolate_after,
        "late": QUEUED_FOR,
        "unserved": _unserved(fleet),
    }


def _unserved(fleet: Fleet) -> list[str]:
    """The states whose step no living worker serves."""
    missing = [step for step in STEPS if not fleet.serving[step]]
    live = RUN_LIVE - {RunState.RETRY_WAIT}
    return [str(state) for state in live if step_of(state) in missing]


def _group(cause: Cause, parameters: dict[str, Any], limit: int) -> Group:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.id, v.name || '@' || v.version, r.state, r.revision, {cause.since} AS since,"
            " r.wake_at FROM runs_run r JOIN runs_agentversion v ON v.id = r.agent_version_id"
            f" WHERE {cause.where} ORDER BY r.wake_at LIMIT %(limit)s",
            {**parameters, "limit": limit + 1},
        )
        rows = [StuckRun(*row) for row in cursor.fetchall()]
    return Group(cause, rows[:limit], len(rows) > limit)


_DELIVERIES = """
    SELECT clock_timestamp(),
      EXISTS (SELECT 1 FROM runs_webhookdelivery WHERE status = 'PENDING'
              AND next_try_at < clock_timestamp() - interval '60 seconds'),
      EXISTS (SELECT 1 FROM (SELECT status FROM runs_webhookdelivery ORDER BY id DESC LIMIT 1000) d
              WHERE d.status = 'DEAD')
"""


def _deliveries() -> tuple[datetime, bool, bool]:
    with connection.cursor() as cursor:
        cursor.execute(_DELIVERIES)
        now, late, dead = cursor.fetchone()
    return now, late, dead


def _system(fleet: Fleet, late_deliveries: bool) -> list[System]:
    found = []
    if not fleet.alive:
        found.append(
            System("No worker lives", "Nothing moves at all.", "Start a worker, see operations.md.")
        )
    if fleet.sweep_is_late:
        age = "never" if fleet.sweep_age is None else f"{fleet.sweep_age:.0f} s ago"
        found.append(
            System(
                "The sweep does not run",
                f"The last pass was {age}. A lost message is found by the sweep alone.",
                "Start a worker, or run manage.py sweep --loop.",
            )
        )
    if late_deliveries:
        found.append(
            System(
                "Webhooks are late",
                "Deliveries have been due for more than a minute.",
                "Look at the deliveries; a worker with its chores sends them.",
            )
        )
    return found
