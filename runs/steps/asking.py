"""Before a write: what it would do (precheck), and a person's word where the policy asks."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.conf import settings

from agentcore import canonical
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.policy import Verdict
from agentcore.values import AttemptKind, OutcomeKind
from approvals import records
from approvals.models import Approval
from runs import journal, keys
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal
from runs.steps.base import ToolRequest, context_for
from runs.steps.judging import judge_again
from runs.transitions import Draft
from runs.view import View, is_write, spec_of
from tools.spec import ToolSpec

A = ActionState
MAX_PRECHECKS = 3
"""Prechecks of one action without an answer before it is refused."""


def prechecks_due(view: View, draft: Draft) -> list[ToolRequest]:
    """Previews to fetch before a person can be asked."""
    due: list[ToolRequest] = []
    for action in view.in_state(A.PROPOSED):
        spec = spec_of(action)
        if spec is None or spec.preview_fn is None or _answered(action):
            continue
        if unanswered(view, action) >= MAX_PRECHECKS:
            _deny(draft, action, "PRECHECK_FAILED", precheck_problem(action))
            continue
        if len(due) >= settings.AGENTCORE_OPTIONS.read_cap:
            break  # a call set has one deadline, so none of it may have to queue
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
        refusal = refusal_of(action) or snapshot_refusal(view, action)
        if spec.preview_fn is not None and refusal is not None:
            _deny(draft, action, *refusal)
            continue
        _request(view, draft, action, spec)


def _request(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> None:
    verdict = judge_again(view, draft, action, spec, asking=True)
    if verdict is None:
        return
    if verdict.kind == "ALLOW":
        draft.move_action(action, A.READY)
        return
    repeat = None
    if is_write(action):
        standing = keys.standing_of(view, action, spec, draft.now)
        if isinstance(standing, keys.Taken):  # nobody is asked about what cannot be done
            keys.yield_to(draft, action, standing.owner)
            return
        repeat = standing.owner if isinstance(standing, keys.Repeat) else None
    _ask(view, draft, action, verdict, repeat)


def request_repeat(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, owner: KeyOwner
) -> None:
    """READY -> AWAITING_APPROVAL: it was done before, and a person may allow it once more."""
    rule = spec.approval
    verdict = Verdict(
        kind="ASK",
        rule=f"repeat of {owner.action_id}",
        version=action.policy_version,
        reason="the same intent was done before",
        role=rule.role,
        count=max(rule.count, 1),
        ttl=rule.ttl,
    )
    _ask(view, draft, action, verdict, owner)


def _ask(
    view: View, draft: Draft, action: ActionJournal, verdict: Verdict, repeat: KeyOwner | None
) -> None:
    ttl = verdict.ttl or settings.AGENTCORE_OPTIONS.approval_ttl
    version = _seen_version(action)
    impact = action.precheck
    if repeat is not None:
        impact = {**(impact or {}), keys.REPEAT: keys.repeat_note(repeat)}
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
        impact=impact,
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


def unanswered(view: View, action: ActionJournal) -> int:
    """Prechecks of this action that came to nothing."""
    tried = view.attempts_of(action, AttemptKind.PRECHECK)
    return sum(attempt.outcome != OutcomeKind.SUCCESS for attempt in tried)


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
    seen = _seen_version(action)
    if action.bound_version and seen != action.bound_version:
        what = action.resource_key or action.tool
        detail = f"{what} is now at version {seen or 'unknown'}, not {action.bound_version}"
        return "RESOURCE_CHANGED", f"{detail} as the approval says"
    return None


def snapshot_refusal(view: View, action: ActionJournal) -> tuple[str, str] | None:
    """Why the arguments rest on another state of the resource than the one the write would meet.

    Compared are the precheck's version and those that the newest reads of the same resource key
    showed the model (`version` in the result of a read that declares a `resource`). A write of this
    run on the resource since then has moved the version itself, so nothing is compared.
    """
    seen = _seen_version(action)
    if not seen or not action.resource_key:
        return None
    same = [a for a in view.in_state(A.SUCCEEDED) if a.resource_key == action.resource_key]
    reads = [a for a in same if not is_write(a) and _read_version(a)]
    if not reads:
        return None
    turn = max(a.turn for a in reads)
    newest = [a for a in reads if a.turn == turn]
    since = min(a.ended_at for a in newest if a.ended_at)
    if any(is_write(a) and a.ended_at and a.ended_at > since for a in same):
        return None
    shown = sorted({_read_version(a) for a in newest})
    if shown == [seen]:
        return None
    detail = f"{action.resource_key} is at version {seen}, it was read at {', '.join(shown)}"
    return "SNAPSHOT_CHANGED", f"{detail}; read it again"


def _read_version(action: ActionJournal) -> str:
    version = action.result.get("version") if isinstance(action.result, dict) else None
    return str(version) if isinstance(version, str | int) else ""


def _seen_version(action: ActionJournal) -> str:
    return str(((action.precheck or {}).get("preview") or {}).get("version", ""))


def bind_version(draft: Draft, action: ActionJournal) -> None:
    """What the write is bound to from its start on, so that each resend has the same condition."""
    version = _seen_version(action)
    if version and not action.bound_version:
        draft.set_action(action, bound_version=version)


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
