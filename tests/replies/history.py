"""Is a request's history one that the Responses API accepts? By the rules that were observed."""

from __future__ import annotations

from typing import Any

_ANSWERS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}


def problems(request: dict[str, Any]) -> list[str]:
    """Every broken rule of `request["input"]`; empty when it is valid."""
    items = request["input"]
    return [
        *_pairs(items),
        *_reasoning(items),
        *_complete(items),
        *_settings(request),
    ]


def _pairs(items: list[dict[str, Any]]) -> list[str]:
    """Each call is answered exactly once, after it and before the next reply."""
    found = []
    open_calls: list[str] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            if item["call_id"] in open_calls:
                found.append(f"call_id {item['call_id']} is open twice")
            open_calls.append(item["call_id"])
        elif kind in _ANSWERS:
            if item.get("call_id") not in open_calls:
                found.append(f"no tool call found for output {item.get('call_id')}")
            else:
                open_calls.remove(item["call_id"])
            if not isinstance(item.get("output"), str):
                found.append("an output is not text")
        elif kind == "message" and item.get("role") != "assistant" and open_calls:
            found.append(f"no tool output found for {open_calls}")
        elif kind in ("custom_tool_call", "mcp_approval_request", "computer_call"):
            found.append(f"{kind} is sent again without an answer")
    if open_calls:
        found.append(f"no tool output found for {open_calls}")
    return found


def _reasoning(items: list[dict[str, Any]]) -> list[str]:
    found = []
    for item, following in zip(items, [*items[1:], None], strict=True):
        if item.get("type") != "reasoning":
            continue
        kind = following.get("type", "message") if following else "nothing"
        role = following.get("role") if following else None
        if kind == "nothing" or kind.endswith("_output") or role in ("user", "developer"):
            found.append(f"reasoning {item.get('id')} without its following item")
    return found


def _complete(items: list[dict[str, Any]]) -> list[str]:
    return [
        f"{item['type']} is sent again with status {item['status']}"
        for item in items
        if item.get("status") in ("incomplete", "in_progress", "queued")
    ]


def _settings(request: dict[str, Any]) -> list[str]:
    """One strategy of history: nothing stored remotely, reasoning comes back encrypted."""
    found = []
    if request.get("store") is not False:
        found.append("store is not false")
    if "reasoning.encrypted_content" not in request.get("include", []):
        found.append("encrypted reasoning is not asked for")
    mixed = {"previous_response_id", "conversation"} & set(request)
    return found + [f"{name} is a second strategy" for name in sorted(mixed)]
