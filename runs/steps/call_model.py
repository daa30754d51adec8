"""Link 2: ask the model once, then record its whole decision before any of it runs."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from agentcore import canonical
from agentcore.budgets import TYPICAL_OUTPUT
from agentcore.context import ContextError, ContextPack, Frame
from agentcore.decisions import Final, Invalid, ParsedReply, Refusal, ReplyFailure, ToolCalls
from agentcore.ledger import reservation
from agentcore.lifecycle import ActionState, RunState, StopReason
from agentcore.llm.base import ModelFailure
from agentcore.llm.errors import Cause, explain
from agentcore.observed import place_in
from agentcore.retries import backoff
from agentcore.termination import Stop
from agentcore.throttle import Held
from agentcore.values import AttemptKind
from runs import contexts, failures, journal, limits, spending, throttling
from runs.models import Attempt, Turn
from runs.steps.base import Again, Answer, Call, ModelRequest, Next, Wait
from runs.steps.compile_context import TOO_LONG, end
from runs.steps.judging import propose
from runs.transitions import Draft
from runs.view import View

BACKOFF = 1.0
BACKOFF_CAP = 60.0


def plan(view: View, draft: Draft) -> Answer:
    """Record the reply in hand, deal with a failed call, or draft the next attempt."""
    reply, view.reply = view.reply, None
    if isinstance(reply, ParsedReply):
        return _record(view, draft, reply)
    if reply is not None:
        return _failed(view, draft, reply)
    return _ask(view, draft)


# --- asking ------------------------------------------------------------------------------------


def _ask(view: View, draft: Draft) -> Answer:
    turn = _current(view)
    tried = view.attempts_of(None, AttemptKind.MODEL)
    lost = [a for a in tried if a.outcome is None and a.lost_at is None]
    journal.mark_lost(draft, lost)
    spending.settle_lost(draft, attempts=lost)
    if len(tried) >= settings.AGENTCORE_OPTIONS.model_attempts:
        last = next((a.error_class for a in reversed(tried) if a.error_class), "lost")
        return _give_up(view, draft, f"{len(tried)} model calls without a usable reply", last)
    held = throttling.held_model_call(view, draft)
    if held is not None:
        return _held_back(view, draft, held)
    pack = view.pack or _pack_of(view, turn)
    view.pack = None
    if pack is None:
        # The code or a row under it changed since the turn was compiled: never send what the
        # manifest does not describe.
        return _compile_again(draft, turn, "the compiled context changed", "context changed")
    timeout = float(settings.AGENTCORE_OPTIONS.model_timeout)
    attempt = journal.add_attempt(view, draft, kind=AttemptKind.MODEL, action=None, timeout=timeout)
    if not _reserve(view, draft, attempt, pack):
        return _out_of_budget(view, draft, attempt)
    return Call((ModelRequest(attempt_id=attempt.id, request=pack.request, timeout=timeout),))


def _held_back(view: View, draft: Draft, held: Held) -> Answer:
    """A limit has no room: the turn waits as it is, with the reason, and takes no worker."""
    if draft.first_state != RunState.CALLING_MODEL:
        return Again()  # the turn is committed first; waiting is a move of its own
    draft.move_run(RunState.RETRY_WAIT, resume_to=RunState.CALLING_MODEL, reason=held.reason)
    throttling.wait(draft, held)
    return Wait(min(held.until, view.run.deadline_at))


def _pack_of(view: View, turn: Turn) -> ContextPack | None:
    """The request of the turn as it was compiled; None when the rows give another one now."""
    try:
        frame = Frame.read(turn.manifest)
        pack = contexts.compile_turn(view, number=turn.number, frame=frame)
    except ContextError:
        return None
    return pack if pack.sha256 == turn.request_sha256 else None


def _compile_again(draft: Draft, turn: Turn, problem: str, cause: str) -> Answer:
    """Close a turn without a decision; it is no part of the history and takes none of the turns."""
    draft.set_row(
        turn,
        guard={"decision": ""},
        decision=contexts.NO_DECISION,
        problem=problem,
        decided_at=draft.now,
    )
    draft.move_run(RunState.COMPILING_CONTEXT, cause=cause)
    return Next()


def _reserve(view: View, draft: Draft, attempt: Attempt, pack: ContextPack) -> bool:
    """Book what the call may cost at most; False when that is not left."""
    model = view.agent.spec["model"]
    frame = Frame.read(pack.manifest)
    asked = view.agent.spec["settings"].get("max_output_tokens")
    output = frame.max_output_tokens or asked or TYPICAL_OUTPUT
    price = spending.price_for(model, attempt.started_at.date())
    spend = reservation(input=frame.input_tokens, output=output, price=price)
    allowed = spending.limits_of(view.run, view.agent.spec)
    if not allowed.allow(spending.account_of(view.run), spend):
        return False
    view.reserved[attempt.id] = spending.reserve(
        draft, attempt=attempt, model=model, spend=spend, price=price
    )
    return True


def _out_of_budget(view: View, draft: Draft, attempt: Attempt) -> Answer:
    """Another try of this call cannot be paid for: lost ones have used what was left."""
    view.attempts.remove(attempt)
    draft.new_rows.remove(attempt)
    draft.transitions.pop()
    detail = "the calls that were lost or failed have used what was left for this one"
    return end(view, draft, Stop(StopReason.BUDGET, detail))


# --- a reply -----------------------------------------------------------------------------------


def _record(view: View, draft: Draft, reply: ParsedReply) -> Answer:
    """The reply, all its actions and their verdicts: one transaction, before anything runs."""
    turn, run, decision = _current(view), view.run, reply.decision
    closing = turn.manifest["frame"]["closing"]
    kind, text, problem = _describe(decision)
    kind = limits.CLOSING if closing else kind
    draft.event = "turn.decided"
    draft.set_row(
        turn,
        guard={"decision": ""},
        output=reply.output,
        response_id=reply.response_id,
        decision=kind,
        text=place_in(reply.output, text),
        problem=problem,
        usage=reply.usage.as_json() if reply.usage else None,
        decided_at=draft.now,
    )
    draft.note(turn=turn.number, decision=kind)
    if closing:
        return end(view, draft, stop_of_closing(closing))
    if isinstance(decision, Invalid):
        return _invalid(view, draft, decision)
    draft.move_run(RunState.DISPATCHING_TOOLS)
    if isinstance(decision, ToolCalls):
        draft.set_run(actions_used=run.actions_used + len(decision.calls), invalid_replies=0)
        for ordinal, call in enumerate(decision.calls):
            propose(view, draft, call=call, ordinal=ordinal)
        if over := limits.over(view):
            _void(view, draft, over)
    elif isinstance(decision, Refusal):
        draft.set_run(stop_reason=StopReason.REFUSED, reason=f"the model refused: {text[:500]}")
    return Next()


def _void(view: View, draft: Draft, over: str) -> None:
    """A reply beyond a limit of calls is not run at all: what was allowed of it would be a choice
    that nobody made. The next turn then meets the limit, and what follows from it.
    """
    draft.note(limit=over)
    for action in view.turn_actions:
        if action.state in (ActionState.PROPOSED, ActionState.READY):
            draft.move_action(action, ActionState.VOIDED, reason="BUDGET", detail=over)


def stop_of_closing(closing: str) -> Stop:
    """The stop that a closing turn was opened for: `BUDGET: 12 turns used …`."""
    reason, _, detail = closing.partition(": ")
    return Stop(StopReason(reason), detail)


def _describe(decision: Final | ToolCalls | Refusal | Invalid) -> tuple[str, str, str]:
    """(stored kind, the model's text, the problem) of a decision; text made storable."""
    match decision:
        case Final(text=text):
            return "FINAL", canonical.clean_text(text), ""
        case ToolCalls(text=text):
            return "TOOL_CALLS", canonical.clean_text(text), ""
        case Refusal(text=text):
            return "REFUSAL", canonical.clean_text(text), ""
        case Invalid(code=code, detail=detail):
            return "INVALID", "", canonical.clean_text(f"{code}: {detail}")


def _invalid(view: View, draft: Draft, decision: Invalid) -> Answer:
    """A reply outside the protocol makes no actions; the model is told, at most N times."""
    count = draft.run.invalid_replies + 1
    draft.set_run(invalid_replies=count)
    if count >= settings.AGENTCORE_OPTIONS.max_invalid_replies:
        detail = f"{count} invalid replies, last: {decision.code}: {decision.detail}"
        failures.stop(view, draft, StopReason.MODEL_ERROR, detail, code=decision.code)
        return Next()
    draft.move_run(RunState.COMPILING_CONTEXT)
    return Next()


# --- no reply ----------------------------------------------------------------------------------


def _failed(view: View, draft: Draft, failure: ReplyFailure | ModelFailure) -> Answer:
    """A call without a decision: wait and ask again, or stop with the provider's own reason."""
    turn = _current(view)
    if closing := turn.manifest["frame"]["closing"]:
        return end(view, draft, stop_of_closing(closing))
    if explain(failure.code).cause is Cause.TOO_LONG:
        return _too_long(view, draft, turn, failure)
    tried = view.attempts_of(None, AttemptKind.MODEL)
    if not failure.transient or len(tried) >= settings.AGENTCORE_OPTIONS.model_attempts:
        return _give_up(view, draft, failure.detail, failure.code)
    wake_at = draft.now + timedelta(seconds=_delay(tried, getattr(failure, "retry_after", None)))
    draft.move_run(
        RunState.RETRY_WAIT,
        resume_to=RunState.CALLING_MODEL,
        reason=_said(failure.code, failure.detail)[:500],
    )
    return Wait(min(wake_at, draft.run.deadline_at))


def _delay(tried: list[Attempt], asked: float | None) -> float:
    """Seconds to the next try: at least what the provider asked for, never the same for all."""
    jitter = (tried[-1].id.int & 0xFFFF) / 0xFFFF
    return backoff(n=len(tried), base=BACKOFF, cap=BACKOFF_CAP, jitter=jitter, at_least=asked)


def _too_long(view: View, draft: Draft, turn: Turn, failure: ReplyFailure | ModelFailure) -> Answer:
    """Compact once, and only when there is something to compact; then stop."""
    frame = turn.manifest["frame"]
    earlier = [row for row in view.turns if row.problem.startswith(TOO_LONG)]
    whole = [
        row
        for row in view.turns
        if row.decision not in ("", contexts.NO_DECISION)
        and row.number >= frame["compacted_before"]
    ]
    if earlier or len(whole) < 2:
        detail = _said(failure.code, failure.detail)
        failures.stop(view, draft, StopReason.CONTEXT_ERROR, detail, code=failure.code)
        return Next()
    return _compile_again(draft, turn, f"{TOO_LONG}: {failure.detail[:300]}", "request too long")


def _give_up(view: View, draft: Draft, detail: str, code: str) -> Answer:
    failures.stop(view, draft, StopReason.MODEL_ERROR, _said(code, detail), code=code)
    return Next()


def _said(code: str, detail: str) -> str:
    """The reason for the operator: what happened, what it means, and the provider's own words."""
    return canonical.clean_text(f"model: {code}: {explain(code).advice} ({detail})")


def _current(view: View) -> Turn:
    turn = view.turn
    if turn is None or turn.number != view.run.turn:
        raise LookupError(f"run {view.run.id} is calling the model without turn {view.run.turn}")
    return turn
