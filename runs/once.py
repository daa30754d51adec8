"""Makes a request happen once: its key is taken, and its answer stored, in its own transaction.

A use case takes a `Guard` as `within`: it calls `begin` once its transaction is open and `end` as
the last thing before the commit. `answered_once` runs a use case with such a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from django.db import IntegrityError, connection

from agentcore.values import Json
from approvals.errors import DecisionError
from runs import sql
from runs.access_models import IdempotencyRecord
from runs.refusals import Refused
from runs.selectors import BEGUN, Begun, database_clock

KEEP_FOR = timedelta(days=30)
"""How long a stored answer is given again."""


@dataclass(frozen=True, slots=True)
class Once:
    """The key of a request, what a repetition must equal, and how it is answered.

    `principal` and `route` bound the key: the same key of another caller is another request.
    `answer` makes HTTP status and body of what the use case did; it is called inside the
    transaction.
    """

    principal: str
    method: str
    route: str
    key: str
    body_sha256: str
    answer: Callable[[Any], tuple[int, Json]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an idempotent request; `replayed` when an earlier request made it."""

    status: int
    body: Json
    run_id: str
    replayed: bool


class KeyKnown(Exception):  # noqa: N818  (an answer, not a fault)
    """An earlier request with this key was answered: this one's transaction writes nothing."""


class Within(Protocol):
    """What a use case calls inside its transaction."""

    def begin(self) -> Begun: ...
    def end(self, outcome: Any, *, run_id: UUID | None) -> None: ...


class Guard:
    """`Within` for one key; afterwards `answer` holds what was stored."""

    def __init__(self, once: Once) -> None:
        self.once = once
        self.answer: Answer | None = None
        self._now: datetime | None = None

    def begin(self) -> Begun:
        """Hold the key until the transaction ends.

        Raises `KeyKnown`, which `answered_once` turns into the stored answer, and `Refused`.
        """
        begun = take_key(once=self.once)
        self._now = begun.now
        return begun

    def end(self, outcome: Any, *, run_id: UUID | None) -> None:
        status, body = self.once.answer(outcome)
        now = self._now or database_clock()
        store(once=self.once, status=status, body=body, run_id=run_id, now=now)
        self.answer = Answer(status, body, str(run_id), replayed=False)


def answered_once(*, once: Once, act: Callable[[Guard], object]) -> Answer:
    """Run a use case unless an earlier request with this key did; its answer or the stored one.

    The stored answer is looked up only when the use case did not go through: new requests, which
    are nearly all, do not pay for it. Raises what the use case raises, and `Refused`
    (idempotency_key_reused, idempotency_in_progress).
    """
    guard = Guard(once)
    try:
        act(guard)
    except (KeyKnown, IntegrityError, Refused, DecisionError):
        stored = stored_answer(once=once)
        if stored is None:
            raise
        return stored
    if guard.answer is None:
        raise RuntimeError("the use case did not call `within.end`")
    return guard.answer


def stored_answer(*, once: Once) -> Answer | None:
    """The answer that an earlier request with this key got, or None.

    Raises `Refused` (idempotency_key_reused) when that request had another body.
    """
    record = IdempotencyRecord.objects.filter(
        principal=once.principal, method=once.method, route=once.route, key=once.key
    ).first()
    if record is None:
        return None
    if record.body_sha256 != once.body_sha256:
        raise Refused(
            code="idempotency_key_reused",
            detail="This Idempotency-Key was used with another body. Send the first body again, "
            "or use a new key for a new request.",
        )
    return Answer(status=record.status, body=record.body, run_id=str(record.run_id), replayed=True)


_TAKE = f"""
    SELECT pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0)), EXISTS (
        SELECT 1 FROM runs_idempotencyrecord WHERE principal = %(principal)s
        AND method = %(method)s AND route = %(route)s AND key = %(key)s), {BEGUN}
"""  # noqa: S608  (a text of ours)


def take_key(*, once: Once) -> Begun:
    """Hold the key until the transaction ends. One statement, which also reads what else is needed.

    Raises `KeyKnown` when an earlier request was answered, and `Refused` at once while another one
    holds the key. One that was answered between the two looks is found by `store`.
    """
    values = {
        "principal": once.principal,
        "method": once.method,
        "route": once.route,
        "key": once.key,
    }
    name = "\n".join(["idempotency", *values.values()])
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, {**values, "name": name})
        held, known, *rest = cursor.fetchone()
    if known:
        raise KeyKnown
    if not held:
        raise Refused(
            code="idempotency_in_progress",
            detail="A request with this Idempotency-Key is being answered. Send it again after "
            "the time in Retry-After.",
            retry_after=1,
        )
    return Begun(*rest)


def store(*, once: Once, status: int, body: Json, run_id: UUID | None, now: datetime) -> None:
    """Write the answer into the open transaction. Raises IntegrityError for a key in use."""
    row = IdempotencyRecord(
        principal=once.principal,
        method=once.method,
        route=once.route,
        key=once.key,
        body_sha256=once.body_sha256,
        status=status,
        body=body,
        run_id=run_id,
        created_at=now,
    )
    sql.insert([row])


def forget_old(*, limit: int = 1000) -> int:
    """Delete up to `limit` answers that are older than `KEEP_FOR`; how many went."""
    old = database_clock() - KEEP_FOR
    ids = IdempotencyRecord.objects.filter(created_at__lt=old).values_list("id", flat=True)[:limit]
    return IdempotencyRecord.objects.filter(id__in=list(ids)).delete()[0]
