"""What a run has used and whether it may go on: its rows, shown to its termination conditions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from django.conf import settings

from agentcore import children
from agentcore.lifecycle import ActionState
from agentcore.observed import digest_of
from agentcore.progress import NoProgress
from agentcore.termination import Call, Condition, Hard, MaxInvalidCalls, Step, Stop
from runs import caps
from runs.contexts import NO_DECISION
from runs.history import History, Watch
from runs.models import ActionJournal, Turn
from runs.view import View, is_child, is_write
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
    return len(_settled_steps(view.history)) + sum(_counts(turn) for turn in _later_turns(view))


def _counts(turn: Turn) -> bool:
    return turn.decision not in ("", NO_DECISION, CLOSING)


def _later_turns(view: View) -> list[Turn]:
    return view.turns[len(view.history.turns) :]


def conditions(view: View) -> Condition:
    """The run's limits and signs of standing still, as one condition."""
    invalid = MaxInvalidCalls(settings.AGENTCORE_OPTIONS.max_invalid_calls)
    return _hard(view).condition() | invalid


def _hard(view: View) -> Hard:
    run, spec = view.run, view.agent.spec
    budget: Mapping[str, Any] = spec.get("budget") or {}
    aside = 1 if budget.get("diagnose") else 0
    failures = run.max_failures if run.max_failures is not None else budget.get("failures")
    handoffs = run.max_handoffs if run.max_handoffs is not None else budget.get("handoffs")
    return Hard(
        turns=run.max_turns - aside - run.turns_lent,
        actions=run.max_actions - run.actions_lent,
        failures=failures,
        parallel=budget.get("parallel"),
        handoffs=None if handoffs is None else handoffs - _handoffs_below(view),
        tool_calls=_tool_calls(view, budget.get("tool_calls") or {}),
    )


def _tool_calls(view: View, most: Mapping[str, int]) -> dict[str, int]:
    """What is left of each cap after what the runs below have begun, its own calls included."""
    if not (most and view.run.handoffs_lent):
        return dict(most)
    below = caps.begun_below(view, most)
    return {tool: max(0, limit - below[tool]) for tool, limit in most.items()}


def _handoffs_below(view: View) -> int:
    """Runs that the run's children have started, or may start; its own are counted as calls."""
    if not view.run.handoffs_lent:
        return 0
    started = sum(is_child(action) and bool(action.first_sent_at) for action in view.actions)
    return max(0, view.run.handoffs_lent - started)


def over(view: View) -> str:
    """Which limit the calls of the reply just recorded exceed; "" for none."""
    hard = _hard(view)
    stop = _shown(view, "calls", hard, hard.of_calls)
    return stop.detail if stop is not None else ""


def stop_of(view: View) -> Stop | None:
    """Why no further turn may start, or None. Computed from the rows alone."""
    invalid = settings.AGENTCORE_OPTIONS.max_invalid_calls
    hard = _shown(view, "hard", (_hard(view), invalid), lambda: conditions(view))
    if hard is not None:
        return hard
    since, stored = view.run.progress_from, view.agent.spec.get("no_progress") or {}
    made = NoProgress(**stored)
    return _shown(view, "progress", (since, made), made.condition, since=since)


def _shown(
    view: View, name: str, terms: object, make: Callable[[], Condition], *, since: int = 0
) -> Stop | None:
    """The answer of a condition that has been shown all turns after `since`.

    It is remembered with the history and shown what it has not seen; under other `terms` it is made
    anew and shown all of them again.
    """
    watch = view.history.watches.get(name)
    if watch is None or watch.terms != terms:
        watch = view.history.watches[name] = Watch(terms, make(), through=since)
    for step in steps_of(view, after=watch.through):
        watch.condition.feed(step)
        watch.through = step.turn
    return watch.condition.stopped


def steps_of(view: View, *, after: int = 0) -> list[Step]:
    """The finished turns after turn `after` as the conditions see them."""
    settled = _settled_steps(view.history)
    known = settled[bisect_right(settled, after, key=attrgetter("turn")) :]
    return known + [step for step in _steps(_later_turns(view), view.recent) if step.turn > after]


def _settled_steps(history: History) -> list[Step]:
    """The steps of all settled turns, each made once."""
    turns = history.turns[history.stepped_turns :]
    if turns:
        history.steps += _steps(turns, history.actions[history.stepped_actions :])
        history.stepped_turns, history.stepped_actions = len(history.turns), len(history.actions)
    return history.steps


def _steps(turns: Iterable[Turn], actions: Iterable[ActionJournal]) -> list[Step]:
    by_turn: dict[int, list[ActionJournal]] = {}
    for action in actions:
        if action.edit == 0:  # an edited call is one call of the model
            by_turn.setdefault(action.turn, []).append(action)
    return [
        Step(
            turn=turn.number,
            calls=tuple(_call(action) for action in by_turn.get(turn.number, ())),
            at=turn.decided_at,
        )
        for turn in turns
        if _counts(turn)
    ]


def _is_effective(action: ActionJournal) -> bool:
    if is_child(action):
        return bool(children.effects_in(action.result))
    return action.state == A.SUCCEEDED and is_write(action)


def _call(action: ActionJournal) -> Call:
    spec = registry.get(action.tool)
    succeeded = action.state == A.SUCCEEDED
    duplicate = action.state == A.VOIDED and action.reason in _ACCEPTED
    error = "" if succeeded or duplicate else (action.reason or action.error_class or action.state)
    return Call(
        tool=action.tool,
        # Arguments that could not be read have no hash: such calls have a limit of their own.
        params=action.params_hash or f"invalid:{action.id}",
        observed=digest_of(action.observation or ""),
        error=error,
        retryable=error.startswith(TRANSIENT),
        write=is_write(action),
        effective=_is_effective(action),
        polling=spec is not None and spec.polling,
        invalid=action.reason in _INVALID,
        child=is_child(action),
    )
