"""Event streams for tests: a reply as the events that a server would have sent."""

from __future__ import annotations

import json
from typing import Any

from tests.agentcore.loopback import Answer


def stream_of(body: str, *, cut: int | None = None, end: bool = True) -> Answer:
    """A Responses reply as a stream. `cut`: only so many events; `end` False: no terminal one."""
    reply = json.loads(body)
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {}}]
    for index, item in enumerate(reply["output"]):
        opened = {**item, "status": "in_progress"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        deltas = _fragments(item)
        events += [{"type": "response.output_text.delta", "delta": text} for text in deltas]
        if item.get("arguments"):
            half = item["arguments"][: len(item["arguments"]) // 2]
            events.append({"type": "response.function_call_arguments.delta", "delta": half})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    if end:
        events.append({"type": f"response.{reply['status']}", "response": reply})
    return sse([json.dumps(event) for event in events[:cut]])


def sse(events: list[str], *, tail: str = "", newline: str = "\n") -> Answer:
    """Events as bytes on the wire."""
    lines = [f"event: x{newline}data: {event}{newline}{newline}" for event in events]
    return Answer(
        body=("".join(lines) + tail).encode(), headers={"content-type": "text/event-stream"}
    )


def _fragments(item: dict[str, Any]) -> list[str]:
    parts = item.get("content") if isinstance(item.get("content"), list) else []
    text = "".join(part.get("text", "") for part in parts or [])
    return [text[n : n + 5] for n in range(0, len(text), 5)]


def chat(content: str | None = None, *calls: Any, finish: str | None = None, **more: Any) -> str:
    """A chat completion. `calls` are (id, name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = [
            {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}
            for key, name, arguments in calls
        ]
    reason = finish or ("tool_calls" if calls else "stop")
    usage = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps({"id": "chatcmpl_1", "model": "m", "choices": [choice], "usage": usage})


def chat_stream(*deltas: dict[str, Any], finish: str | None = "stop") -> Answer:
    """A chat completion in chunks; `finish` None: cut."""
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})  # type: ignore[dict-item]
    return sse([json.dumps(chunk) for chunk in chunks], tail="data: [DONE]\n\n" if finish else "")
