"""From a proposed call to a verdict: valid, meaningful, authorised; three gates, then policy."""

from __future__ import annotations

import json

from agentcore import canonical, policy, thresholds
from agentcore.authorization import missing_scopes
from agentcore.children import CONTRACT
from agentcore.grounding import ungrounded
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.policy import Verdict
from agentcore.values import Effect, NoContract, ToolCall
from runs import guards, lineage, sql
from runs.contexts import observation_of
from runs.controls import TOOL
from runs.history import is_strange
from runs.models import ActionJournal
from runs.steps.base import context_for
from runs.transitions import Draft
from runs.view import View, is_child
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
    return sql.new(
        ActionJournal,
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
        contract=_contract_of(spec),
        fence=view.run.fence,
        created_at=draft.now,
    )


def _contract_of(spec: ToolSpec | None) -> str:
    if spec is not None and spec.agent:
        return CONTRACT
    return spec.contract.name if spec is not None and spec.contract else ""


def _bind(view: View, action: ActionJournal, spec: ToolSpec, judgement: Judgement) -> None:
    """Resource and business intent: made by code from the trusted run and the arguments."""
    action.resource_key = judgement.resource_key[:200]
    if judgement.identity is None:
        return
    action.intent_key = canonical.intent_key(
        tenant=view.run.tenant,
        tool=spec.name,
        contract_version=spec.version,
        scope=scope_of(view, spec),
        identity=judgement.identity,
    )


def scope_of(view: View, spec: ToolSpec) -> str:
    """How far one intent reaches: the run's business key, else the run with all its children, or
    the whole tenant.
    """
    if spec.scope == "tenant":
        return "tenant"
    run = view.root
    first = run.retry_of_id or run.id  # a retry does not do again what was done
    return f"dedupe:{run.dedupe_key}" if run.dedupe_key else f"run:{first}"


def _insert(view: View, draft: Draft, action: ActionJournal) -> None:
    view.actions.append(action)
    draft.add_action(action)


def verdict_for(view: View, action: ActionJournal, spec: ToolSpec, judgement: Judgement) -> Verdict:
    """What the policy says about this call, for this caller, now: the code, then thresholds."""
    verdict = policy.evaluate(
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
        switched_off=view.controls.off_reason(TOOL, spec.name),
        edited=bool(action.edited_by),
        untrusted=has_read_strangers(view, before=action.turn),
    )
    return thresholds.tighten(
        verdict,
        effect=spec.effect,
        thresholds=view.controls.thresholds_of(tenant=action.tenant, tool=spec.name),
        arguments=action.arguments or {},
    )


def has_read_strangers(view: View, *, before: int) -> bool:
    """Whether the model that asked in turn `before`, or one that asked for this run, had read what
    a tool declares untrusted."""
    first = view.history.strange_from
    if first is not None and first < before:
        return True
    if any(row.turn < before and is_strange(row) for row in view.recent):
        return True
    return view.from_strangers


def _guessed(view: View, action: ActionJournal, spec: ToolSpec) -> tuple[str, ...]:
    """The declared identifiers of the call that neither the input nor an observation has.

    What a model wrote is neither: a child is judged by the input of its root, and what a child said
    by what it had seen.
    """
    if not spec.grounded or action.edited_by:  # a person does not guess
        return ()
    rows = [row for row in view.in_state(A.SUCCEEDED) if row.observation and not is_child(row)]
    seen = [observation_of(row) for row in (*rows, *lineage.seen_elsewhere(view))]
    given = json.dumps(view.root.input, ensure_ascii=False)
    return ungrounded(names=spec.grounded, arguments=action.arguments or {}, sources=[given, *seen])


def _apply(draft: Draft, action: ActionJournal, verdict: Verdict) -> None:
    _store(draft, action, verdict)
    if verdict.kind == "DENY":
        _deny(draft, action, _word(verdict), verdict.reason)
    elif verdict.kind == "ALLOW":
        draft.move_action(action, A.READY)


def _word(verdict: Verdict) -> str:
    return "TOOL_DISABLED" if verdict.rule == "switched_off" else "POLICY_DENIED"


def _store(draft: Draft, action: ActionJournal, verdict: Verdict) -> None:
    """What the policy said, each time it was asked: on the action and in the event."""
    said = {
        "policy_verdict": verdict.kind,
        "policy_rule": verdict.rule[:200],
        "policy_version": verdict.version,
    }
    if any(getattr(action, name) != value for name, value in said.items()):
        draft.set_action(action, **said)
    draft.log(
        object="policy",
        id=str(action.id),
        tool=action.tool,
        to=verdict.kind,
        cause=verdict.rule,
        version=verdict.version,
    )


def _deny(draft: Draft, action: ActionJournal, reason: str, detail: str) -> None:
    draft.move_action(action, A.DENIED, reason=reason, detail=canonical.clean_text(detail)[:2000])


def judge_again(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> Verdict | None:
    """The verdict now; None when it denied the action (drafted)."""
    judgement = view.judgements.pop(action.id, None)
    try:
        judgement = judgement or judge(
            spec=spec, context=context_for(view, action), arguments=action.arguments or {}
        )
    except PolicyError as error:
        _deny(draft, action, "POLICY_ERROR", str(error))
        return None
    verdict = verdict_for(view, action, spec, judgement)
    _store(draft, action, verdict)
    if verdict.kind == "DENY":
        _deny(draft, action, _word(verdict), verdict.reason)
        return None
    return verdict
