"""Before a write: what it would do (precheck), and a person's word where the policy asks."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from agentcore import canonical
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.policy import Verdict
from agentcore.values import AttemptKind, OutcomeKind
from approvals import records
from approvals.errors import StaleApproval
from approvals.models import Approval
from runs import journal, keys
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal
from runs.standing import answering
from runs.steps import bound, order
from runs.steps.base import ToolRequest, context_for
from runs.steps.bound import Breach
from runs.steps.judging import has_read_strangers, judge_again
from runs.transitions import Draft, StaleDraft
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
    verdict = judge_again(view, draft, action, spec)
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
        if view.run.dry_run:
            order.void_for_dry_run(draft, action, asks=True)
            return
        repeat = standing.owner if isinstance(standing, keys.Repeat) else None
    _ask(view, draft, action, verdict, repeat)


def request_repeat(
    view: View,
    draft: Draft,
    action: ActionJournal,
    *,
    spec: ToolSpec,
    owner: KeyOwner,
    verdict: Verdict,
) -> None:
    """READY -> AWAITING_APPROVAL: it was done before, and a person may allow it once more."""
    rule = spec.approval
    asked = Verdict(
        kind="ASK",
        rule=f"repeat of {owner.action_id}",
        version=verdict.version,
        reason="the same intent was done before",
        role=verdict.role or rule.role,
        count=max(rule.count, verdict.count, 1),
        ttl=verdict.ttl or rule.ttl,
        high_risk=verdict.high_risk,
    )
    _ask(view, draft, action, asked, owner)


def ask_late(view: View, draft: Draft, action: ActionJournal, verdict: Verdict) -> bool:
    """READY -> AWAITING_APPROVAL: the policy asks now, and did not when the action was judged.

    True: a standing approval has answered, and the action goes on.
    """
    return _ask(view, draft, action, verdict, None)


def renew(
    view: View, draft: Draft, action: ActionJournal, verdict: Verdict, breach: Breach
) -> bool:
    """An approval that does not hold any more: ask anew with the preview of this moment, at most
    `MAX_RENEWALS` times. True: nobody needs to be asked now, and the action goes on.
    """
    before = bound.end(view, draft, action, breach)
    repeats = before is not None and keys.REPEAT in (before.impact or {})
    if verdict.kind == "ALLOW" and not repeats:
        draft.set_action(action, approval_id=None)
        return True
    if before is None or before.renewal >= bound.MAX_RENEWALS:
        draft.move_action(action, A.EXPIRED, reason=breach.reason, detail=breach.detail)
        return False
    if verdict.kind == "ALLOW":  # what was asked is the repeat: under the same terms as before
        verdict = replace(verdict, rule=before.rule, role=before.role, count=before.required_count)
    return _ask(view, draft, action, verdict, None, before=before)


def _ask(
    view: View,
    draft: Draft,
    action: ActionJournal,
    verdict: Verdict,
    repeat: KeyOwner | None,
    *,
    before: Approval | None = None,
) -> bool:
    """One question; whether a standing approval has answered it at once."""
    approval = _question(view, draft, action, verdict, repeat=repeat, before=before)
    terms: dict[str, Any] = {
        "approval_id": approval.id,
        "bound_version": approval.resource_version,
    }
    draft.log(object="approval", id=str(approval.id), to="PENDING", cause=approval.rule)
    standing = None
    if keys.REPEAT not in (approval.impact or {}):
        untrusted = has_read_strangers(view, before=action.turn)
        standing = answering(view, action, verdict, approval, untrusted=untrusted)
    if standing is None:
        view.approvals[approval.id] = approval
        draft.also(partial(records.insert_pending, [approval]))
        draft.move_action(action, A.AWAITING_APPROVAL, **terms)
        return False
    approval.standing = standing.id
    answered = copy(approval)
    answered.state = ApprovalState.APPROVED
    view.approvals[approval.id] = answered
    draft.also(partial(_answer, approval, standing.id))
    cause = f"standing approval {standing.id} of {standing.granted_by}"
    draft.log(object="approval", id=str(approval.id), to="APPROVED", cause=cause)
    if action.state == A.READY:
        draft.set_action(action, **terms)
    else:
        draft.move_action(action, A.READY, **terms)
    return True


def _answer(approval: Approval, standing_id: UUID) -> None:
    """The question, and its answer from beforehand. Raises `StaleDraft` when that has ended."""
    if not records.use_standing(standing_id=standing_id):
        raise StaleDraft(f"standing approval {standing_id} is not usable any more")
    records.insert_pending([approval])
    try:
        records.approve(approval=copy(approval))
    except StaleApproval as error:
        raise StaleDraft(error.message) from error


def _question(
    view: View,
    draft: Draft,
    action: ActionJournal,
    verdict: Verdict,
    *,
    repeat: KeyOwner | None,
    before: Approval | None,
) -> Approval:
    """Everything that a person is asked, and that the answer is bound to."""
    impact = action.precheck
    earlier = (before.impact or {}) if before is not None else {}
    if repeat is not None:
        impact = {**(impact or {}), keys.REPEAT: keys.repeat_note(repeat)}
    elif keys.REPEAT in earlier:
        impact = {**(impact or {}), keys.REPEAT: earlier[keys.REPEAT]}
    spec = spec_of(action)
    return Approval(
        id=new_id(),
        tenant=action.tenant,
        run_id=view.run.id,
        action_id=action.id,
        state=ApprovalState.PENDING,
        tool=action.tool,
        tool_version=action.tool_version,
        tool_digest=bound.tool_digest(spec) if spec is not None else "",
        policy_version=verdict.version,
        rule=verdict.rule[:200],
        policy_reason=canonical.clean_text(verdict.reason, 1000),
        high_risk=verdict.high_risk,
        arguments=action.arguments,
        params_hash=action.params_hash,
        resource_key=action.resource_key,
        resource_version=_seen_version(action),
        impact=impact,
        requester=view.run.principal,
        editor=action.edited_by,
        renewal=before.renewal + 1 if before is not None else 0,
        supersedes=before.id if before is not None else _edited_from(view, action),
        role=verdict.role[:200],
        required_count=max(verdict.count, 1),
        expires_at=draft.now + (verdict.ttl or settings.AGENTCORE_OPTIONS.approval_ttl),
        created_at=draft.now,
    )


def _edited_from(view: View, action: ActionJournal) -> UUID | None:
    """The approval of the action before its edit."""
    place = (action.turn, action.ordinal, action.edit - 1)
    rows = (a for a in view.actions if (a.turn, a.ordinal, a.edit) == place)
    return next((row.approval_id for row in rows), None)


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
