"""Rows of standing approvals, thresholds, switches and anchors, for tests of their rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from approvals.models import StandingApproval
from runs.models import AuditAnchor, AuditEntry, PolicyThreshold, SwitchChange
from tests.runs.rows import NOW, make_agent_version, make_approval, make_vote
from tests.runs.rows import _insert as insert_row


def make_standing(**values: Any) -> StandingApproval:
    """A revoked standing approval; pass `revoked_at=None, revoked_by=""` for a live one."""
    defaults = {
        "tenant": "acme",
        "tool": "refund_desk.submit_refund",
        "tool_version": "1",
        "max_uses": 5,
        "uses": 2,
        "expires_at": NOW + timedelta(days=30),
        "granted_by": "user:grace",
        "reason": "small refunds",
        "created_at": NOW,
        "revoked_at": NOW,
        "revoked_by": "user:olga",
        "revoke_reason": "too many",
    }
    return insert_row(StandingApproval, defaults, values)


def make_threshold(**values: Any) -> PolicyThreshold:
    """A retired threshold."""
    defaults = {
        "tool": "refund_desk.submit_refund",
        "argument": "amount",
        "op": ">",
        "value": "10.00 EUR",
        "ttl_seconds": 60,
        "reason": "audit",
        "created_by": "user:olga",
        "created_at": NOW,
        "retired_at": NOW,
        "retired_by": "user:olga",
        "retire_reason": "done",
    }
    return insert_row(PolicyThreshold, defaults, values)


def make_switch_change(**values: Any) -> SwitchChange:
    defaults = {
        "kind": "TOOL",
        "name": "refund_desk.submit_refund",
        "is_off": True,
        "reason": "incident",
        "changed_by": "user:olga",
        "created_at": NOW,
    }
    return insert_row(SwitchChange, defaults, values)


def make_anchor(**values: Any) -> AuditAnchor:
    defaults = {
        "number": 1,
        "count": 1,
        "entries_sha256": "e" * 64,
        "hash": "a" * 64,
        "created_at": NOW,
    }
    return insert_row(AuditAnchor, defaults, values)


def make_audit_entry(**values: Any) -> AuditEntry:
    defaults = {"run_id": uuid4(), "seq": 1, "hash": "h" * 64, "created_at": NOW}
    return insert_row(AuditEntry, defaults, {"anchor": make_anchor(), **values})


ALONE: dict[str, Callable[[], Any]] = {
    "approvals_approval": make_approval,
    "approvals_approvalvote": lambda: make_vote(make_approval()),
    "approvals_standingapproval": make_standing,
    "runs_agentversion": make_agent_version,
    "runs_policythreshold": make_threshold,
    "runs_switchchange": make_switch_change,
    "runs_auditanchor": make_anchor,
    "runs_auditentry": make_audit_entry,
}
"""Tables whose rows need no run."""
