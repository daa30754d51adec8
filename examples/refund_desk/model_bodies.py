"""Response bodies in the full shape of the Responses API, as recorded from it."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from examples.refund_desk.model_history import STEM, seal


@dataclass(frozen=True, slots=True)
class Call:
    """One function call to propose. `arguments` is the raw text; `call_id` empty makes one up."""

    name: str
    arguments: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the scripted model says in one turn: a text, calls, both, or a refusal."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    refusal: str = ""
    status: str = "completed"


def response_body(*, request: dict[str, Any], proposal: Proposal) -> dict[str, Any]:
    """A complete response for `request` that carries the proposal."""
    stem = secrets.token_hex(STEM // 2)
    output = _output(stem=stem, proposal=proposal)
    created_at = int(time.time())
    is_cut = proposal.status == "incomplete"
    return {
        "id": _item_id("resp", stem),
        "object": "response",
        "created_at": created_at,
        "status": proposal.status,
        "background": False,
        "billing": {"payer": "developer"},
        "completed_at": None if is_cut else created_at,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": request["model"],
        "moderation": None,
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": request.get("prompt_cache_key"),
        "prompt_cache_retention": "in_memory",
        "reasoning": {
            "context": "current_turn",
            "effort": "medium",
            "mode": "standard",
            "summary": None,
        },
        "safety_identifier": None,
        "service_tier": "default",
        "store": request.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(request=request, output=output),
        "user": None,
        "metadata": request.get("metadata") or {},
    }


def _item_id(prefix: str, stem: str) -> str:
    return f"{prefix}_{stem}{secrets.token_hex(16)}"


def _output(*, stem: str, proposal: Proposal) -> list[dict[str, Any]]:
    following = []
    if proposal.text or proposal.refusal:
        following.append(_message(stem=stem, proposal=proposal))
    following += [_function_call(stem=stem, call=call) for call in proposal.calls]
    reasoning = {
        "id": _item_id("rs", stem),
        "type": "reasoning",
        "content": [],
        "encrypted_content": seal(stem=stem, following=following),
        "summary": [],
    }
    return [reasoning, *following] if following else []


def _function_call(*, stem: str, call: Call) -> dict[str, Any]:
    return {
        "id": _item_id("fc", stem),
        "type": "function_call",
        "status": "completed",
        "arguments": call.arguments,
        "call_id": call.call_id or f"call_{secrets.token_urlsafe(18)}",
        "name": call.name,
    }


def _message(*, stem: str, proposal: Proposal) -> dict[str, Any]:
    if proposal.refusal:
        part: dict[str, Any] = {"type": "refusal", "refusal": proposal.refusal}
    else:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": proposal.text}
    return {
        "id": _item_id("msg", stem),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
        "phase": "commentary" if proposal.calls else "final_answer",
    }


def _usage(*, request: dict[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens at about four characters each, which is near enough for a budget."""
    tokens_in = len(json.dumps(request)) // 4
    tokens_out = max(1, len(json.dumps(output)) // 4)
    reasoning = tokens_out // 2
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": tokens_in + tokens_out,
    }
