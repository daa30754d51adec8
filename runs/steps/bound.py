"""What an approval is bound to, compared once more when its action is about to start.

Every difference has a reason of its own, which is stored on the approval. A difference in the
action itself refuses it; one in what the people answered (time, policy, their rights) asks again
with a fresh preview, at most `MAX_RENEWALS` times, then the action has EXPIRED.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from agentcore.canonical import NotCanonical, canonical_json, params_hash, sha256_hex
from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.policy import Verdict
from approvals import records
from approvals.models import Approval
from runs import rights
from runs.models import ActionJournal
from runs.transitions import Draft, StaleDraft
from runs.view import View
from tools.spec import ToolSpec

A = ActionState
MAX_RENEWALS = 2


@dataclass(frozen=True, slots=True)
class Breach:
    """What differs. `renews`: a person may be asked anew."""

    reason: str
    detail: str
    renews: bool = False


def tool_digest(spec: ToolSpec) -> str:
    """What reviewers could rely on in a tool, besides its version: schema, effect, contract."""
    facts = spec.manifest()
    names = ("name", "version", "effect", "contract", "identity", "scope", "approval", "scopes")
    return sha256_hex(canonical_json({n: facts[n] for n in (*names, "function")}))


def content_breach(view: View, action: ActionJournal, spec: ToolSpec) -> Breach | None:
    """How what would run differs from what was approved, before any function is asked about it."""
    approval = view.approval_of(action)
    if approval is None:
        return None
    return _content(view, action, approval) or _tool(approval, spec)


def answer_breach(
    view: View, draft: Draft, action: ActionJournal, verdict: Verdict
) -> Breach | None:
    """Why the answer does not hold any more: policy, time, rights. Reads the rights anew."""
    approval = view.approval_of(action)
    if approval is None:
        return None
    return _policy(approval, verdict) or _people(view, draft, approval)


def _content(view: View, action: ActionJournal, approval: Approval) -> Breach | None:
    if len({approval.tenant, action.tenant, view.run.tenant}) != 1:
        return Breach("TENANT_CHANGED", f"it was approved for the tenant {approval.tenant}")
    try:
        now = params_hash(
            tool=action.tool,
            tool_version=action.tool_version,
            tenant=action.tenant,
            params=action.arguments,
        )
    except NotCanonical:
        now = ""
    if {now, action.params_hash, approval.params_hash} != {approval.params_hash}:
        return Breach("ARGUMENTS_CHANGED", "the arguments are not those that were approved")
    return None


def _tool(approval: Approval, spec: ToolSpec) -> Breach | None:
    if approval.tool_version != spec.version:
        detail = f"version {approval.tool_version} was approved, {spec.version} would run"
        return Breach("TOOL_CHANGED", detail)
    if approval.tool_digest and approval.tool_digest != tool_digest(spec):
        return Breach("TOOL_SCHEMA_CHANGED", "the tool is declared otherwise than when approved")
    return None


def _policy(approval: Approval, verdict: Verdict) -> Breach | None:
    if approval.policy_version != verdict.version:
        detail = f"approved under policy {approval.policy_version}, now it is {verdict.version}"
        return Breach("POLICY_CHANGED", detail, renews=True)
    return None


def _people(view: View, draft: Draft, approval: Approval) -> Breach | None:
    if approval.expires_at <= draft.now:
        detail = f"the approval was good until {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        return Breach("APPROVAL_EXPIRED", detail, renews=True)
    problem = rights.lost(approval=approval, run=view.run)
    if problem:
        word = "APPROVER_LOST_RIGHT" if approval.standing is None else "STANDING_WITHDRAWN"
        return Breach(word, problem, renews=True)
    return None


def validation(draft: Draft, breach: Breach | None) -> dict[str, Any]:
    """What is stored on the approval: what the check came to."""
    if breach is None:
        return {"ok": True, "reason": "", "detail": "", "at": draft.now.isoformat()}
    return {
        "ok": False,
        "reason": breach.reason,
        "detail": breach.detail[:500],
        "at": draft.now.isoformat(),
    }


def use(view: View, draft: Draft, action: ActionJournal) -> None:
    """Draft the single use of the approval as part of the start; guarded again in there."""
    approval = view.approval_of(action)
    if approval is None:
        return
    checked = validation(draft, None)
    draft.also(partial(rights.guard, approval, view.run))
    draft.also(partial(_consume, approval, action.params_hash, checked))
    approval.state, approval.validation = ApprovalState.CONSUMED, checked
    draft.log(object="approval", id=str(approval.id), to="CONSUMED", cause="its action starts")


def _consume(approval: Approval, params_hash: str, checked: dict[str, Any]) -> None:
    done = records.consume(approval_id=approval.id, params_hash=params_hash, validation=checked)
    if not done:
        raise StaleDraft(f"approval {approval.id} is not usable any more")


def end(view: View, draft: Draft, action: ActionJournal, breach: Breach) -> Approval | None:
    """Draft the end of an approval that does not hold: EXPIRED for its time, else VOIDED."""
    approval = view.approval_of(action)
    live = (ApprovalState.PENDING, ApprovalState.APPROVED)
    if approval is None or approval.state not in live:
        return approval
    checked = validation(draft, breach)
    over = breach.reason == "APPROVAL_EXPIRED"
    move = records.expire if over else records.void
    draft.also(partial(move, (approval.id,), validation=checked))
    approval.state = ApprovalState.EXPIRED if over else ApprovalState.VOIDED
    approval.validation = checked
    draft.log(object="approval", id=str(approval.id), to=approval.state, cause=breach.reason)
    return approval
