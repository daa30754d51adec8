"""What did the model decide? A raw reply body becomes one value of a closed union.

The body is read as JSON, never validated against the provider's document: real servers leave
fields out and add others. Nothing that is cut, doubtful or not ours to run becomes a tool call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from agentcore.canonical import clean_text, storable
from agentcore.values import Json, ToolCall, Usage

MAX_BODY = 16 * 1024 * 1024  # characters
MAX_DEPTH = 200
MAX_CALLS = 64
MAX_ARGUMENTS = 256 * 1024  # characters
MAX_TEXT = 1024 * 1024  # characters
MAX_CALL_ID = 200
MAX_NAME = 120

MAX_ENVELOPE = 16 * 1024  # characters
_ECHO = frozenset(
    {
        "output",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "temperature",
        "top_p",
        "top_logprobs",
        "max_output_tokens",
        "max_tool_calls",
        "truncation",
        "metadata",
        "user",
        "prompt",
        "prompt_cache_key",
        "safety_identifier",
    }
)
"""Fields of a reply that repeat the request, and its items, which are kept by themselves."""

_TRANSIENT = frozenset(
    {"server_error", "rate_limit_exceeded", "server_is_overloaded", "vector_store_timeout"}
)
_UNFINISHED = frozenset({"in_progress", "incomplete", "queued"})
_PROVIDER_RUN = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "reasoning",
        "compaction",
        "program",
    }
)
_ASKS_CLIENT = frozenset(
    {
        "custom_tool_call",
        "mcp_approval_request",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    }
)


@dataclass(frozen=True, slots=True)
class Final:
    """An answer and no calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Complete calls in the order of the reply, with the text that stood beside them."""

    calls: tuple[ToolCall, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declines."""

    text: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """A reply from which nothing may run. `code` is a machine word, `detail` is for the model."""

    code: str
    detail: str


Decision = Final | ToolCalls | Refusal | Invalid


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A finished reply. `output` is the JSON text of its items, untouched and in order, in ASCII
    (NUL and lone surrogates stay as escapes). All other text is safe to store.

    `envelope`: what else the reply said, such as its status and fields that are not known here;
    without what only repeats the request.
    """

    decision: Decision
    output: str
    response_id: str
    model: str
    usage: Usage | None
    envelope: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplyFailure:
    """No reply that can be judged: the model call failed. `transient`: asking again may help."""

    code: str
    detail: str
    transient: bool
    usage: Usage | None = None


def _depth_exceeds(value: Json, limit: int) -> bool:
    """Whether lists and objects are nested deeper than `limit`; without recursion."""
    level: list[Json] = [value]
    for _ in range(limit):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        if not inner:
            return False
        level = inner
    return True


def parse_reply(body: str) -> ParsedReply | ReplyFailure:
    """Judge the text of a `POST /responses` reply. Never raises."""
    if len(body) > MAX_BODY:
        return ReplyFailure("reply_too_large", f"{len(body)} characters", transient=False)
    try:
        reply = json.loads(body, parse_float=_finite, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        kind = "a page" if body.lstrip()[:1] == "<" else "text"
        detail = f"the body is {kind}, not JSON: {error}"
        return ReplyFailure("reply_not_json", clean_text(detail, 300), transient=True)
    if _depth_exceeds(reply, MAX_DEPTH):  # readable here, but not where it is read again
        detail = f"nested deeper than {MAX_DEPTH} levels"
        return ReplyFailure("reply_too_deep", detail, transient=True)
    if not isinstance(reply, dict):
        return ReplyFailure("reply_not_a_response", "JSON, but no object", transient=True)
    return _failure(reply) or _judged(reply)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _failure(reply: dict[str, Any]) -> ReplyFailure | None:
    status, usage = reply.get("status"), _usage(reply)
    if status == "failed" or (status is None and reply.get("error")):
        error = reply.get("error")
        error = error if isinstance(error, dict) else {}
        code = _word(error.get("code") or error.get("type")) or "unknown"
        detail = clean_text(str(error.get("message") or "the provider gave no reason"), 500)
        return ReplyFailure(code, detail, code in _TRANSIENT, usage)
    if status == "cancelled":
        return ReplyFailure("reply_cancelled", "the provider cancelled it", False, usage)
    if status not in (None, "completed", "incomplete"):
        detail = f"status {clean_text(str(status), 60)}"
        return ReplyFailure("reply_not_finished", detail, True, usage)
    if not isinstance(reply.get("output"), list):
        return ReplyFailure("reply_not_a_response", "there is no list of items", True, usage)
    return None


def _judged(reply: dict[str, Any]) -> ParsedReply:
    items: list[Json] = reply["output"]
    if reply.get("status") == "incomplete":
        details = reply.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        decision: Decision = Invalid("incomplete", _word(reason) or "no reason given")
    else:
        decision = decide(items)
    return ParsedReply(
        decision=decision,
        output=json.dumps(items, ensure_ascii=True, separators=(",", ":")),
        response_id=_word(reply.get("id"), 200),
        model=_word(reply.get("model"), 120),
        usage=_usage(reply),
        envelope=_envelope(reply),
    )


def _envelope(reply: dict[str, Any]) -> dict[str, Json]:
    """The fields of a reply that neither its items nor the request hold, made storable."""
    kept = {clean_text(name): reply[name] for name in reply if name not in _ECHO}
    try:
        kept = _storable(kept)
        size = len(json.dumps(kept))
    except RecursionError:
        size = MAX_ENVELOPE + 1
    return kept if size <= MAX_ENVELOPE else {"status": _word(reply.get("status"))}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(name): _storable(item) for name, item in value.items()}
    return value


def decide(items: list[Json]) -> Decision:
    """The decision in the items of a reply that the provider calls finished."""
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            return Invalid("malformed_item", "an output item is not an object with a type")
    unsupported = _unsupported(items)
    if unsupported:
        return Invalid("unsupported_item", f"{unsupported} is not offered here")
    calls = [item for item in items if item["type"] == "function_call"]
    problem = _unfinished(items) or _calls_problem(calls)
    if problem:
        return problem
    text, refusal = _said(items)
    if calls and refusal:
        return Invalid("refusal_with_calls", "a refusal and calls in one reply")
    if len(text) > MAX_TEXT:
        return Invalid("text_too_large", f"the text has {len(text)} characters")
    if calls:
        return ToolCalls(tuple(_call(item) for item in calls), text)
    if refusal:
        return Refusal(refusal)
    return _answer(items, text)


def _answer(items: list[Json], text: str) -> Final | Invalid:
    answers = [item for item in _messages(items) if item.get("phase") != "commentary"]
    if not answers and text.strip():
        return Invalid("commentary_only", "the reply announces something but does nothing")
    marked = [item for item in answers if item.get("phase") == "final_answer"]
    answer = "\n".join(filter(None, (_text_of(item) for item in marked or answers)))
    if not answer.strip():
        return Invalid("empty_output", "the reply holds neither an answer nor a call")
    return Final(answer)


def _unsupported(items: list[Json]) -> str:
    """The type of the first item that waits for the client and is no function call, or ""."""
    answered = {
        item.get("call_id")
        for item in items
        if item["type"].endswith("_output") and isinstance(item.get("call_id"), str)
    }
    for item in items:
        kind, call_id = item["type"], item.get("call_id")
        if kind == "function_call" or kind in _PROVIDER_RUN or kind.endswith("_output"):
            continue
        # What is not known here but carries a call_id expects an output from the client.
        asks = kind in _ASKS_CLIENT or call_id is not None or item.get("execution") == "client"
        if asks and not (isinstance(call_id, str) and call_id in answered):
            return clean_text(kind, 60)
    return ""


def _unfinished(items: list[Json]) -> Invalid | None:
    for item in items:
        status = item.get("status")
        if status is not None and not isinstance(status, str):
            return Invalid("malformed_item", "the status of an output item is not text")
        if item["type"] in ("function_call", "message") and status in _UNFINISHED:
            return Invalid("unfinished_item", f"{item['type']} has status {item['status']}")
    return None


def _calls_problem(calls: list[dict[str, Any]]) -> Invalid | None:
    if len(calls) > MAX_CALLS:
        return Invalid("too_many_calls", f"{len(calls)} calls, at most {MAX_CALLS} in one reply")
    seen: set[str] = set()
    for item in calls:
        call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
        if not _label(call_id, MAX_CALL_ID) or not _label(name, MAX_NAME):
            return Invalid("malformed_call", "a call without a usable call_id or name")
        if not isinstance(arguments, str):
            return Invalid("malformed_call", "the arguments of a call are not text")
        if len(arguments) > MAX_ARGUMENTS:
            return Invalid("arguments_too_large", f"more than {MAX_ARGUMENTS} characters")
        if call_id in seen:
            return Invalid("duplicate_call_id", "two calls of one reply share a call_id")
        seen.add(str(call_id))
    return None


def _label(value: object, limit: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= limit and storable(value)


def _call(item: dict[str, Any]) -> ToolCall:
    name, namespace = item["name"], item.get("namespace")
    if isinstance(namespace, str) and namespace:
        # Never one of our tools: we offer none in a namespace, and a dot is in no wire name.
        name = clean_text(f"{namespace}.{name}", MAX_NAME)
    return ToolCall(item["call_id"], name, item["arguments"])


def _messages(items: list[Json]) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == "message"]


def _parts(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        yield {"type": "output_text", "text": content}
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield part


def _text_of(item: dict[str, Any]) -> str:
    texts = (p.get("text") for p in _parts(item) if p.get("type") in ("output_text", "text"))
    return clean_text("".join(text for text in texts if isinstance(text, str)))


def _said(items: list[Json]) -> tuple[str, str]:
    """All text and all refusals of the messages."""
    messages = _messages(items)
    refusals = (
        str(part.get("refusal") or "refused")
        for item in messages
        for part in _parts(item)
        if part.get("type") == "refusal"
    )
    text = "\n".join(filter(None, (_text_of(item) for item in messages)))
    return text, clean_text("\n".join(refusals), MAX_TEXT)


def _word(value: object, limit: int = 80) -> str:
    return clean_text(value, limit) if isinstance(value, str) else ""


def _usage(reply: dict[str, Any]) -> Usage | None:
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        cached_tokens=_count(usage.get("input_tokens_details"), "cached_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        reasoning_tokens=_count(usage.get("output_tokens_details"), "reasoning_tokens"),
    )


def _count(where: object, name: str) -> int:
    value = where.get(name) if isinstance(where, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        return 0
    return value
