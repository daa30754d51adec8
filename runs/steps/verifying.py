"""The check behind a final answer: COMPLETED means that the system of record agrees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from agentcore import completion
from agentcore.canonical import sha256_hex
from agentcore.guardrails import Broken, Passed, Refused
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, RunState, StopReason
from agentcore.retries import backoff
from agentcore.values import AttemptKind, Json, OutcomeKind
from runs import agents, contexts, failures, guards, journal, outcomes
from runs.account_models import Evidence
from runs.agents import get_agent
from runs.models import ActionJournal, Attempt, Event
from runs.steps.base import Answer, Call, End, Next, ToolRequest, Wait, context_for, far
from runs.transitions import Draft
from runs.view import View, is_write, spec_of

A = ActionState
MAX_CHECKS = 3
"""Tries to reach the system of record before a person is asked."""


def plan(view: View, draft: Draft) -> Answer:
    """COMPLETED only when the system of record agrees; a refusal was decided before."""
    unchecked, failed = _postconditions(view, draft)
    if unchecked:
        return _check(view, draft, unchecked)
    turn = view.turn
    model, schema = _output_type(view)
    verdict = completion.check(
        text=turn.said if turn else "",
        output_model=model,
        output_schema=schema,
        languages=agents.languages_in(view.agent.spec),
        open_actions=len(view.live_actions),
        failed_postconditions=tuple(action.tool for action in failed),
        effects=outcomes.effects(view),
    )
    match verdict:
        case completion.Complete(output=output):
            return _guarded(view, draft, output)
        case completion.Missing(reason=reason):
            return _missing(view, draft, reason)
        case completion.NotMet(reason=reason):
            return _unverified(view, draft, reason)


def _output_type(view: View) -> tuple[type[BaseModel] | None, dict[str, Any] | None]:
    """(model, schema) of the answer: the declared model while it says what the agent version says,
    else the frozen schema, which knows no validators of the model's code.
    """
    declaration = get_agent(view.agent.name)
    model = declaration.output_model if declaration is not None else None
    frozen = view.agent.spec.get("output")
    if "output" not in view.agent.spec or agents.output_schema(model) == frozen:
        return model, None
    return None, frozen


def _guarded(view: View, draft: Draft, output: dict[str, Json]) -> Answer:
    """The answer is right by the rules of the runtime; now the agent's own guardrails."""
    match guards.check_output(view, output):
        case Passed():
            outcome = outcomes.business_outcome(view, output)
            draft.set_run(output=output, business_outcome=outcome, reason="")
            draft.move_run(RunState.COMPLETED)
            return End()
        case Refused(name=name, reason=reason):
            return _missing(view, draft, f"{name}: {reason}")
        case Broken(name=name, reason=reason):
            detail = f"output guardrail {name} could not be asked: {reason}"
            draft.move_run(RunState.SUSPENDED, resume_to=RunState.VERIFYING, reason=detail[:2000])
            return Wait(far(draft.now))


def _missing(view: View, draft: Draft, reason: str) -> Answer:
    """Tell the model once what is missing; the second time the goal counts as not met."""
    turn = view.turn
    if turn is None or _told_before(view):
        return _unverified(view, draft, reason)
    draft.set_row(turn, problem=f"the answer was not accepted: {reason}")
    draft.move_run(RunState.COMPILING_CONTEXT, cause=reason[:200])
    return Next()


def _unverified(view: View, draft: Draft, reason: str) -> Answer:
    draft.set_run(business_outcome=outcomes.business_outcome(view))
    failures.stop(view, draft, StopReason.UNVERIFIED, reason)
    return Next()


def _told_before(view: View) -> bool:
    return any(turn.decision == "FINAL" and turn.problem for turn in view.turns)


def _postconditions(view: View, draft: Draft) -> tuple[list[ActionJournal], list[ActionJournal]]:
    """Effects still to be looked up in the system of record, and those it contradicts."""
    unchecked, failed, confirmed = [], [], []
    for action in view.in_state(A.SUCCEEDED):
        spec = spec_of(action)
        if spec is None or spec.postcondition_fn is None or not is_write(action):
            continue
        answers = [
            attempt
            for attempt in view.attempts_of(action, AttemptKind.POSTCONDITION)
            if attempt.outcome == OutcomeKind.SUCCESS
        ]
        if not answers:
            unchecked.append(action)
        elif (answers[-1].result or {}).get("ok"):
            confirmed.append((action, answers[-1]))
        else:
            failed.append(action)
    if not unchecked:
        _confirm(view, draft, confirmed)
    return unchecked, failed


def _confirm(view: View, draft: Draft, confirmed: list[tuple[ActionJournal, Attempt]]) -> None:
    """A write that the system of record confirms is a verified fact; written once."""
    if not confirmed:
        return
    known = set(
        Evidence.objects.filter(run_id=view.run.id, source__startswith=_CONFIRMED).values_list(
            "action_id", flat=True
        )
    )
    for action, attempt in confirmed:
        if action.id in known:
            continue
        row = Evidence(
            id=new_id(),
            run_id=view.run.id,
            turn=view.run.turn,
            action_id=action.id,
            source=f"{_CONFIRMED}{action.tool}@{action.tool_version}"[:200],
            about=action.resource_key,
            version=action.bound_version,
            sha256=sha256_hex(contexts.observation_of(action)),
            verified=True,
            observed_at=attempt.ended_at or draft.now,
            created_at=draft.now,
        )
        draft.add(row)


_CONFIRMED = "postcondition:"


def _check(view: View, draft: Draft, actions: list[ActionJournal]) -> Answer:
    """Ask the system of record; wait and ask again when it does not answer, then a person."""
    requests, wake_at = [], draft.now
    for action in actions:
        tried = view.attempts_of(action, AttemptKind.POSTCONDITION)
        journal.mark_lost(draft, [a for a in tried if a.outcome is None and a.lost_at is None])
        if len(_since_resumed(view, tried)) >= MAX_CHECKS:
            reason = f"{action.tool}: the system of record did not answer {len(tried)} times"
            draft.move_run(RunState.SUSPENDED, resume_to=RunState.VERIFYING, reason=reason)
            return Wait(view.run.deadline_at)
        if tried and tried[-1].ended_at:
            delay = backoff(n=len(tried), base=1.0, cap=30.0, jitter=0.5)
            wake_at = max(wake_at, tried[-1].ended_at + timedelta(seconds=delay))
        if wake_at <= draft.now:
            requests.append(_request(view, draft, action))
    if requests:
        return Call(tuple(requests))
    draft.move_run(RunState.RETRY_WAIT, resume_to=RunState.VERIFYING)
    return Wait(wake_at)


def _since_resumed(view: View, tried: list[Attempt]) -> list[Attempt]:
    """The tries since a person last let the run go on: then it has as many again."""
    if len(tried) < MAX_CHECKS:
        return tried
    events = Event.objects.filter(run_id=view.run.id, type="run.resumed", data__command="resume")
    resumed = events.order_by("-seq").first()
    return [a for a in tried if resumed is None or a.started_at > resumed.created_at]


def _request(view: View, draft: Draft, action: ActionJournal) -> ToolRequest:
    spec = spec_of(action)
    if spec is None:
        raise LookupError(f"{action.tool} disappeared between two lines")
    kind = AttemptKind.POSTCONDITION
    attempt = journal.add_attempt(view, draft, kind=kind, action=action, timeout=spec.timeout)
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, kind, spec, context, action.arguments or {}, action.result)
