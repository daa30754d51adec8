"""From a proposed call to a verdict: valid, meaningful, authorised; three gates, then policy."""

from __future__ import annotations

import json
from functools import partial
from uuid import UUID

from agentcore import canonical, policy
from agentcore.authorization import missing_scopes
from agentcore.grounding import ungrounded
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, ApprovalState
from agentcore.policy import Verdict
from agentcore.values import Effect, NoContract, ToolCall
from approvals import records
from runs import guards
from runs.contexts import observation_of
from runs.models import ActionJournal
from runs.steps.base import context_for
from runs.transitions import Draft, StaleDraft
from runs.view import View, is_write
from tools import registry
from tools.invocation import InvalidArguments, Judgement, PolicyError, judge, parse_arguments
from tools.spec import ToolSpec

A = ActionState


def propose(view: View, draft: Draft, *, call: ToolCall, ordinal: int) -> None:
    """One durable action for one call, with its verdict; a refused call is an action too."""
    spec = _offered(view, call.name)
    action = _new_action(view, draft, call, ordinal, spec)
    if spec is None:
        _insert(view, draft, action)
        _deny(draft, action, "UNKNOWN_TOOL", f"there is no tool {call.name[:80]!r}")
        return
    try:
        arguments = parse_arguments(spec=spec, raw=call.arguments)
    except InvalidArguments as error:
        _insert(view, draft, action)
        _deny(draft, action, "INVALID_ARGUMENTS", f"{error.code}: {error.detail}")
        return
    action.arguments = arguments
    action.params_hash = canonical.params_hash(
        tool=spec.name, tool_version=spec.version, tenant=view.run.tenant, params=arguments
    )
    action.fingerprint = canonical.fingerprint(
        tool=spec.name, contract_version=spec.version, tenant=view.run.tenant, params=arguments
    )
    try:
        judgement = judge(spec=spec, context=context_for(view, action), arguments=arguments)
    except PolicyError as error:
        _insert(view, draft, action)
        _deny(draft, action, "POLICY_ERROR", str(error))
        return
    _bind(view, action, spec, judgement)
    _insert(view, draft, action)
    view.judgements[action.id] = judgement
    _apply(draft, action, verdict_for(view, action, spec, judgement))


def _offered(view: View, wire_name: str) -> ToolSpec | None:
    """The tool the agent offers under this name, at the version the run was given."""
    for offered in view.agent.spec["tools"]:
        if offered["function"]["name"] == wire_name:
            spec = registry.get(offered["name"])
            return spec if spec is not None and spec.version == offered["version"] else None
    return None


def _new_action(
    view: View, draft: Draft, call: ToolCall, ordinal: int, spec: ToolSpec | None
) -> ActionJournal:
    return ActionJournal(
        id=new_id(),
        run_id=view.run.id,
        tenant=view.run.tenant,
        turn=view.run.turn,
        ordinal=ordinal,
        call_id=canonical.clean_text(call.call_id)[:200],
        tool=spec.name if spec else canonical.clean_text(call.name)[:120],
        tool_version=spec.version if spec else "",
        # An unknown tool can do nothing, so it is journaled with the least effect there is.
        effect=spec.effect if spec else Effect.READ,
        contract=(spec.contract.name if spec and spec.contract else ""),
        fence=view.run.fence,
        created_at=draft.now,
    )


def _bind(view: View, action: ActionJournal, spec: ToolSpec, judgement: Judgement) -> None:
    """Resource and business intent: made by code from the trusted run and the arguments."""
    action.resource_key = judgement.resource_key[:200]
    if judgement.identity is None:
        return
    action.intent_key = canonical.intent_key(
        tenant=view.run.tenant,
        tool=spec.name,
        contract_version=spec.version,
        scope=_scope(view, spec),
        identity=judgement.identity,
    )


def _scope(view: View, spec: ToolSpec) -> str:
    """How far one intent reaches: the run's business key, else the run, or the whole tenant."""
    if spec.scope == "tenant":
        return "tenant"
    run = view.run
    first = run.retry_of_id or run.id  # a retry does not do again what was done
    return f"dedupe:{run.dedupe_key}" if run.dedupe_key else f"run:{first}"


def _insert(view: View, draft: Draft, action: ActionJournal) -> None:
    view.actions.append(action)
    draft.add_action(action)


def verdict_for(view: View, action: ActionJournal, spec: ToolSpec, judgement: Judgement) -> Verdict:
    """What the code policy says about this call, for this caller, now."""
    return policy.evaluate(
        tool=spec.name,
        effect=spec.effect,
        contract=spec.contract or NoContract(),
        offered=True,
        missing_scopes=missing_scopes(required=spec.scopes, granted=tuple(view.run.scopes)),
        asks=judgement.asks,
        rule=judgement.rule,
        role=judgement.role,
        count=judgement.count,
        ttl=judgement.ttl,
        guardrail=guards.check_action(view, action),
        ungrounded=_guessed(view, action, spec),
    )


def _guessed(view: View, action: ActionJournal, spec: ToolSpec) -> tuple[str, ...]:
    """The declared identifiers of the call that neither the input nor an observation has."""
    if not spec.grounded:
        return ()
    seen = [observation_of(row) for row in view.in_state(A.SUCCEEDED) if row.observation]
    given = json.dumps(view.run.input, ensure_ascii=False)
    return ungrounded(names=spec.grounded, arguments=action.arguments or {}, sources=[given, *seen])


def _apply(draft: Draft, action: ActionJournal, verdict: Verdict) -> None:
    draft.set_action(
        action,
        policy_verdict=verdict.kind,
        policy_rule=verdict.rule[:200],
        policy_version=verdict.version,
    )
    if verdict.kind == "DENY":
        _deny(draft, action, "POLICY_DENIED", verdict.reason)
    elif verdict.kind == "ALLOW":
        draft.move_action(action, A.READY)


def _deny(draft: Draft, action: ActionJournal, reason: str, detail: str) -> None:
    draft.move_action(action, A.DENIED, reason=reason, detail=canonical.clean_text(detail)[:2000])


def judge_again(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, *, asking: bool = False
) -> Verdict | None:
    """The verdict now; None when it denied the action (drafted).

    `asking`: before an approval is requested; at the start an ASK needs one that exists.
    """
    judgement = view.judgements.pop(action.id, None)
    try:
        judgement = judgement or judge(
            spec=spec, context=context_for(view, action), arguments=action.arguments or {}
        )
    except PolicyError as error:
        _deny(draft, action, "POLICY_ERROR", str(error))
        return None
    verdict = verdict_for(view, action, spec, judgement)
    if verdict.kind == "DENY":
        _deny(draft, action, "POLICY_DENIED", verdict.reason)
        return None
    if verdict.kind == "ASK" and action.approval_id is None and not asking:
        _deny(draft, action, "POLICY_CHANGED", "the policy now asks for an approval")
        return None
    if not asking and not is_write(action):
        _use_approval_of_read(view, draft, action)
    return verdict


def _use_approval_of_read(view: View, draft: Draft, action: ActionJournal) -> None:
    """A read that a person was asked about (its guardrail broke) uses up that answer."""
    approval = view.approval_of(action)
    if approval is not None and approval.state == ApprovalState.APPROVED:
        draft.also(partial(_consume, approval.id, action.params_hash))
        approval.state = ApprovalState.CONSUMED
        draft.log(object="approval", id=str(approval.id), to="CONSUMED", cause="its action starts")


def _consume(approval_id: UUID, params_hash: str) -> None:
    if not records.consume(approval_id=approval_id, params_hash=params_hash):
        raise StaleDraft(f"approval {approval_id} is not usable any more")
