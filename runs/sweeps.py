"""The delivery guarantee: find due runs that nobody works on, and hint them.

Every worker process runs it in a thread, `manage.py sweep` runs it for cron; an advisory lock lets
one pass at a time through. When the broker does not take a hint, the pass drives the run itself.
"""

from __future__ import annotations

import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agentcore import failpoints
from agentcore.lifecycle import RunState, step_of
from runs import dispatch, worker
from runs.driver import drive
from runs.leases import LIVE_LEASE

log = logging.getLogger(__name__)

LOCK_KEY = 0x6167_7377  # one sweep of the installation at a time
MAX_BACKLOG = 1000
DRIVES_A_PASS = 16
DRIVE_THREADS = 4

_DUE = f"""
    SELECT r.id, r.revision, r.state, r.resume_to FROM runs_run r
    WHERE r.ended_at IS NULL AND r.state <> 'SUSPENDED' AND r.wake_at <= clock_timestamp()
      AND NOT {LIVE_LEASE}
      AND (r.hinted_at IS NULL OR r.hinted_at < clock_timestamp() - make_interval(
           secs => least(%(backoff)s * power(2, least(r.hints, 20)), %(cap)s)))
    ORDER BY r.wake_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF r SKIP LOCKED
"""


@dataclass(frozen=True, slots=True)
class DueRun:
    run_id: UUID
    revision: int
    step: str
    new: bool


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did. `busy`: another pass held the lock."""

    due: int = 0
    hinted: int = 0
    driven: int = 0
    busy: bool = False


def sweep_once() -> Swept:
    """One pass: mark the due runs as hinted, publish, and drive what could not be published."""
    limit = _room()
    due = _take_due(limit=limit or DRIVES_A_PASS)
    if due is None:
        return Swept(busy=True)
    unpublished = [run for run in due if limit == 0 or not _publish(run)]
    mine = worker.current().inline if unpublished else frozenset()
    driven = _drive_here([run for run in unpublished if run.step in mine][:DRIVES_A_PASS])
    return Swept(due=len(due), hinted=len(due) - len(unpublished), driven=driven)


def _room() -> int:
    """How many hints the queues may still take; 0 when the broker cannot be asked."""
    try:
        return max(1, MAX_BACKLOG - dispatch.backlog())
    except Exception as error:  # noqa: BLE001  (whatever its trouble: the runs are driven here)
        log.warning("the broker cannot be reached, due runs are driven here: %s", error)
        return 0


def _take_due(*, limit: int) -> list[DueRun] | None:
    options = settings.AGENTCORE_OPTIONS
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_KEY])
        if not cursor.fetchone()[0]:
            return None
        # Bookkeeping of hints: losing it costs one hint too many.
        cursor.execute("SET LOCAL synchronous_commit = off")
        cursor.execute(
            _DUE,
            {
                "dead_after": options.worker_dead_after,
                "backoff": options.hint_backoff,
                "cap": options.hint_backoff_cap,
                "limit": limit,
            },
        )
        rows = cursor.fetchall()
        if rows:
            cursor.execute(
                "UPDATE runs_run SET hinted_at = clock_timestamp(), hints = hints + 1"
                " WHERE id = ANY(%s)",
                [[row[0] for row in rows]],
            )
    return [_due_run(*row) for row in rows]


def _due_run(run_id: UUID, revision: int, state: str, resume_to: str | None) -> DueRun:
    step = step_of(RunState(state), RunState(resume_to) if resume_to else None)
    return DueRun(run_id, revision, step, new=state == RunState.QUEUED)


def _publish(run: DueRun) -> bool:
    failpoints.hit("sweep.before_publish")
    sent = dispatch.hint(run_id=run.run_id, revision=run.revision, step=run.step, new=run.new)
    failpoints.hit("sweep.after_publish")
    return sent


def _drive_here(runs: list[DueRun]) -> int:
    if not runs:
        return 0
    with ThreadPoolExecutor(max_workers=DRIVE_THREADS, thread_name_prefix="sweep-drive") as pool:
        return sum(pool.map(_drive_one, runs))


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
    period = settings.AGENTCORE_OPTIONS.sweep_period
    while not stop.wait(period * random.uniform(0.75, 1.25)):  # noqa: S311  (jitter)
        try:
            sweep_once()
        except Exception:
            log.exception("a sweep failed; the next one follows")
        finally:
            connection.close()
