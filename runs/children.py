"""Child runs: a call of another agent is one action of its parent, and a run of its own.

The transaction that starts the action makes the run and sets its slice of the budget aside; the
one that ends the run wakes the parent (`transitions.py`); the parent then takes what came of it and
gets back what was not used, once. No attempt is made for such an action: it is never UNKNOWN, since
a run settles what it sent before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from agentcore.budgets import micros
from agentcore.canonical import clean_text
from agentcore.children import (
    Powers,
    Share,
    Slice,
    TooLittle,
    deadline_of,
    effects_in,
    result_of,
    slice_of,
    uncertain_in,
)
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, RunState
from agentcore.values import Effect
from agentcore.version import CODE_VERSION
from runs import calling, controls, dispatch, limits, spending, transitions
from runs.agents import AgentDeclaration, get_agent
from runs.controls import AGENT
from runs.history import is_strange
from runs.models import ActionJournal, AgentVersion, Run
from runs.transitions import Draft
from runs.view import View, is_child, is_write
from tools.arguments import load_params
from tools.errors import InvalidArguments
from tools.spec import ToolSpec

A = ActionState
MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no run is made: `reason` is a machine word."""

    reason: str
    detail: str


def public(run: Run) -> str:
    """The public id of a run."""
    return f"run_{run.id.hex}"


def open_calls(view: View) -> list[ActionJournal]:
    """The actions whose run has not ended, or whose end was not taken yet."""
    return [action for action in view.in_state(A.RUNNING) if is_child(action)]


# --- the beginning -------------------------------------------------------------------------


def begin(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> Refusal | None:
    """Draft the run that a READY action is, and set its slice aside; or say why not.

    The caller moves the action to RUNNING in the same draft.
    """
    agent, grant = get_agent(spec.agent), _grant_of(view, action)
    if agent is None or grant is None:
        return Refusal("AGENT_UNAVAILABLE", f"there is no agent {spec.agent} to call")
    off = view.controls.off_reason(AGENT, agent.name)
    if off:
        return Refusal("AGENT_PAUSED", f"the agent {agent.name} is switched off: {off}")
    powers = Powers(frozenset(grant["scopes"]), Effect(grant["effect"]))
    beyond = calling.powers_of(agent).beyond(powers)
    if beyond:
        return Refusal("AGENT_POWERS", f"{agent.name} uses what was not handed down: {beyond}")
    try:
        version = agent.freeze()
    except ImproperlyConfigured as error:
        return Refusal("AGENT_UNAVAILABLE", str(error))
    given = slice_of(
        left=_left(view),
        own=_own(agent),
        asked=calling.stored_share(grant),
        waiting=sum(is_child(row) for row in view.in_state(A.READY)),
    )
    if isinstance(given, TooLittle):
        return Refusal("BUDGET", given.detail)
    try:
        asked = _input_of(action, spec)
    except InvalidArguments as error:
        return Refusal("AGENT_UNAVAILABLE", f"its input is another one by now: {error.detail}")
    _draft(
        view,
        draft,
        action,
        agent=agent,
        version=version,
        given=given,
        powers=powers,
        asked=asked,
    )
    return None


def _input_of(action: ActionJournal, spec: ToolSpec) -> dict[str, Any]:
    """What the child is asked, as the input of any run is stored: without the value of a Secret.

    The action keeps it, since that is what was judged and hashed. Raises `InvalidArguments`.
    """
    params = load_params(spec=spec, arguments=action.arguments or {})
    asked: dict[str, Any] = params.model_dump(mode="json")
    return asked


def _grant_of(view: View, action: ActionJournal) -> dict[str, Any] | None:
    calls = view.agent.spec.get("calls") or ()
    return next((call for call in calls if call["tool"] == action.tool), None)


def _left(view: View) -> Share:
    """What the run still has, without what its children hold and have used."""
    run, budget = view.run, view.agent.spec.get("budget") or {}
    aside = 1 if budget.get("diagnose") else 0
    tokens, cost = spending.limits_of(run, view.agent.spec).left(spending.account_of(run))
    most = run.max_handoffs if run.max_handoffs is not None else budget.get("handoffs")
    return Share(
        turns=run.max_turns - aside - limits.turns_used(view) - run.turns_lent,
        actions=run.max_actions - run.actions_used - run.actions_lent,
        handoffs=None if most is None else most - run.handoffs_lent,
        tokens=tokens,
        cost=cost,
    )


def _own(agent: AgentDeclaration) -> Share:
    """What the agent's own budget allows one of its runs."""
    budget = agent.budget
    return Share(
        turns=budget.turns,
        actions=budget.actions,
        handoffs=budget.handoffs if agent.calls else 0,
        tokens=budget.tokens,
        cost=micros(budget.cost) if budget.cost is not None else None,
    )


def _draft(
    view: View,
    draft: Draft,
    action: ActionJournal,
    *,
    agent: AgentDeclaration,
    version: AgentVersion,
    given: Slice,
    powers: Powers,
    asked: dict[str, Any],
) -> None:
    parent, now = draft.run, draft.now
    child_id = new_id()
    draft.set_run(
        turns_lent=parent.turns_lent + given.turns,
        actions_lent=parent.actions_lent + given.actions,
        handoffs_lent=parent.handoffs_lent + 1 + (given.handoffs or 0),
    )
    spending.lend(draft, tokens=given.tokens or 0, cost=given.cost or 0)
    values: dict[str, Any] = {
        "id": child_id,
        "parent_id": parent.id,
        "root_id": parent.root_id or parent.id,
        "parent_action": action.id,
        "tenant": parent.tenant,
        "agent_version": version,
        "principal": parent.principal,
        "on_behalf_of": parent.on_behalf_of,
        "scopes": [scope for scope in parent.scopes if scope in powers.scopes],
        "webhook_endpoint_id": parent.webhook_endpoint_id,
        "input": asked,
        "priority": parent.priority,
        "dry_run": parent.dry_run,
        "trace_id": parent.trace_id,
        "max_turns": given.turns,
        "max_actions": given.actions,
        "max_handoffs": given.handoffs,
        "max_tokens": given.tokens,
        "max_cost": given.cost,
        "deadline_at": deadline_of(parent=parent.deadline_at, now=now, wall=agent.budget.wall),
        "wake_at": now,
        "hinted_at": now,
        "code_version": CODE_VERSION,
        "created_at": now,
    }
    draft.log(object="child", id=str(child_id), to="STARTED", agent=agent.name)
    draft.also(partial(_insert, values, actor=f"run:{parent.id.hex}"))
    draft.also(controls.Guard(view.controls.stamp))


def _insert(values: dict[str, Any], *, actor: str) -> None:
    """The run and its first event, in the parent's transaction; made anew should that be tried
    again."""
    run = Run(**values)
    transitions.create_run(run, actor=actor)
    dispatch.hint_on_commit(run)


# --- the end -------------------------------------------------------------------------------


def take(view: View, draft: Draft) -> None:
    """Draft the outcome of every call whose run has ended, and give back what it did not use."""
    calls = open_calls(view)
    if not calls:
        return
    rows = Run.objects.filter(parent_action__in=[action.id for action in calls])
    ended = rows.filter(ended_at__isnull=False).select_related("agent_version")
    found = {run.parent_action: run for run in ended}
    for action in calls:
        child = found.get(action.id)
        if child is not None:
            _take(draft, action, child)


def _take(draft: Draft, action: ActionJournal, child: Run) -> None:
    state = RunState(child.state)
    done = state is RunState.COMPLETED
    draft.move_action(
        action,
        A.SUCCEEDED if done else A.FAILED,
        cause=f"its run is {state}",
        result=_result(child, state),
        error_class="" if done else f"child_{state.lower()}",
        detail="" if done else clean_text(child.reason, MAX_REASON),
    )
    _give_back(draft, child)
    draft.log(object="child", id=str(child.id), to="TAKEN", agent=child.agent_version.name)


def _give_back(draft: Draft, child: Run) -> None:
    """Of the slice, what the child did not use; what it used stays lent for good.

    A call that was lost counts with what it was booked with. A count that arrives later corrects
    the account of the child alone.
    """
    run = draft.run
    turns = min(child.turn + child.turns_lent, child.max_turns)
    actions = min(child.actions_used + child.actions_lent, child.max_actions)
    draft.set_run(
        turns_lent=run.turns_lent - child.max_turns + turns,
        actions_lent=run.actions_lent - child.max_actions + actions,
        handoffs_lent=run.handoffs_lent - (child.max_handoffs or 0) + child.handoffs_lent,
    )
    spending.take_back(
        draft,
        lent=(child.max_tokens or 0, child.max_cost or 0),
        used=(child.tokens_used + child.tokens_held, child.cost_used + child.cost_held),
    )


def _result(child: Run, state: RunState) -> dict[str, Any]:
    rows = list(ActionJournal.objects.filter(run_id=child.id).order_by("turn", "ordinal", "edit"))
    calls = [row.result for row in rows if is_child(row)]
    made = [_write(row) for row in rows if is_write(row) and row.state == A.SUCCEEDED]
    unsure = [_write(row) for row in rows if is_write(row) and row.state == A.ABANDONED]
    return result_of(
        run=public(child),
        agent=child.agent_version.name,
        agent_version=child.agent_version.version,
        state=state,
        output=child.output,
        stop_reason=child.stop_reason,
        reason=clean_text(child.reason, MAX_REASON),
        effects=[*made, *(item for result in calls for item in effects_in(result))],
        uncertain=[*unsure, *(item for result in calls for item in uncertain_in(result))],
        untrusted=any(is_strange(row) for row in rows),
    )


def _write(action: ActionJournal) -> dict[str, Any]:
    return {
        "tool": action.tool,
        "action": f"act_{action.id.hex}",
        "run": f"run_{action.run_id.hex}",
        "at": action.ended_at.isoformat() if action.ended_at else None,
        "reference": action.downstream_ref,
    }
