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
from runs import journal, keys
from runs.models import ActionJournal
from runs.steps import asking, order
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
    if _too_many(view, action, spec):
        deny(draft, action, "CALL_LIMIT", f"at most {spec.max_calls_per_run} calls in one run")
        order.void_approval(view, draft, action, cause="refused at execution")
        return None
    if is_write(action) and not _may_write(view, draft, action, spec):
        return None
    draft.move_action(
        action, A.RUNNING, fence=view.run.fence, first_sent_at=action.first_sent_at or draft.now
    )
    return _attempt(view, draft, action, spec)


def _may_write(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> bool:
    """The checks that only a write needs; refuses, or asks a person, where one says no."""
    if spec.preview_fn is not None:
        refusal = asking.refusal_of(action) or asking.snapshot_refusal(view, action)
        if refusal is not None:
            deny(draft, action, *refusal)
            order.void_approval(view, draft, action, cause="refused at execution")
            return False
    standing = keys.standing_of(view, action, spec, draft.now)
    match standing:
        case keys.Taken(owner=owner):
            order.void_approval(view, draft, action, cause="refused at execution")
            keys.yield_to(draft, action, owner)
            return False
        case keys.Repeat(owner=owner):
            order.void_approval(view, draft, action, cause="it does not name the repeat")
            asking.request_repeat(view, draft, action, spec, owner)
            return False
        case keys.Free():
            keys.take(view, draft, action=action, free=standing)
    asking.bind_version(draft, action)
    approval = view.approval_of(action)
    if approval is not None:
        draft.also(partial(_consume, approval.id, action.params_hash))
        approval.state = ApprovalState.CONSUMED
        draft.log(object="approval", id=str(approval.id), to="CONSUMED", cause="its action starts")
    return True


def _consume(approval_id: UUID, params_hash: str) -> None:
    if not records.consume(approval_id=approval_id, params_hash=params_hash):
        raise StaleDraft(f"approval {approval_id} is not usable any more")


def _too_many(view: View, action: ActionJournal, spec: ToolSpec) -> bool:
    if spec.max_calls_per_run is None:
        return False
    started = [a for a in view.actions if a.tool == action.tool and a.first_sent_at is not None]
    return len(started) >= spec.max_calls_per_run


def try_again(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """The next attempt of a RUNNING action: the earlier ones had no effect, or a person said so.

    The tries are counted only while nothing can have happened: a write with an ambiguous attempt
    is never FAILED by their number. A lost attempt is none: a call that kills its process ends
    the run as poison.
    """
    spec = spec_of(action)
    attempts = view.attempts_of(action)
    ambiguous = journal.joined_state(action, attempts) != A.FAILED
    if spec is None and ambiguous:
        journal.to_unknown(
            draft, action, error_class="tool_changed", detail="", sends=len(attempts)
        )
        return None
    tries = sum(a.lost_at is None for a in attempts)  # dead processes are counted by the run
    if spec is None or (not ambiguous and tries >= journal.max_attempts(action)):
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
    """To RUNNING: the same key and bytes once more, as its contract or two people allow."""
    draft.move_action(action, A.RUNNING, reason="", fence=view.run.fence, next_probe_at=None)
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
