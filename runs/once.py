"""Makes a request happen once: its key is taken, and its answer stored, in its own transaction.

A use case takes a `Guard` as `within`: it calls `begin` once its transaction is open and `end` as
the last thing before the commit. `answered_once` runs a use case with such a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db import IntegrityError

from agentcore.values import Json
from approvals.errors import DecisionError
from runs import prepared, sql
from runs.access_models import IdempotencyRecord
from runs.refusals import Refused
from runs.selectors import BEGUN, Begun, database_clock

KEEP_FOR = timedelta(days=30)
"""How long a stored answer is given again."""


class TokenFacts(NamedTuple):
    """What a caller may do by its token, as it was read a moment ago. Lists as JSON text."""

    sha256: str
    tenant: str
    name: str
    scopes: str
    agents: str


@dataclass(frozen=True, slots=True)
class Once:
    """The key of a request, what a repetition must equal, and how it is answered.

    `principal` and `route` bound the key: the same key of another caller is another request.
    `answer` makes HTTP status and body of what the use case did; it is called inside the
    transaction. `tenant`: that of the caller, if its webhook endpoints are to be looked for.
    `token`: what the caller was remembered by, if it still has to be compared with what is stored.
    """

    principal: str
    method: str
    route: str
    key: str
    body_sha256: str
    answer: Callable[[Any], tuple[int, Json]]
    tenant: str = ""
    token: TokenFacts | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an idempotent request; `replayed` when an earlier request made it."""

    status: int
    body: Json
    run_id: str
    replayed: bool


class TokenChanged(Exception):  # noqa: N818  (an answer, not a fault)
    """The token of the caller is no longer what it was remembered as: nothing was written."""


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
        self.compared = once.token is None
        self._now: datetime | None = None

    def begin(self) -> Begun:
        """Hold the key until the transaction ends.

        Raises `KeyKnown`, which `answered_once` turns into the stored answer, and `Refused`.
        """
        self.compared = True
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
        prepared.again(lambda: act(guard))
    except (KeyKnown, IntegrityError, Refused, DecisionError):
        if not guard.compared:
            raise TokenChanged from None  # refused before: who calls is looked up first
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
    SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)), EXISTS (
        SELECT 1 FROM runs_idempotencyrecord WHERE principal = %s
        AND method = %s AND route = %s AND key = %s), {BEGUN}, {{listened}}, {{token}}
"""  # noqa: S608  (a text of ours)
_LISTENED = """EXISTS (SELECT 1 FROM runs_webhookendpoint
        WHERE tenant = %s AND deleted_at IS NULL AND disabled_at IS NULL)"""
_USABLE = """EXISTS (SELECT 1 FROM runs_apitoken WHERE sha256 = %s AND tenant = %s AND name = %s
        AND scopes = %s::jsonb AND agents = %s::jsonb AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > clock_timestamp()))"""


@cache
def _take(*, listened: bool, token: bool) -> str:
    return _TAKE.format(
        listened=_LISTENED if listened else "true", token=_USABLE if token else "true"
    )


def take_key(*, once: Once) -> Begun:
    """Hold the key until the transaction ends. One statement, which also reads what else is needed.

    Raises `KeyKnown` when an earlier request was answered, `TokenChanged`, and `Refused` at once
    while another request holds the key. One that was answered between the two looks is found by
    `store`.
    """
    values = [once.principal, once.method, once.route, once.key]
    name = "\n".join(["idempotency", *values])
    asked = [name, *values, *([once.tenant] if once.tenant else [])]
    if once.token is not None:
        asked += once.token
    statement = _take(listened=bool(once.tenant), token=once.token is not None)
    held, known, now, controls, listened, usable = sql.row(statement, asked)
    if not usable:
        raise TokenChanged
    if known:
        raise KeyKnown
    if not held:
        raise Refused(
            code="idempotency_in_progress",
            detail="A request with this Idempotency-Key is being answered. Send it again after "
            "the time in Retry-After.",
            retry_after=1,
        )
    return Begun(now, controls, listened)


def store(*, once: Once, status: int, body: Json, run_id: UUID | None, now: datetime) -> None:
    """Write the answer into the open transaction. Raises IntegrityError for a key in use."""
    row = sql.new(
        IdempotencyRecord,
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
