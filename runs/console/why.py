"""Why a run is where it is and what happens next by itself, in two sentences. No database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from agentcore.lifecycle import RUN_TERMINAL, ActionState, RunState, step_of
from approvals.models import Approval
from runs import isolation
from runs.console import text
from runs.models import ActionJournal, Run

A, R = ActionState, RunState


@dataclass(frozen=True, slots=True)
class Known:
    """The two sentences. `next_step` starts with who acts: a worker, the sweep, a person."""

    because: str
    next_step: str


def explain(
    *, run: Run, live: Sequence[ActionJournal], asked: Sequence[Approval], now: datetime
) -> Known:
    """What the rows say about the run at `now`; `live` are its actions that are not terminal."""
    state = RunState(run.state)
    if state in RUN_TERMINAL:
        return Known(_ended(run), "Nothing: it has ended.")
    if run.stop_reason or state is R.CANCELLING:
        return _stopping(run, live)
    if state is R.SUSPENDED:
        return Known(
            f"It is paused: {run.reason or 'no reason was given'}.",
            f"A person resumes it; it goes on at {_word(run.resume_to)}, or cancels it.",
        )
    if state is R.WAITING_APPROVAL:
        return _waiting(asked, now)
    persons = [action for action in live if action.state == A.NEEDS_HUMAN]
    if persons:
        return Known(
            f"What became of {persons[0].tool} is not known, and only a person can tell.",
            "A person gives a verdict with evidence. Nothing else of the run is sent until then.",
        )
    if state is R.RECONCILING:
        return _reconciling(live, now)
    if state is R.WAITING_CHILD and run.wake_at > now:
        return Known(
            "It waits for what it asked another agent to do.",
            "That run ends, and a worker goes on with this one.",
        )
    if state is R.RETRY_WAIT:
        return Known(
            f"The last try at {_word(run.resume_to)} failed and may be repeated"
            f"{': ' + run.reason if run.reason else ''}.",
            f"A worker tries again {text.relative(run.wake_at, now)}.",
        )
    return _working(run, state, now)


def _ended(run: Run) -> str:
    why = " · ".join(filter(None, (run.stop_reason or "", run.reason)))
    return f"It ended {run.state.lower()}{': ' + why if why else ''}."


def _stopping(run: Run, live: Sequence[ActionJournal]) -> Known:
    sent = [action for action in live if action.state in (A.RUNNING, A.PENDING, A.UNKNOWN)]
    persons = [action for action in live if action.state == A.NEEDS_HUMAN]
    because = f"It is stopping ({run.stop_reason or 'CANCEL'}): {run.reason or 'no reason given'}."
    if persons:
        return Known(because, "A person says what became of its open write; then it ends.")
    if sent:
        return Known(because, "A worker settles what was sent, without sending anew; it ends then.")
    return Known(because, "A worker ends it: nothing is open.")


def _waiting(asked: Sequence[Approval], now: datetime) -> Known:
    if not asked:
        return Known("What it waited for is decided.", "A worker goes on with it.")
    first = min(asked, key=lambda row: row.expires_at)
    many = f"{len(asked)} actions wait" if len(asked) > 1 else f"{first.tool} waits"
    return Known(
        f"{many} for a person: {first.rule}.",
        f"Somebody decides, or the first question runs out {text.relative(first.expires_at, now)}.",
    )


def _reconciling(live: Sequence[ActionJournal], now: datetime) -> Known:
    unknown = [action for action in live if action.state in (A.UNKNOWN, A.PENDING)]
    if not unknown:
        return Known("Its open write is settled.", "A worker goes on with it.")
    first = min(unknown, key=lambda action: action.next_probe_at or now)
    at = first.next_probe_at
    when = text.relative(at, now) if at else "at its next look"
    return Known(
        f"{first.tool} was sent, and what became of it is not known.",
        f"A worker asks the downstream {when} ({first.probes} times so far).",
    )


def _working(run: Run, state: RunState, now: datetime) -> Known:
    step = step_of(state)
    if run.pause_asked_by:
        said = f"{run.pause_asked_by} asked it to pause."
        return Known(said, "Its worker suspends it at the next step.")
    if run.lease_worker:
        return Known(
            f"A worker is at the step {step}.",
            "The worker goes on. If it dies, another one takes the run once its lease is over.",
        )
    if run.wake_at > now:
        return Known(
            f"It waits for its time at the step {step}.",
            f"A worker takes it {text.relative(run.wake_at, now)}.",
        )
    alone = " in a process of its own" if isolation.is_isolated(run.claims) else ""
    return Known(
        f"It is due at the step {step} since {text.span(now - run.wake_at)}; nobody has it.",
        f"A worker for {step} takes it{alone}; the sweep sends the message again until then.",
    )


def _word(state: str | None) -> str:
    return (state or "its step").replace("_", " ").lower()
