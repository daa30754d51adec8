"""The one door for `Approval.state` and for votes.

Every change is one guarded UPDATE whose row count is checked, inside the transaction of the caller,
who holds the run row and the action row (lock order: Run, ActionJournal, Approval). The database
clock decides what is expired: it is read when the statement runs, not when the transaction began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models.functions import Now

from agentcore.lifecycle import ApprovalState
from approvals.errors import ApprovalExpired, StaleApproval
from approvals.models import Approval, ApprovalVote, StandingApproval

Validation = dict[str, Any]
"""What the check at the start of the action came to: ok, reason, detail, at."""


def insert_pending(rows: list[Approval]) -> None:
    """Insert questions as PENDING, in one statement. Raises ValueError for another state."""
    _in_transaction()
    for row in rows:
        if row.state != ApprovalState.PENDING:
            raise ValueError(f"a new approval is PENDING, not {row.state}")
    if rows:
        Approval.objects.bulk_create(rows)


def request(
    *,
    tenant: str,
    run_id: UUID,
    action_id: UUID,
    tool: str,
    tool_version: str,
    policy_version: str,
    rule: str,
    arguments: dict[str, Any],
    params_hash: str,
    requester: str,
    now: datetime,
    ttl: timedelta,
    resource_key: str = "",
    resource_version: str = "",
    impact: dict[str, Any] | None = None,
    role: str = "",
    required_count: int = 1,
    **more: Any,
) -> Approval:
    """Ask a person about one action, for this hash only and until `now + ttl` (database clock).

    `more`: further columns by name. Raises IntegrityError when the action already has a live
    approval.
    """
    row = Approval(
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        tool=tool,
        tool_version=tool_version,
        policy_version=policy_version,
        rule=rule,
        arguments=arguments,
        params_hash=params_hash,
        resource_key=resource_key,
        resource_version=resource_version,
        impact=impact,
        requester=requester,
        role=role,
        required_count=required_count,
        created_at=now,
        expires_at=now + ttl,
        **more,
    )
    insert_pending([row])
    return row


def record_vote(
    *, approval: Approval, voter: str, decision: str, reason: str, now: datetime
) -> ApprovalVote:
    """Store what one person said about this hash. Raises IntegrityError for a second vote."""
    _in_transaction()
    return ApprovalVote.objects.create(
        approval=approval,
        voter=voter,
        decision=decision,
        reason=reason,
        params_hash=approval.params_hash,
        created_at=now,
    )


def approve(*, approval: Approval) -> None:
    """PENDING -> APPROVED, in time and for the hash of `approval`, which is changed in memory too.

    Raises StaleApproval when the guard fails; nothing is written then.
    """
    _decided(approval, ApprovalState.APPROVED)


def reject(*, approval: Approval) -> None:
    """PENDING -> REJECTED, under the same guard as `approve`."""
    _decided(approval, ApprovalState.REJECTED)


def consume(*, approval_id: UUID, params_hash: str, validation: Validation | None = None) -> bool:
    """APPROVED -> CONSUMED, once, in time, for this hash. False: the action must not start."""
    _in_transaction()
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE approvals_approval SET state = 'CONSUMED', consumed_at = clock_timestamp(),
                 validation = COALESCE(validation, %s::jsonb)
               WHERE id = %s AND state = 'APPROVED' AND params_hash = %s
                 AND expires_at > clock_timestamp()""",
            [_json(validation), approval_id, params_hash],
        )
        return bool(cursor.rowcount == 1)


def expire(ids: Iterable[UUID], *, validation: Validation | None = None) -> set[UUID]:
    """PENDING or APPROVED -> EXPIRED where the time is over; the ids that moved."""
    return _moved(
        """UPDATE approvals_approval SET state = 'EXPIRED',
             validation = COALESCE(validation, %s::jsonb)
           WHERE id = ANY(%s) AND state IN ('PENDING', 'APPROVED')
             AND expires_at <= clock_timestamp()
           RETURNING id""",
        ids,
        validation,
    )


def void(ids: Iterable[UUID], *, validation: Validation | None = None) -> set[UUID]:
    """PENDING or APPROVED -> VOIDED (cancelled, edited, or something bound changed); what moved."""
    return _moved(
        """UPDATE approvals_approval SET state = 'VOIDED',
             validation = COALESCE(validation, %s::jsonb)
           WHERE id = ANY(%s) AND state IN ('PENDING', 'APPROVED')
           RETURNING id""",
        ids,
        validation,
    )


# --- claims: who looks at a question, so that two people need not --------------------------------


def claim(*, approval_id: UUID, by: str, span: timedelta) -> datetime | None:
    """Reserve an open question until the end of `span`; None when somebody else holds it, or it
    is no longer open. The own claim is renewed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE approvals_approval SET claimed_by = %s,
                 claimed_until = clock_timestamp() + make_interval(secs => %s)
               WHERE id = %s AND state = 'PENDING'
                 AND (claimed_by IN ('', %s) OR claimed_until IS NULL
                      OR claimed_until <= clock_timestamp())
               RETURNING claimed_until""",
            [by, span.total_seconds(), approval_id, by],
        )
        row = cursor.fetchone()
    return row[0] if row else None


def release(*, approval_id: UUID, by: str) -> bool:
    """Give the own claim back; False when there was none."""
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE approvals_approval SET claimed_by = '', claimed_until = NULL
               WHERE id = %s AND claimed_by = %s""",
            [approval_id, by],
        )
        return bool(cursor.rowcount == 1)


# --- standing approvals ----------------------------------------------------------------------


def use_standing(*, standing_id: UUID) -> bool:
    """Count one use; False when it was revoked, has ended or is used up."""
    _in_transaction()
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE approvals_standingapproval SET uses = uses + 1
               WHERE id = %s AND revoked_at IS NULL AND expires_at > clock_timestamp()
                 AND (max_uses IS NULL OR uses < max_uses)""",
            [standing_id],
        )
        return bool(cursor.rowcount == 1)


def revoke_standing(*, standing_id: UUID, by: str, reason: str) -> bool:
    """End a standing approval, once; False when it had ended so before."""
    return bool(
        StandingApproval.objects.filter(pk=standing_id, revoked_at=None).update(
            revoked_at=Now(), revoked_by=by, revoke_reason=reason
        )
        == 1
    )


def _decided(approval: Approval, state: ApprovalState) -> None:
    _in_transaction()
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE approvals_approval SET state = %s, decided_at = clock_timestamp()
               WHERE id = %s AND state = 'PENDING' AND params_hash = %s
                 AND expires_at > clock_timestamp()
               RETURNING decided_at""",
            [state, approval.pk, approval.params_hash],
        )
        row = cursor.fetchone()
        if row is None:
            raise _why_not(cursor, approval)
    approval.state, approval.decided_at = state, row[0]


def _why_not(cursor: CursorWrapper, approval: Approval) -> StaleApproval:
    """The time may have run out since the caller looked."""
    cursor.execute(
        """SELECT 1 FROM approvals_approval
           WHERE id = %s AND state = 'PENDING' AND expires_at <= clock_timestamp()""",
        [approval.pk],
    )
    if cursor.fetchone():
        ended = f"{approval.expires_at:%H:%M:%S}"
        return ApprovalExpired(f"This ran out of time at {ended} UTC. Nothing will be sent.")
    return StaleApproval(
        "This question is no longer open: it was decided, withdrawn or ran out of time. "
        "Load the page again."
    )


def _moved(sql: str, ids: Iterable[UUID], validation: Validation | None) -> set[UUID]:
    _in_transaction()
    wanted = sorted(ids)
    if not wanted:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(sql, [_json(validation), wanted])
        return {row[0] for row in cursor.fetchall()}


def _json(validation: Validation | None) -> str | None:
    return None if validation is None else json.dumps(validation)


def _in_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError(
            "approvals.records writes inside the transaction of its caller; open one and lock the "
            "run first (runs.transitions.locked_run)"
        )
