"""Before a write: what it would do (precheck), and a person's word where the policy asks."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.conf import settings

from agentcore import canonical
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.values import AttemptKind
from approvals import records
from approvals.models import Approval
from runs import journal
from runs.models import ActionJournal
from runs.steps.base import ToolRequest, context_for
from runs.steps.judging import judge_again
from runs.transitions import Draft
from runs.view import View, spec_of
from tools.spec import ToolSpec

A = ActionState
MAX_PRECHECKS = 3
"""Prechecks of one action without an answer before it is refused."""


def prechecks_due(view: View, draft: Draft) -> list[ToolRequest]:
    """Previews to fetch before a person can be asked."""
    due = []
    for action in view.in_state(A.PROPOSED):
        spec = spec_of(action)
        if spec is None or spec.preview_fn is None or _answered(action):
            continue
        if len(view.attempts_of(action, AttemptKind.PRECHECK)) >= MAX_PRECHECKS:
            _deny(draft, action, "PRECHECK_FAILED", precheck_problem(action))
            continue
        due.append(precheck_request(view, draft, action, spec))
    return due


def precheck_request(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec
) -> ToolRequest:
    """Draft the attempt of one precheck and describe its call."""
    attempt = journal.add_attempt(
        view, draft, kind=AttemptKind.PRECHECK, action=action, timeout=spec.timeout
    )
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, AttemptKind.PRECHECK, spec, context, action.arguments or {})


def request_approvals(view: View, draft: Draft) -> None:
    """One expiring question for each PROPOSED action that the policy asks about."""
    for action in view.in_state(A.PROPOSED):
        spec = spec_of(action)
        if spec is None:
            _deny(draft, action, "TOOL_CHANGED", "the tool is not registered in this version")
            continue
        if spec.preview_fn is not None and not _answered(action):
            continue
        blocks = _blocks(action)
        if blocks:
            _deny(draft, action, "PRECHECK_BLOCKED", "; ".join(blocks))
            continue
        _request(view, draft, action, spec)


def _request(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> None:
    verdict = judge_again(view, draft, action, spec, asking=True)
    if verdict is None:
        return
    if verdict.kind == "ALLOW":
        draft.move_action(action, A.READY)
        return
    ttl = verdict.ttl or settings.AGENTCORE_OPTIONS.approval_ttl
    preview = (action.precheck or {}).get("preview")
    version = (preview or {}).get("version", "")
    approval = Approval(
        id=new_id(),
        tenant=action.tenant,
        run_id=view.run.id,
        action_id=action.id,
        state=ApprovalState.PENDING,
        tool=action.tool,
        tool_version=action.tool_version,
        policy_version=verdict.version,
        rule=verdict.rule,
        arguments=action.arguments,
        params_hash=action.params_hash,
        resource_key=action.resource_key,
        resource_version=version,
        impact=action.precheck,
        requester=view.run.principal,
        role=verdict.role,
        required_count=verdict.count,
        expires_at=draft.now + ttl,
        created_at=draft.now,
    )
    view.approvals[approval.id] = approval
    draft.also(partial(records.insert_pending, [approval]))
    draft.log(object="approval", id=str(approval.id), to="PENDING", cause=verdict.rule)
    draft.move_action(action, A.AWAITING_APPROVAL, approval_id=approval.id, bound_version=version)


def is_fresh(action: ActionJournal, now: datetime) -> bool:
    """Whether the stored precheck may still vouch for the state of the resource."""
    if not _answered(action):
        return False
    age = now - datetime.fromisoformat((action.precheck or {})["at"])
    return age <= timedelta(seconds=settings.AGENTCORE_OPTIONS.precheck_max_age)


def refusal_of(action: ActionJournal) -> tuple[str, str] | None:
    """Why the fresh precheck forbids the write now, as (reason, detail)."""
    blocks = _blocks(action)
    if blocks:
        return "PRECHECK_BLOCKED", "; ".join(blocks)
    seen = ((action.precheck or {}).get("preview") or {}).get("version", "")
    if action.bound_version and seen != action.bound_version:
        what = action.resource_key or action.tool
        detail = f"{what} is now at version {seen or 'unknown'}, not {action.bound_version}"
        return "RESOURCE_CHANGED", f"{detail} as the approval says"
    return None


def precheck_problem(action: ActionJournal) -> str:
    stored = action.precheck or {}
    return f"the precheck gave no answer: {stored.get('error', 'lost')} {stored.get('detail', '')}"


def _answered(action: ActionJournal) -> bool:
    return bool(action.precheck and action.precheck.get("ok"))


def _blocks(action: ActionJournal) -> list[str]:
    preview = (action.precheck or {}).get("preview") or {}
    return [canonical.clean_text(str(text), 300) for text in preview.get("block") or ()]


def _deny(draft: Draft, action: ActionJournal, reason: str, detail: str) -> None:
    draft.move_action(action, A.DENIED, reason=reason, detail=canonical.clean_text(detail)[:2000])
