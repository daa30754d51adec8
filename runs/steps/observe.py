"""Link 4: one observation for each call, then the next turn; or the check behind a final answer."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from agentcore import completion
from agentcore.lifecycle import ActionState, RunState, StopReason
from agentcore.retries import backoff
from agentcore.values import AttemptKind, OutcomeKind
from runs import journal
from runs.agents import get_agent
from runs.models import ActionJournal
from runs.steps.base import Answer, Call, End, Next, ToolRequest, Wait, context_for
from runs.steps.observations import render
from runs.transitions import Draft
from runs.view import View, is_write, spec_of

A = ActionState
MAX_CHECKS = 3
"""Tries to reach the system of record before a person is asked."""


def plan(view: View, draft: Draft) -> Answer:
    """Merge the results in call order, or verify."""
    if view.run.state == RunState.VERIFYING:
        return _verify(view, draft)
    same = _owners(view.turn_actions)
    for action in view.turn_actions:
        if action.observation is None:
            draft.set_action(action, observation=render(action, same.get(action.same_as_id)))
    turn = view.turn
    decision = turn.decision if turn else ""
    if decision == "TOOL_CALLS":
        draft.move_run(RunState.COMPILING_CONTEXT)
    else:
        draft.move_run(RunState.VERIFYING)
    return Next()


def _owners(actions: list[ActionJournal]) -> dict[UUID | None, ActionJournal]:
    ids = [action.same_as_id for action in actions if action.same_as_id]
    return dict(ActionJournal.objects.in_bulk(ids)) if ids else {}


def _verify(view: View, draft: Draft) -> Answer:
    """COMPLETED only when the system of record agrees; a refusal was decided before."""
    unchecked, failed = _postconditions(view)
    if unchecked:
        return _check(view, draft, unchecked)
    turn = view.turn
    declaration = get_agent(view.agent.name)
    verdict = completion.check(
        text=turn.text if turn else "",
        output_model=declaration.output_model if declaration else None,
        open_actions=len(view.live_actions),
        failed_postconditions=tuple(action.tool for action in failed),
    )
    match verdict:
        case completion.Complete(output=output):
            draft.move_run(RunState.COMPLETED, output=output)
            return End()
        case completion.Missing(reason=reason) if turn and not _told_before(view):
            draft.set_row(turn, problem=f"the answer was not accepted: {reason}")
            draft.move_run(RunState.COMPILING_CONTEXT, cause=reason[:200])
            return Next()
        case _:
            draft.set_run(stop_reason=StopReason.UNVERIFIED, reason=verdict.reason)
            return Next()


def _told_before(view: View) -> bool:
    return any(turn.decision == "FINAL" and turn.problem for turn in view.turns)


def _postconditions(view: View) -> tuple[list[ActionJournal], list[ActionJournal]]:
    """Effects still to be looked up in the system of record, and those it contradicts."""
    unchecked, failed = [], []
    for action in view.in_state(A.SUCCEEDED):
        spec = spec_of(action)
        if spec is None or spec.postcondition_fn is None or not is_write(action):
            continue
        answers = [
            attempt.result
            for attempt in view.attempts_of(action, AttemptKind.POSTCONDITION)
            if attempt.outcome == OutcomeKind.SUCCESS
        ]
        if not answers:
            unchecked.append(action)
        elif not (answers[-1] or {}).get("ok"):
            failed.append(action)
    return unchecked, failed


def _check(view: View, draft: Draft, actions: list[ActionJournal]) -> Answer:
    """Ask the system of record; wait and ask again when it does not answer, then a person."""
    requests, wake_at = [], draft.now
    for action in actions:
        tried = view.attempts_of(action, AttemptKind.POSTCONDITION)
        journal.mark_lost(draft, [a for a in tried if a.outcome is None and a.lost_at is None])
        if len(tried) >= MAX_CHECKS:
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


def _request(view: View, draft: Draft, action: ActionJournal) -> ToolRequest:
    spec = spec_of(action)
    if spec is None:
        raise LookupError(f"{action.tool} disappeared between two lines")
    kind = AttemptKind.POSTCONDITION
    attempt = journal.add_attempt(view, draft, kind=kind, action=action, timeout=spec.timeout)
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, kind, spec, context, action.arguments or {}, action.result)
