"""The places of a limit: taken by the transaction that starts a call, given back with its result.

An advisory lock for each bucket makes the last place one call's, whatever number of workers ask. A
process that dies gives its place back when its call cannot last any longer, so a limit is never
exceeded by what a dead worker may still have under way. The end of a call wakes the run that has
waited longest; one that is missed looks by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agentcore.ids import new_id
from agentcore.throttle import MINUTE, Bucket, Use, held
from runs.dispatch import hint_on_commit
from runs.fleet_models import LimitUse
from runs.models import Attempt, Run
from runs.sql import insert
from runs.transitions import Draft, StaleDraft


@dataclass(frozen=True, slots=True)
class Counted:
    """One call in one bucket. `seconds`: the longest it can last. `waits`: it is made only when
    there is room.
    """

    bucket: Bucket
    attempt_id: UUID
    seconds: float
    waits: bool


def is_limited() -> bool:
    """Whether this installation has any limit."""
    return bool(settings.AGENTCORE_OPTIONS.limits)


def take(counted: Sequence[Counted], run_id: UUID) -> None:
    """Count calls in the open transaction. Raises `StaleDraft` when one has no room any more."""
    buckets = {item.bucket.name: item.bucket for item in counted}
    now = _lock(sorted(buckets))
    asking = Counter(item.bucket.name for item in counted if item.waits)
    asked = [buckets[name] for name in sorted(asking)]
    for bucket, use in use_of(asked, now, run_id=run_id):
        if held(bucket=bucket, use=use, calls=asking[bucket.name], now=now) is not None:
            raise StaleDraft(f"no room any more: {bucket.name}")
    insert([_row(item, now) for item in counted])
    _tidy(sorted(buckets), now, run_id)


def _lock(names: Sequence[str]) -> datetime:
    """Hold the buckets to the end of the transaction; the clock once they are held."""
    locks = ", ".join(["pg_advisory_xact_lock(%s)"] * len(names))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {locks}, clock_timestamp()", [_lock_key(name) for name in names])
        now: datetime = cursor.fetchone()[-1]
    return now


def _row(item: Counted, now: datetime) -> LimitUse:
    return LimitUse(
        id=new_id(),
        bucket=item.bucket.name,
        attempt_id=item.attempt_id,
        taken_at=now,
        until=now + timedelta(seconds=item.seconds),
    )


def _tidy(names: Sequence[str], now: datetime, run_id: UUID) -> None:
    """This run does not wait any more; what is over is not kept."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH waits AS (DELETE FROM runs_limitwait WHERE run_id = %s)"
            " DELETE FROM runs_limituse WHERE bucket = ANY(%s) AND taken_at < %s"
            " AND (released_at IS NOT NULL OR until < %s)",
            [run_id, list(names), now - 2 * MINUTE, now],
        )


def _lock_key(name: str) -> int:
    digest = blake2b(f"limit:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


_USE = """
    SELECT f.n, f.first_end, t.n, w.n, CASE WHEN t.n >= b.rate THEN (
        SELECT u.taken_at FROM runs_limituse u WHERE u.bucket = b.name AND u.taken_at > %(since)s
        ORDER BY u.taken_at DESC OFFSET b.rate - 1 - w.n %% b.rate LIMIT 1) END
    FROM unnest(%(names)s::text[], %(rates)s::int[]) WITH ORDINALITY AS b (name, rate, nr)
    CROSS JOIN LATERAL (SELECT count(*) AS n, min(u.until) AS first_end FROM runs_limituse u
        WHERE u.bucket = b.name AND u.released_at IS NULL AND u.until > %(now)s
          AND u.attempt_id <> ALL(%(over)s::uuid[])) f
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM runs_limituse u
        WHERE u.bucket = b.name AND u.taken_at > %(since)s) t
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM runs_limitwait q
        JOIN runs_run r ON r.id = q.run_id
        WHERE q.bucket = b.name AND q.run_id <> %(run)s AND r.ended_at IS NULL) w
    ORDER BY b.nr
"""


def use_of(
    buckets: Sequence[Bucket], now: datetime, *, run_id: UUID, over: Collection[UUID] = ()
) -> list[tuple[Bucket, Use]]:
    """What is in use of each bucket. `over`: attempts whose end this process knows and has not
    written yet; `run_id`: the run that asks, which does not wait for itself.
    """
    if not buckets:
        return []
    values: dict[str, Any] = {
        "names": [bucket.name for bucket in buckets],
        "rates": [bucket.per_minute for bucket in buckets],
        "since": now - MINUTE,
        "now": now,
        "over": list(over),
        "run": run_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(_USE, values)
        rows = cursor.fetchall()
    return [(bucket, Use(*row)) for bucket, row in zip(buckets, rows, strict=True)]


def enqueue(run_id: UUID, bucket: str, since: datetime) -> None:
    """Remember, in the open transaction, that the run waits; its place in the queue stays."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_limitwait (run_id, bucket, since) VALUES (%s, %s, %s)"
            " ON CONFLICT (run_id) DO UPDATE SET bucket = EXCLUDED.bucket",
            [run_id, bucket, since],
        )


def release(draft: Draft, attempt: Attempt) -> None:
    """Give the places of a finished call back, in the transaction that records its result."""
    if is_limited():
        draft.also(partial(_release, attempt.id))


def _release(attempt_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_limituse u SET released_at = clock_timestamp()"
            " WHERE attempt_id = %s AND released_at IS NULL RETURNING bucket,"
            " EXISTS (SELECT 1 FROM runs_limitwait w WHERE w.bucket = u.bucket)",
            [attempt_id],
        )
        names = [name for name, wanted in cursor.fetchall() if wanted]
    if names:
        transaction.on_commit(partial(_wake, names), robust=True)


_NEXT = """
    UPDATE runs_run SET wake_at = clock_timestamp(), hinted_at = clock_timestamp() WHERE id IN (
        SELECT r.id FROM runs_limitwait w JOIN runs_run r ON r.id = w.run_id
        WHERE w.bucket = ANY(%s) AND r.lease_worker IS NULL AND r.wake_at > clock_timestamp()
          AND r.state IN ('RETRY_WAIT', 'WAITING_APPROVAL', 'RECONCILING')
        ORDER BY w.since, w.run_id LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED
    ) RETURNING *
"""


def _wake(names: Sequence[str]) -> None:
    """Let the run that has waited longest look again."""
    for run in Run.objects.raw(_NEXT, [list(names)]):
        hint_on_commit(run)
