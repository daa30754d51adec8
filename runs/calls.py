"""Making the outside calls of a call set: no transaction open, no database connection held."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from agentcore import canonical, failpoints
from agentcore.decisions import ParsedReply, ReplyFailure, parse_reply
from agentcore.llm.base import ModelClient, ModelFailure
from agentcore.llm.chat_completions import ChatCompletionsClient
from agentcore.llm.openai_responses import ResponsesClient
from agentcore.values import (
    Absent,
    AttemptKind,
    AttemptOutcome,
    Conflict,
    Found,
    Inconclusive,
    NotDone,
    OutcomeKind,
    Pending,
    ProbeVerdict,
    Usage,
)
from runs import inflight, live, processor
from runs.journal import Result
from runs.steps.base import Call, ModelRequest, ToolRequest
from tools.invocation import invoke_postcondition, invoke_preview, invoke_tool
from tools.probes import invoke_probe


def perform(call: Call) -> tuple[Result, ...]:
    """Make every call of the set, reads side by side; never raises for what a call does."""
    if connection.in_atomic_block:
        raise RuntimeError("an outside call inside a transaction; commit the intent first")
    connection.close()
    failpoints.hit(f"{call.point}.before_call")
    with inflight.calling(seconds=call.seconds):
        results = _all(call.requests)
    failpoints.hit(f"{call.point}.after_call")
    return results


def _all(requests: Sequence[ToolRequest | ModelRequest]) -> tuple[Result, ...]:
    if len(requests) == 1:
        return (_one(requests[0]),)
    # One thread each: the set has one deadline, and who made the set has kept to the cap.
    with ThreadPoolExecutor(max_workers=len(requests)) as pool:
        return tuple(pool.map(_one_in_a_thread, requests))


def _one_in_a_thread(request: ToolRequest | ModelRequest) -> Result:
    """A tool may use the ORM; its thread must give the connection back."""
    try:
        return _one(request)
    finally:
        connection.close()


def _one(request: ToolRequest | ModelRequest) -> Result:
    if isinstance(request, ModelRequest):
        return _model(request)
    with processor.anywhere():
        outcome = _tool(request)
    return Result(attempt_id=request.attempt_id, outcome=outcome)


def _tool(request: ToolRequest) -> AttemptOutcome:
    call: dict[str, Any] = {
        "spec": request.spec,
        "context": request.context,
        "arguments": request.arguments,
    }
    match request.kind:
        case AttemptKind.TOOL:
            return invoke_tool(**call)
        case AttemptKind.PRECHECK:
            return invoke_preview(**call)
        case AttemptKind.POSTCONDITION:
            return invoke_postcondition(**call, result=request.result)
        case AttemptKind.PROBE:
            return _probe_outcome(invoke_probe(**call))
    raise ValueError(f"not a tool call: {request.kind}")


def _probe_outcome(verdict: ProbeVerdict) -> AttemptOutcome:
    """A probe's answer as a storable outcome; no answer is no effect, as it only reads."""
    match verdict:
        case Found(result=result, reference=reference, fingerprint_matches=matches):
            body = {
                "verdict": "found",
                "result": result,
                "reference": reference,
                "fingerprint_matches": matches,
            }
        case Absent():
            body = {"verdict": "absent"}
        case Pending(detail=detail):
            body = {"verdict": "pending", "detail": detail}
        case Conflict(detail=detail):
            body = {"verdict": "conflict", "detail": detail}
        case NotDone(detail=detail):
            body = {"verdict": "not_done", "detail": detail}
        case Inconclusive(detail=detail):
            body = {"verdict": "inconclusive", "detail": detail}
            return AttemptOutcome(
                OutcomeKind.NO_EFFECT, result=body, error_class="inconclusive", detail=detail
            )
    return AttemptOutcome(OutcomeKind.SUCCESS, result=body)


def _model(request: ModelRequest) -> Result:
    options = settings.AGENTCORE_OPTIONS
    client = _client(options)
    answer = client.create(
        request=request.request, timeout=request.timeout, on_text=live.sink(request.attempt_id)
    )
    reply = answer if isinstance(answer, ModelFailure) else parse_reply(answer.body)
    return Result(
        attempt_id=request.attempt_id,
        outcome=_model_outcome(reply),
        usage=_usage(reply),
        reply=reply,
    )


def _client(options: Any) -> ModelClient:
    """The adapter of the configured API; all answer in the form of the Responses API."""
    if ":" in options.model_api:
        made: ModelClient = import_string(options.model_api.replace(":", "."))()
        return made
    kind = ResponsesClient if options.model_api == "responses" else ChatCompletionsClient
    return kind(api_key=options.openai_api_key, base_url=options.openai_base_url)


def _model_outcome(reply: ParsedReply | ReplyFailure | ModelFailure) -> AttemptOutcome:
    if isinstance(reply, ParsedReply):
        return AttemptOutcome(
            OutcomeKind.SUCCESS, result=reply.envelope, reference=reply.response_id[:200]
        )
    kind = OutcomeKind.AMBIGUOUS if reply.transient else OutcomeKind.REFUSED
    return AttemptOutcome(
        kind,
        error_class=canonical.clean_text(reply.code, 80),
        detail=canonical.clean_text(reply.detail, 2000),
    )


def _usage(reply: ParsedReply | ReplyFailure | ModelFailure) -> dict[str, Any] | None:
    usage = getattr(reply, "usage", None)
    return usage.as_json() if isinstance(usage, Usage) else None
