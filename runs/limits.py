"""What a run has used and whether it may go on: its rows, shown to its termination conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from agentcore.canonical import sha256_hex
from agentcore.lifecycle import ActionState
from agentcore.progress import NoProgress
from agentcore.termination import Call, Condition, Hard, MaxInvalidCalls, Step, Stop
from runs.contexts import NO_DECISION
from runs.models import ActionJournal
from runs.view import View, is_write
from tools import registry
from tools.faults import TRANSIENT

A = ActionState
_INVALID = frozenset({"INVALID_ARGUMENTS", "UNKNOWN_TOOL"})
_ACCEPTED = frozenset({"DUPLICATE"})
CLOSING = "CLOSING"
"""The decision of a turn in which nothing could be called: the model's last word on how far it
came. It is asked for at most once a run."""


def turns_used(view: View) -> int:
    """Turns with a decision; a call that gave none costs money, but no turn."""
    return sum(turn.decision not in ("", NO_DECISION, CLOSING) for turn in view.turns)


def conditions(view: View) -> Condition:
    """The run's limits and signs of standing still, as one condition."""
    invalid = MaxInvalidCalls(settings.AGENTCORE_OPTIONS.max_invalid_calls)
    return _hard(view).condition() | invalid


def _hard(view: View) -> Hard:
    run, spec = view.run, view.agent.spec
    budget: Mapping[str, Any] = spec.get("budget") or {}
    aside = 1 if budget.get("diagnose") else 0
    failures = run.max_failures if run.max_failures is not None else budget.get("failures")
    return Hard(
        turns=run.max_turns - aside,
        actions=run.max_actions,
        failures=failures,
        parallel=budget.get("parallel"),
        tool_calls=dict(budget.get("tool_calls") or {}),
    )


def over(view: View) -> str:
    """Which limit the calls of the reply just recorded exceed; "" for none."""
    stop = _hard(view).of_calls().run(steps_of(view))
    return stop.detail if stop is not None else ""


def stop_of(view: View) -> Stop | None:
    """Why no further turn may start, or None. Computed from the rows alone."""
    steps = steps_of(view)
    hard = conditions(view).run(steps)
    if hard is not None:
        return hard
    stored = view.agent.spec.get("no_progress") or {}
    recent = [step for step in steps if step.turn > view.run.progress_from]
    return NoProgress(**stored).condition().run(recent)


def steps_of(view: View) -> list[Step]:
    """The finished turns as the conditions see them."""
    by_turn: dict[int, list[ActionJournal]] = {}
    for action in view.actions:
        if action.edit == 0:  # an edited call is one call of the model
            by_turn.setdefault(action.turn, []).append(action)
    return [
        Step(
            turn=turn.number,
            calls=tuple(_call(action) for action in by_turn.get(turn.number, ())),
            tokens=view.run.tokens_used + view.run.tokens_held,
            cost=view.run.cost_used + view.run.cost_held,
            at=turn.decided_at,
        )
        for turn in view.turns
        if turn.decision not in ("", NO_DECISION, CLOSING)
    ]


def _call(action: ActionJournal) -> Call:
    spec = registry.get(action.tool)
    succeeded = action.state == A.SUCCEEDED
    duplicate = action.state == A.VOIDED and action.reason in _ACCEPTED
    error = "" if succeeded or duplicate else (action.reason or action.error_class or action.state)
    return Call(
        tool=action.tool,
        # Arguments that could not be read have no hash: such calls have a limit of their own.
        params=action.params_hash or f"invalid:{action.id}",
        observed=sha256_hex(action.observation or ""),  # folded or not: equal for equal texts
        error=error,
        retryable=error.startswith(TRANSIENT),
        write=is_write(action),
        effective=succeeded and is_write(action),
        polling=spec is not None and spec.polling,
        invalid=action.reason in _INVALID,
    )
