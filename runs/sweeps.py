"""The delivery guarantee: find due runs that nobody works on, and hint them.

Every worker process runs it in a thread, `manage.py sweep` runs it for cron; an advisory lock lets
one pass at a time through. When the broker does not take a hint, the pass drives the run itself. A
run that must be driven alone goes to the worker for that, else to a child process.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agentcore import failpoints
from agentcore.lifecycle import RUN_LIVE, STEPS, RunState, step_of
from runs import callbacks, dispatch, isolation, poison, worker
from runs.driver import drive
from runs.leases import DUE
from runs.poison import Children

log = logging.getLogger(__name__)

LOCK_KEY = 0x6167_7377  # one sweep of the installation at a time
MAX_BACKLOG = 1000
MAX_ISOLATED = 100
DRIVES_A_PASS = 16
DRIVE_THREADS = 4
NOT_NOW = 1e7
"""Seconds; longer than any run waits."""

# What must be driven alone is taken when somebody can do that; what died too often, always.
_DUE = f"""
    SELECT r.id, r.revision, r.state, r.resume_to, r.claims, r.priority FROM runs_run r
    WHERE {DUE}
      AND (%(states)s::text[] IS NULL OR r.claims >= %(spent_at)s
           OR coalesce(r.resume_to, r.state) = ANY(%(states)s))
      AND (r.hinted_at IS NULL OR r.hinted_at < clock_timestamp() - make_interval(
           secs => least(%(backoff)s * power(2, least(r.hints, 20)), %(cap)s)))
      AND (r.claims < %(isolate_after)s OR r.claims >= %(spent_at)s
           OR r.wake_at <= clock_timestamp() - make_interval(secs => %(isolate_wait)s))
    ORDER BY r.wake_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF r SKIP LOCKED
"""

_ALIVE = """
    SELECT EXISTS (SELECT 1 FROM runs_worker WHERE queues ? %(queue)s
      AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after)s))
"""


@dataclass(frozen=True, slots=True)
class DueRun:
    run_id: UUID
    revision: int
    step: str
    claims: int
    priority: int

    @property
    def alone(self) -> bool:
        return isolation.is_isolated(self.claims)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did. `busy`: another pass held the lock. `isolated`: given to children."""

    due: int = 0
    hinted: int = 0
    driven: int = 0
    isolated: int = 0
    suspended: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """What may be handed out in this pass. `reachable`: the broker takes hints."""

    hints: int
    reachable: bool
    isolate_queue: bool
    isolate_wait: float


def sweep_once(*, children: Children | None = None) -> Swept:
    """One pass: mark the due runs as hinted, publish, and drive what could not be published.

    `children` drives what must be driven alone where no worker serves the queue `isolate`.
    """
    room = _room(children)
    due = _take_due(room)
    worker.note_sweep()
    if due is None:
        return Swept(busy=True)
    suspended = sum(_suspend(run) for run in due if isolation.is_spent(run.claims))
    due = [run for run in due if not isolation.is_spent(run.claims)]
    unpublished = [run for run in due if not _may_publish(run, room) or not _publish(run)]
    alone = [run.run_id for run in unpublished if run.alone]
    if children is not None and children.idle:
        children.start(alone)
    driven = _drive_here([run for run in unpublished if not run.alone])
    callbacks.settle_parked()
    return Swept(
        due=len(due) + suspended,
        hinted=len(due) - len(unpublished),
        driven=driven,
        isolated=len(alone),
        suspended=suspended,
    )


def _room(children: Children | None) -> Room:
    hints, isolate_queue, reachable = DRIVES_A_PASS, False, True
    try:
        waiting = dispatch.backlog(*STEPS, isolation.QUEUE)
        alone = waiting.pop(isolation.QUEUE)
        hints = max(1, MAX_BACKLOG - sum(waiting.values()))
        isolate_queue = alone < MAX_ISOLATED and _isolate_worker_lives()
    except Exception as error:  # noqa: BLE001  (whatever its trouble: the runs are driven here)
        log.warning("the broker cannot be reached, due runs are driven here: %s", error)
        reachable = False
    if isolate_queue:
        wait = 0.0
    else:
        wait = children.wait if children is not None and children.idle else NOT_NOW
    return Room(hints, reachable, isolate_queue, wait)


def _isolate_worker_lives() -> bool:
    dead_after = settings.AGENTCORE_OPTIONS.worker_dead_after
    with connection.cursor() as cursor:
        cursor.execute(_ALIVE, {"queue": isolation.QUEUE, "dead_after": dead_after})
        return bool(cursor.fetchone()[0])


def _take_due(room: Room) -> list[DueRun] | None:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_KEY])
        if not cursor.fetchone()[0]:
            return None
        # Bookkeeping of hints: losing it costs one hint too many.
        cursor.execute("SET LOCAL synchronous_commit = off")
        cursor.execute(_DUE, _parameters(room))
        rows = cursor.fetchall()
        if rows:
            cursor.execute(
                "UPDATE runs_run SET hinted_at = clock_timestamp(), hints = least(hints + 1, 99)"
                " WHERE id = ANY(%s)",
                [[row[0] for row in rows]],
            )
        failpoints.hit("sweep.before_commit")
    failpoints.hit("sweep.after_commit")
    # By priority within one pass; `wake_at`, which has an index, says who is in it.
    return sorted((_due_run(row) for row in rows), key=lambda run: run.priority)


def _parameters(room: Room) -> dict[str, Any]:
    options = settings.AGENTCORE_OPTIONS
    return {
        "dead_after": options.worker_dead_after,
        "backoff": options.hint_backoff,
        "cap": options.hint_backoff_cap,
        "isolate_after": options.isolate_after,
        "spent_at": isolation.spent_at(),
        "isolate_wait": room.isolate_wait,
        "limit": room.hints if room.reachable else DRIVES_A_PASS,
        # Without a broker only what this process drives itself is marked: the rest is for others.
        "states": None if room.reachable else _states_of(worker.current().inline),
    }


def _states_of(steps: frozenset[str]) -> list[str]:
    live = RUN_LIVE - {RunState.RETRY_WAIT}
    return [state for state in live if step_of(state) in steps]


def _due_run(row: Sequence[Any]) -> DueRun:
    run_id, revision, state, resume_to, claims, priority = row
    step = step_of(RunState(state), RunState(resume_to) if resume_to else None)
    return DueRun(run_id, revision, step, claims, dispatch.priority_of(state, priority))


def _may_publish(run: DueRun, room: Room) -> bool:
    return room.reachable and (room.isolate_queue or not run.alone)


def _publish(run: DueRun) -> bool:
    failpoints.hit("sweep.before_publish")
    sent = dispatch.hint(
        run_id=run.run_id,
        revision=run.revision,
        step=run.step,
        priority=run.priority,
        alone=run.alone,
    )
    failpoints.hit("sweep.after_publish")
    return sent


def _suspend(run: DueRun) -> bool:
    try:
        return poison.suspend(run.run_id, worker=worker.current())
    except Exception:
        log.exception("run %s could not be suspended; a later pass tries again", run.run_id)
        return False


def _drive_here(runs: Sequence[DueRun]) -> int:
    """Drive what no broker delivers, unless this process is for runs that are driven alone."""
    if not runs or worker.current().isolating:
        return 0
    mine = [run for run in runs if run.step in worker.current().inline][:DRIVES_A_PASS]
    with ThreadPoolExecutor(max_workers=DRIVE_THREADS, thread_name_prefix="sweep-drive") as pool:
        return sum(pool.map(_drive_one, mine))


def _drive_one(run: DueRun) -> bool:
    try:
        return drive(run_id=run.run_id, revision=run.revision) is not None
    except Exception:
        log.exception("driving run %s failed; a later pass tries again", run.run_id)
        return False
    finally:
        connection.close()


def start_thread(*, stop: threading.Event) -> threading.Thread:
    """Sweep in the background until `stop`, a period apart with jitter."""
    thread = threading.Thread(target=_forever, args=(stop,), name="sweep", daemon=True)
    thread.start()
    return thread


def _forever(stop: threading.Event) -> None:
    options = settings.AGENTCORE_OPTIONS
    children = Children(wait=options.isolate_grace)
    while not stop.wait(options.sweep_period * random.uniform(0.75, 1.25)):  # noqa: S311  (jitter)
        try:
            sweep_once(children=children)
        except Exception:
            log.exception("a sweep failed; the next one follows")
        finally:
            connection.close()
