"""The start of an action: everything is checked again at the moment of effect, then one attempt.

What cannot be checked before the transaction is a guard inside it: the approval is consumed and
the intent taken by conditional statements, and an older answer rolls the start back.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.values import AttemptKind
from approvals import records
from runs import journal
from runs.models import ActionJournal, Incident
from runs.steps import asking
from runs.steps.base import ToolRequest, context_for
from runs.steps.judging import judge_again
from runs.transitions import Draft, StaleDraft
from runs.view import View, is_write, spec_of
from tools.spec import ToolSpec

A = ActionState


def start(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """Draft READY -> RUNNING and describe the call; None when the action was refused instead."""
    spec = spec_of(action)
    if spec is None:
        deny(draft, action, "TOOL_CHANGED", "the tool is not registered in this version any more")
        return None
    if judge_again(view, draft, action, spec) is None:
        return None
    if is_write(action) and not _may_write(view, draft, action, spec):
        return None
    draft.move_action(
        action, A.RUNNING, fence=view.run.fence, first_sent_at=action.first_sent_at or draft.now
    )
    return _attempt(view, draft, action, spec)


def _may_write(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> bool:
    """The checks that only a write needs; refuses the action where one fails."""
    if spec.preview_fn is not None:
        refusal = asking.refusal_of(action)
        if refusal is not None:
            deny(draft, action, *refusal)
            _void_approval(view, draft, action)
            return False
    owner, _ = view.owner_of(action)
    if owner is not None:
        _yield_to(view, draft, action, owner.action, owner.fingerprint)
        return False
    if _too_many(view, action, spec):
        deny(draft, action, "CALL_LIMIT", f"at most {spec.max_calls_per_run} calls in one run")
        return False
    journal.take_key(view, draft, action)
    approval = view.approval_of(action)
    if approval is not None:
        draft.also(partial(_consume, approval.id, action.params_hash))
        approval.state = ApprovalState.CONSUMED
        draft.log(object="approval", id=str(approval.id), to="CONSUMED", cause="its action starts")
    return True


def _consume(approval_id: UUID, params_hash: str) -> None:
    if not records.consume(approval_id=approval_id, params_hash=params_hash):
        raise StaleDraft(f"approval {approval_id} is not usable any more")


def _void_approval(view: View, draft: Draft, action: ActionJournal) -> None:
    approval = view.approval_of(action)
    if approval is None or approval.state != ApprovalState.APPROVED:
        return
    draft.also(partial(records.void, (approval.id,)))
    approval.state = ApprovalState.VOIDED
    draft.log(object="approval", id=str(approval.id), to="VOIDED", cause="refused at execution")


def _yield_to(
    view: View,
    draft: Draft,
    action: ActionJournal,
    owner: ActionJournal,
    fingerprint: str,
) -> None:
    """Another action owns this intent: a duplicate, or the same key with other arguments."""
    _void_approval(view, draft, action)
    if fingerprint == action.fingerprint:
        draft.move_action(action, A.VOIDED, reason="DUPLICATE", same_as_id=owner.id)
        return
    detail = f"action {owner.id} did this with other arguments"
    deny(draft, action, "KEY_CONFLICT", detail)
    draft.set_action(action, same_as_id=owner.id)
    draft.add(
        Incident(
            run_id=view.run.id,
            action=action,
            kind="KEY_CONFLICT",
            detail=detail,
            created_at=draft.now,
        )
    )


def _too_many(view: View, action: ActionJournal, spec: ToolSpec) -> bool:
    if spec.max_calls_per_run is None:
        return False
    started = [a for a in view.actions if a.tool == action.tool and a.idempotency_key]
    return len(started) >= spec.max_calls_per_run


def try_again(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """The next attempt of a RUNNING action whose attempts so far had no effect."""
    spec = spec_of(action)
    attempts = view.attempts_of(action)
    if spec is None or len(attempts) >= spec.retry.max_attempts:
        last = attempts[-1]
        journal.fail_action(
            draft,
            action,
            error_class=last.error_class or "attempts_used",
            detail=last.detail or f"{len(attempts)} attempts without a result",
        )
        return None
    draft.set_action(action, fence=view.run.fence)
    return _attempt(view, draft, action, spec)


def resend(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    """UNKNOWN -> RUNNING: the same key and bytes once more, for a downstream that deduplicates."""
    draft.move_action(action, A.RUNNING, fence=view.run.fence, next_probe_at=None)
    return _attempt(view, draft, action, spec)


def _attempt(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    attempt = journal.add_attempt(
        view, draft, kind=AttemptKind.TOOL, action=action, timeout=spec.timeout
    )
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, AttemptKind.TOOL, spec, context, action.arguments or {})


def deny(draft: Draft, action: ActionJournal, reason: str, detail: str) -> None:
    """READY -> DENIED, refused at execution."""
    draft.move_action(action, A.DENIED, reason=reason, detail=detail[:2000])
