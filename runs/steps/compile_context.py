"""Link 1: check the limits, compile what the model will be shown, open the next turn."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from django.conf import settings

from agentcore.budgets import CLOSING_OUTPUT, input_tokens, output_room
from agentcore.compaction import boundary
from agentcore.context import ContextError, Frame
from agentcore.guardrails import Broken, Passed, Refused
from agentcore.ids import new_id
from agentcore.ledger import reservation
from agentcore.lifecycle import RunState, StopReason
from agentcore.termination import Stop
from agentcore.version import CODE_VERSION
from runs import contexts, failures, guards, limits, spending, sql
from runs.models import AgentVersion, Turn
from runs.steps.base import Answer, Next, Wait, far
from runs.transitions import Draft
from runs.view import View

TOO_LONG = "context_length_exceeded"
"""How the problem of a turn begins whose request the provider found too long."""


def plan(view: View, draft: Draft) -> Answer:
    """Open a turn, or end or suspend the run for the reason that its limits give."""
    run = view.run
    if run.state == RunState.QUEUED:
        draft.move_run(RunState.COMPILING_CONTEXT)
    stop = limits.stop_of(view)
    if stop is not None:
        return exhausted(view, draft, stop)
    return _input_refused(view, draft) or _open(view, draft, closing="")


def _input_refused(view: View, draft: Draft) -> Answer | None:
    """What the agent's guardrails say of the input, before anything is asked of the model."""
    match guards.check_input(view) if view.run.turn == 0 else Passed():
        case Refused(name=name, reason=reason):
            failures.stop(view, draft, StopReason.GUARDRAIL, f"{name}: {reason}", code=name)
            return Next()
        case Broken(name=name, reason=reason):
            detail = f"input guardrail {name} could not be asked: {reason}"
            to = RunState.COMPILING_CONTEXT
            draft.move_run(RunState.SUSPENDED, resume_to=to, reason=detail[:2000])
            return Wait(far(draft.now))
        case _:
            return None


def exhausted(view: View, draft: Draft, stop: Stop) -> Answer:
    """A limit is reached: code decides what follows, the model is not asked to.

    With a turn set aside for it the model may first say how far it came; then the run waits for a
    person, or ends.
    """
    budget = view.agent.spec.get("budget") or {}
    if budget.get("diagnose") and not _closed(view) and stop.reason != StopReason.MODEL_ERROR:
        return _open(view, draft, closing=f"{stop.reason}: {stop.detail}")
    return end(view, draft, stop)


def end(view: View, draft: Draft, stop: Stop) -> Answer:
    """Suspend the run for a person who may extend it, or set its stop reason."""
    budget = view.agent.spec.get("budget") or {}
    draft.note(limit=stop.detail)
    extendable = stop.reason in (StopReason.BUDGET, StopReason.NO_PROGRESS)
    whole = view.run.parent_id is None  # a child has a slice that nobody can extend
    if extendable and whole and budget.get("on_exhausted") == "suspend":
        reason = f"{stop.reason}: {stop.detail}"
        draft.move_run(
            RunState.SUSPENDED, resume_to=RunState.COMPILING_CONTEXT, reason=reason, cause="limit"
        )
        return Wait(far(draft.now))
    failures.stop(view, draft, stop.reason, stop.detail)
    return Next()


def _closed(view: View) -> bool:
    return any(turn.decision == limits.CLOSING for turn in view.turns)


def _open(view: View, draft: Draft, *, closing: str) -> Answer:
    """The next turn with its manifest; its request is kept in memory for the call."""
    run = view.run
    number = run.turn + 1
    if not spending.can_be_priced(run, view.agent.spec, draft.now.date()):
        detail = f"there is a money limit, but no price for the model {view.agent.spec['model']}"
        failures.stop(view, draft, StopReason.RUNTIME_ERROR, detail, code="no_price")
        return Next()
    try:
        frame = _frame(view, number, closing)
        if frame.max_output_tokens == 0:
            return _no_money(view, draft, closing)
        view.pack = contexts.compile_turn(view, number=number, frame=frame)
    except ContextError as error:
        failures.stop(view, draft, StopReason.CONTEXT_ERROR, str(error))
        return Next()
    turn = sql.new(
        Turn,
        id=new_id(),
        run_id=run.id,
        number=number,
        model=view.agent.spec["model"],
        manifest=view.pack.manifest,
        request_sha256=view.pack.sha256,
        code_version=CODE_VERSION,
        created_at=draft.now,
    )
    if frame.compacted_before != _compacted_before(view):
        draft.note(compacted_before=frame.compacted_before)
    view.turns.append(turn)
    draft.add(turn)
    draft.event = "turn.started"
    draft.move_run(RunState.CALLING_MODEL, turn=turn.number)
    return Next()


def _no_money(view: View, draft: Draft, closing: str) -> Answer:
    """Not even a short answer can be paid for."""
    found = spending.limits_of(view.run, view.agent.spec)
    left = found.left(spending.account_of(view.run))
    detail = closing or f"what is left ({_shown(left)}) does not pay for another answer"
    return end(view, draft, Stop(StopReason.BUDGET, detail.removeprefix("BUDGET: ")))


def _shown(left: tuple[int | None, int | None]) -> str:
    tokens, micros = left
    parts = [] if tokens is None else [f"{tokens} tokens"]
    return ", ".join(parts if micros is None else [*parts, f"{micros} micro-dollars"])


def _frame(view: View, number: int, closing: str) -> Frame:
    """Everything that is decided about the request before it is built."""
    before = _compacted_before(view)
    exchanges = contexts.exchanges_of(view, before=number, since=before)
    policy = contexts.policy_of(view.agent.spec)
    earlier, left_out = contexts.choose_earlier(view)
    fixed = _fixed(view) + sum(run.size for run in contexts.earlier_of(earlier))
    past = contexts.past_of(view, before=before) if before else None
    if past is not None:
        fixed += past.size
    force = bool(view.turns) and view.turns[-1].problem.startswith(TOO_LONG)
    edge = boundary(policy=policy, exchanges=exchanges, fixed=fixed, before=before, force=force)
    size = fixed + sum(exchange.size for exchange in exchanges if exchange.turn >= edge)
    booked = input_tokens(size)
    return Frame(
        task_state=_task_state(view),
        compacted_before=edge,
        new_from=exchanges[-1].turn if exchanges else past.last if past else 0,
        max_output_tokens=_room(view, booked, closing=bool(closing)),
        input_tokens=booked,
        stream=settings.AGENTCORE_OPTIONS.stream,
        closing=closing,
        earlier=earlier,
        earlier_left_out=left_out,
    )


def _compacted_before(view: View) -> int:
    """The boundary of the turn before; it never goes back."""
    return view.turns[-1].manifest["frame"]["compacted_before"] if view.turns else 0


def _fixed(view: View) -> int:
    """Characters of a request without its exchanges."""
    return _size_of(view.agent) + len(json.dumps(view.run.input)) + 1000


@lru_cache(maxsize=256)
def _size_of(agent: AgentVersion) -> int:
    """Characters of what never changes of an agent: written anew for each turn it took 1 %."""
    spec = agent.spec
    return sum(len(json.dumps(spec[name])) for name in ("instructions", "settings", "tools"))


def _room(view: View, booked: int, *, closing: bool) -> int | None:
    """Tokens that the answer may have; None without a limit of tokens or money. What is set aside
    for the closing turn is not spent by the turns before it.
    """
    spec, run = view.agent.spec, view.run
    found = spending.limits_of(run, spec)
    price = spending.price_for(spec["model"], view.now.date())
    diagnose = (spec.get("budget") or {}).get("diagnose") and not closing
    aside = reservation(input=booked, output=CLOSING_OUTPUT, price=price) if diagnose else None
    asked = spec["settings"].get("max_output_tokens")
    return output_room(
        limits=found,
        account=spending.account_of(run),
        input=booked,
        price=price,
        asked=min(asked or CLOSING_OUTPUT, CLOSING_OUTPUT) if closing else asked,
        aside=aside,
    )


def _task_state(view: View) -> dict[str, Any]:
    """What the model is told about its limits: words and numbers of the runtime only."""
    run = view.run
    state: dict[str, Any] = {
        "turns_left": max(0, run.max_turns - limits.turns_used(view) - run.turns_lent),
        "actions_left": max(0, run.max_actions - run.actions_used - run.actions_lent),
    }
    tokens, micros = spending.limits_of(run, view.agent.spec).left(spending.account_of(run))
    if tokens is not None:
        state["tokens_left"] = max(0, tokens)
    if micros is not None:
        state["micro_dollars_left"] = max(0, micros)
    return state
