"""Link 2: ask the model once, then record its whole decision before any of it runs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from django.conf import settings

from agentcore import canonical
from agentcore.decisions import Final, Invalid, ParsedReply, Refusal, ReplyFailure, ToolCalls
from agentcore.lifecycle import RunState, StopReason
from agentcore.llm.base import ModelFailure
from agentcore.retries import backoff
from agentcore.values import AttemptKind
from runs import journal
from runs.models import Attempt, Turn
from runs.steps.base import Answer, Call, ModelRequest, Next, Wait
from runs.steps.compile_context import compile_pack
from runs.steps.judging import propose
from runs.transitions import Draft
from runs.view import View


def plan(view: View, draft: Draft) -> Answer:
    """Record the reply in hand, deal with a failed call, or draft the next attempt."""
    reply, view.reply = view.reply, None
    if isinstance(reply, ParsedReply):
        return _record(view, draft, reply)
    if reply is not None:
        return _failed(view, draft, reply)
    return _ask(view, draft)


def _ask(view: View, draft: Draft) -> Answer:
    turn = _current(view)
    tried = view.attempts_of(None, AttemptKind.MODEL)
    journal.mark_lost(draft, [a for a in tried if a.outcome is None and a.lost_at is None])
    if len(tried) >= settings.AGENTCORE_OPTIONS.model_attempts:
        last = next((a.error_class for a in reversed(tried) if a.error_class), "lost")
        return _give_up(draft, f"{len(tried)} model calls without a usable reply, last: {last}")
    pack = view.pack or compile_pack(view)
    view.pack = None
    if pack.sha256 != turn.request_sha256:
        # The code or a row under it changed since the turn was compiled: never send what the
        # manifest does not describe.
        problem = "the compiled context changed; the turn is compiled again"
        draft.set_row(
            turn, guard={"decision": ""}, decision="INVALID", problem=problem, decided_at=draft.now
        )
        draft.move_run(RunState.COMPILING_CONTEXT, cause="context changed")
        return Next()
    timeout = float(settings.AGENTCORE_OPTIONS.model_timeout)
    attempt = journal.add_attempt(view, draft, kind=AttemptKind.MODEL, action=None, timeout=timeout)
    return Call((ModelRequest(attempt_id=attempt.id, request=pack.request, timeout=timeout),))


def _record(view: View, draft: Draft, reply: ParsedReply) -> Answer:
    """The reply, all its actions and their verdicts: one transaction, before anything runs."""
    turn, run, decision = _current(view), view.run, reply.decision
    kind, text, problem = _describe(decision)
    draft.event = "turn.decided"
    draft.set_row(
        turn,
        guard={"decision": ""},
        output=reply.output,
        response_id=reply.response_id,
        decision=kind,
        text=text,
        problem=problem,
        usage=asdict(reply.usage) if reply.usage else None,
        decided_at=draft.now,
    )
    draft.note(turn=turn.number, decision=kind)
    if isinstance(decision, Invalid):
        return _invalid(draft, decision)
    draft.move_run(RunState.DISPATCHING_TOOLS)
    if isinstance(decision, ToolCalls):
        draft.set_run(actions_used=run.actions_used + len(decision.calls), invalid_replies=0)
        for ordinal, call in enumerate(decision.calls):
            propose(view, draft, call=call, ordinal=ordinal)
        if run.actions_used > run.max_actions:
            draft.set_run(
                stop_reason=StopReason.BUDGET,
                reason=f"action {run.actions_used} proposed, {run.max_actions} are allowed",
            )
    elif isinstance(decision, Refusal):
        draft.set_run(stop_reason=StopReason.REFUSED, reason=f"the model refused: {text[:500]}")
    return Next()


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


def _invalid(draft: Draft, decision: Invalid) -> Answer:
    """A reply outside the protocol makes no actions; the model is told, at most N times."""
    count = draft.run.invalid_replies + 1
    draft.set_run(invalid_replies=count)
    if count >= settings.AGENTCORE_OPTIONS.max_invalid_replies:
        return _give_up(draft, f"{count} invalid replies, last: {decision.code}: {decision.detail}")
    draft.move_run(RunState.COMPILING_CONTEXT)
    return Next()


def _failed(view: View, draft: Draft, failure: ReplyFailure | ModelFailure) -> Answer:
    """A call without a decision: wait and ask again, or stop with the provider's own reason."""
    tried = view.attempts_of(None, AttemptKind.MODEL)
    options = settings.AGENTCORE_OPTIONS
    if not failure.transient or len(tried) >= options.model_attempts:
        return _give_up(draft, f"model: {failure.code}: {failure.detail}")
    asked = getattr(failure, "retry_after", None)
    delay = max(asked or 0.0, backoff(n=len(tried), base=1.0, cap=60.0, jitter=_jitter(tried[-1])))
    wake_at = draft.now + timedelta(seconds=delay)
    draft.move_run(
        RunState.RETRY_WAIT,
        resume_to=RunState.CALLING_MODEL,
        reason=canonical.clean_text(f"model: {failure.code}: {failure.detail}"[:500]),
    )
    return Wait(min(wake_at, draft.run.deadline_at))


def _jitter(attempt: Attempt) -> float:
    """A number from 0 to 1 that differs between runs and is the same for one attempt."""
    return (attempt.id.int & 0xFFFF) / 0xFFFF


def _give_up(draft: Draft, reason: str) -> Answer:
    draft.set_run(stop_reason=StopReason.MODEL_ERROR, reason=canonical.clean_text(reason)[:2000])
    return Next()


def _current(view: View) -> Turn:
    turn = view.turn
    if turn is None or turn.number != view.run.turn:
        raise LookupError(f"run {view.run.id} is calling the model without turn {view.run.turn}")
    return turn
