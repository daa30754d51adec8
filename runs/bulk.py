"""Bulk operations: one verb for a frozen set of runs, confirmed by its count.

Making one freezes the ids and says what would become of each. Starting it needs the token of that
answer and the typed count. Workers then do one run after the other through the same use case as a
single request, and note it in that use case's own transaction: a process that dies leaves the run
either done and noted, or to be done by another one. Aborting stops before the next run.
"""

from __future__ import annotations

import base64
import hmac
import logging
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from agentcore.canonical import sha256_hex
from agentcore.ids import new_id
from runs import listing, services
from runs.listing import RunFilter
from runs.models import Run
from runs.once import Within
from runs.refusals import Refused, invalid
from runs.rest_models import BulkItem, BulkOperation
from runs.selectors import BEGUN, Begun, database_clock
from runs.starting import Caller

log = logging.getLogger(__name__)

MOST = 1000
"""Runs of one operation."""
CONFIRM_WITHIN = timedelta(minutes=30)

Act = Callable[[Caller, Run, str, Within], object]


def _cancel(caller: Caller, run: Run, reason: str, within: Within) -> object:
    actor = caller.principal
    return services.cancel_run(run_id=run.id, actor=actor, reason=reason, within=within)


def _pause(caller: Caller, run: Run, reason: str, within: Within) -> object:
    actor = caller.principal
    return services.pause_run(run_id=run.id, actor=actor, reason=reason, within=within)


def _resume(caller: Caller, run: Run, reason: str, within: Within) -> object:
    actor = caller.principal
    return services.resume_run(run_id=run.id, actor=actor, reason=reason, within=within)


def _retry(caller: Caller, run: Run, reason: str, within: Within) -> object:  # noqa: ARG001
    return services.retry_run(caller=caller, run=run, within=within)


VERBS: dict[str, tuple[str, Act]] = {
    "cancel": ("runs:write", _cancel),
    "pause": ("runs:operate", _pause),
    "resume": ("runs:operate", _resume),
    "retry": ("runs:operate", _retry),
}
"""Verb -> the scope that its single form needs, and what does it."""


def token_of(operation_id: UUID) -> str:
    """What starts an operation. It is made anew from the installation's key and stored nowhere,
    also not in the answer that is kept for a repetition of the request."""
    text = f"agentcore/bulk/1\n{operation_id.hex}"
    made = hmac.digest(settings.AGENTCORE_OPTIONS.event_key, text.encode(), "sha256")
    return base64.urlsafe_b64encode(made[:18]).decode()


def make_bulk(
    *,
    caller: Caller,
    verb: str,
    wanted: RunFilter,
    shown_filter: dict[str, Any],
    reason: str,
    dry_run: bool,
    within: Within | None = None,
) -> BulkOperation:
    """Freeze the runs that fit. Raises `Refused` (scope_missing, invalid_input).

    `shown_filter` is the filter as it was sent, kept for the record.
    """
    check_scope(caller, verb)
    operation_id = new_id()
    with transaction.atomic(durable=True):
        if within:
            within.begin()
        rows = listing.narrowed(listing.runs_seen_by(caller), wanted).order_by("id")
        ids = list(rows.values_list("id", flat=True)[: MOST + 1])
        if len(ids) > MOST:
            raise invalid("/filter", "too_many", f"fits more than {MOST} runs. Narrow it.")
        now = database_clock()
        operation = BulkOperation.objects.create(
            id=operation_id,
            tenant=caller.tenant,
            verb=verb,
            filter=shown_filter,
            reason=reason,
            status="PREVIEW" if dry_run else "READY",
            total=len(ids),
            confirm_sha256="" if dry_run else sha256_hex(token_of(operation_id)),
            created_by=caller.principal,
            scopes=list(caller.scopes),
            created_at=now,
            expires_at=now + CONFIRM_WITHIN,
        )
        BulkItem.objects.bulk_create(
            BulkItem(operation=operation, ordinal=n, run_id=run_id) for n, run_id in enumerate(ids)
        )
        if within:
            within.end(operation, run_id=None)
    return operation


def check_narrow(wanted: RunFilter) -> None:
    """Refuse a filter that narrows nothing: every run of the tenant is hardly meant."""
    if wanted == RunFilter():
        raise invalid("/filter", "empty", "names nothing. Say at least a status.")


def start_bulk(
    *,
    caller: Caller,
    operation_id: UUID,
    token: str,
    count: int,
    within: Within | None = None,
) -> BulkOperation | None:
    """Start an operation; None when the caller has none such.

    Raises `Refused` (scope_missing, bulk_not_ready, invalid_input for a wrong token or count).
    """
    with transaction.atomic(durable=True):
        if within:
            within.begin()
        row = _locked(caller, operation_id)
        if row is None:
            return None
        check_scope(caller, row.verb)
        now = database_clock()
        if row.status != "READY" or row.expires_at <= now:
            why = "its time to be confirmed is over" if row.status == "READY" else row.status
            raise Refused(
                code="bulk_not_ready",
                detail=f"It cannot be started: {why.lower()}. Make a new one.",
            )
        if not secrets.compare_digest(sha256_hex(token), row.confirm_sha256):
            raise invalid("/confirm_token", "wrong_token", "is not that of this operation.")
        if count != row.total:
            raise invalid("/confirm_count", "wrong_count", f"the operation has {row.total} runs.")
        started = {"started_by": caller.principal, "scopes": list(caller.scopes)}
        _save(row, status="RUNNING", started_at=now, **started)
        if within:
            within.end(row, run_id=None)
    return row


def abort_bulk(
    *, caller: Caller, operation_id: UUID, within: Within | None = None
) -> BulkOperation | None:
    """Stop an operation before its next run; None when the caller has none such.

    One that is over stays as it is.
    """
    with transaction.atomic(durable=True):
        if within:
            within.begin()
        row = _locked(caller, operation_id)
        if row is None:
            return None
        if row.status in ("READY", "RUNNING"):
            _save(row, status="ABORTED", ended_at=database_clock())
        if within:
            within.end(row, run_id=None)
    return row


def check_scope(caller: Caller, verb: str) -> None:
    """A bulk operation needs the scope of its verb, too."""
    scope = VERBS[verb][0]
    if scope not in caller.scopes:
        raise Refused(code="scope_missing", detail=f"{verb} needs the scope {scope} as well.")


def run_due_bulk(*, limit: int = 50) -> int:
    """Do up to `limit` runs of operations that are running; how many were done."""
    done = 0
    while done < limit and _do_next():
        done += 1
    return done


class _NotMine(Exception):  # noqa: N818  (not a fault)
    """Another process has done the item, or the operation was aborted."""


class _Noted:
    """`Within` of an item's use case: taken under lock, and noted, in that transaction."""

    def __init__(self, item: BulkItem) -> None:
        self._item = item

    def begin(self) -> Begun:
        with connection.cursor() as cursor:
            cursor.execute(_TAKE, [self._item.pk])
            row = cursor.fetchone()
        if row is None:
            raise _NotMine
        return Begun(*row)

    def end(self, outcome: Any, *, run_id: UUID | None) -> None:  # noqa: ARG002  (as `Within`)
        _note(self._item, outcome="DONE")


_TAKE = f"""
    SELECT {BEGUN} FROM runs_bulkitem i JOIN runs_bulkoperation o ON o.id = i.operation_id
    WHERE i.id = %s AND i.outcome = 'PENDING' AND o.status = 'RUNNING'
    FOR NO KEY UPDATE OF i FOR SHARE OF o
"""  # noqa: S608  (a text of ours)


def _do_next() -> bool:
    """Do one item; False when nothing is left that another process is not at."""
    with transaction.atomic(durable=True):
        operations = BulkOperation.objects.select_for_update(no_key=True, skip_locked=True)
        operation = operations.filter(status="RUNNING").order_by("id").first()
        if operation is None:
            return False
        pending = operation.items.filter(outcome="PENDING").order_by("ordinal")
        item = pending.select_for_update(no_key=True, skip_locked=True).first()
        if item is None and pending.exists():
            return False
        if item is None:
            _save(operation, status="COMPLETED", ended_at=database_clock())
            return True
    try:
        code, detail = _do(operation, item)
    except _NotMine:
        return True
    if code:
        _note(item, outcome="REFUSED", code=code, detail=detail[:300])
    return True


def _do(operation: BulkOperation, item: BulkItem) -> tuple[str, str]:
    """(code, detail) of a refusal, ("", "") when it was done. Raises `_NotMine`."""
    caller = Caller(
        tenant=operation.tenant,
        principal=operation.started_by,
        scopes=tuple(operation.scopes),
    )
    run = listing.run_of(caller=caller, run_id=item.run_id)
    if run is None:
        return "not_found", "the run is not there"
    try:
        VERBS[operation.verb][1](caller, run, operation.reason, _Noted(item))
    except _NotMine:
        raise
    except Refused as refused:
        return refused.code, refused.detail
    except (OperationalError, InterfaceError):
        raise  # it may have been done, and noted: the next pass looks
    except Exception as error:
        log.exception("bulk operation %s, run %s", operation.id, item.run_id)
        return "internal_error", type(error).__name__
    finally:
        if not connection.in_atomic_block:
            connection.close()
    return "", ""


def _note(item: BulkItem, **fields: Any) -> None:
    """Write what became of an item, once."""
    rows = BulkItem.objects.filter(pk=item.pk, outcome="PENDING")
    rows.update(**fields, done_at=database_clock())


def operations_seen_by(caller: Caller) -> QuerySet[BulkOperation]:
    """Those of its tenant; where it is bound to some agents, those with no run of another one."""
    rows = BulkOperation.objects.filter(tenant=caller.tenant)
    if not caller.agents:
        return rows
    items = BulkItem.objects.filter(operation=OuterRef("pk"))
    return rows.exclude(Exists(items.exclude(run__agent_version__name__in=caller.agents)))


def _locked(caller: Caller, operation_id: UUID) -> BulkOperation | None:
    rows = operations_seen_by(caller).select_for_update(no_key=True, of=("self",))
    return rows.filter(id=operation_id).first()


def _save(row: BulkOperation, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(row, name, value)
    row.save(update_fields=list(fields))
