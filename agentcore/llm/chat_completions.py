"""Chat Completions, for servers that lack the Responses API, behind the same interface.

The runtime knows one form, that of the Responses API: a request in it becomes chat messages here,
and the reply becomes the body that a Responses server would have sent. So decisions, history and
limits are the same code for both. What chat has no words for (reasoning items, items that a
provider ran) is left out of the messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentcore.llm.base import ModelFailure, ModelReply
from agentcore.llm.openai_responses import OpenAIHttp
from agentcore.llm.sse import Assembler, StreamCut
from agentcore.values import Json

Message = dict[str, Json]
_SAME_NAME = ("temperature", "top_p", "seed", "stop", "user", "metadata", "service_tier")
_FINISHED = {"stop": "", "tool_calls": "", "length": "max_output_tokens"}


class ChatCompletionsClient(OpenAIHttp):
    """`POST {base_url}/chat/completions`."""

    def create(
        self,
        *,
        request: dict[str, Json],
        timeout: float,
        on_text: Callable[[str], None] | None = None,
    ) -> ModelReply | ModelFailure:
        """Send `request` once and return its reply in the form of the Responses API."""
        answer = self.post(
            "/chat/completions",
            chat_request(request),
            timeout=timeout,
            assembler=ChatAssembler(on_text),
        )
        return answer if isinstance(answer, ModelFailure) else ModelReply(reply_of(answer.body))


# --- the request -------------------------------------------------------------------------------


def chat_request(request: dict[str, Json]) -> dict[str, Json]:
    """A Responses request as a chat request."""
    body: dict[str, Json] = {"model": request["model"], "messages": _messages(request)}
    body.update({name: request[name] for name in _SAME_NAME if name in request})
    if "max_output_tokens" in request:
        body["max_tokens"] = request["max_output_tokens"]
    if effort := (request.get("reasoning") or {}).get("effort"):
        body["reasoning_effort"] = effort
    form = (request.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        schema = {name: form[name] for name in ("name", "schema", "strict") if name in form}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form:
        body["response_format"] = form
    if request.get("tools"):
        body["tools"] = [_tool(tool) for tool in request["tools"]]
        body["parallel_tool_calls"] = request.get("parallel_tool_calls", True)
    if request.get("stream"):
        body.update(stream=True, stream_options={"include_usage": True})
    return body


def _tool(tool: dict[str, Json]) -> dict[str, Json]:
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if name in tool}}


def _messages(request: dict[str, Json]) -> list[Message]:
    messages: list[Message] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    for item in request.get("input") or []:
        _add(messages, item)
    return messages


def _add(messages: list[Message], item: dict[str, Json]) -> None:
    kind = item.get("type", "message")
    if kind == "function_call_output":
        output = item["output"]
        content = output if isinstance(output, str) else json.dumps(output)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        _speaker(messages).setdefault("tool_calls", []).append(call)
    elif kind == "message" and item.get("role") == "assistant":
        speaker = _speaker(messages)
        said = [speaker["content"], _text(item)]
        speaker["content"] = "\n".join(part for part in said if part) or None
    elif kind == "message":
        role = "system" if item.get("role") == "developer" else item.get("role", "user")
        messages.append({"role": role, "content": _text(item)})


def _speaker(messages: list[Message]) -> Message:
    """The assistant's message that this item belongs to: text and calls of a reply are one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _text(item: dict[str, Json]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


# --- the reply ---------------------------------------------------------------------------------


def reply_of(body: str) -> str:
    """A chat reply as the body of a Responses reply. What is no chat reply stays as it is, so
    that it is judged like any other text that is no reply.
    """
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return body
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return body
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return body
    finish = choices[0].get("finish_reason")
    cut = _FINISHED.get(finish, str(finish)) if isinstance(finish, str) else "no finish_reason"
    changed: dict[str, Json] = {
        **{name: value for name, value in reply.items() if name not in ("choices", "usage")},
        "object": "response",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": _items(message),
        "usage": _usage(reply.get("usage")),
    }
    return json.dumps(changed)


def _items(message: dict[str, Any]) -> list[Json]:
    items: list[Json] = []
    content = []
    if isinstance(message.get("content"), str) and message["content"]:
        content.append({"type": "output_text", "text": message["content"], "annotations": []})
    if message.get("refusal"):
        content.append({"type": "refusal", "refusal": message["refusal"]})
    if content:
        items.append({"type": "message", "role": "assistant", "content": content})
    calls = message.get("tool_calls")
    items += [_call(call) for call in (calls if isinstance(calls, list) else [])]
    if message.get("function_call"):  # the form before tool calls: it has no id to answer to
        items.append({"type": "function_call"})
    return items


def _call(call: Any) -> Json:
    """One call. A missing id is left missing: whoever reads it must not make one up."""
    if not isinstance(call, dict):
        return call
    if call.get("type") not in (None, "function"):
        return {"type": f"{call['type']}_tool_call", "call_id": call.get("id")}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    item = {"type": "function_call", "call_id": call.get("id")}
    return {**item, "name": function.get("name"), "arguments": function.get("arguments")}


def _usage(usage: Any) -> Json:
    if not isinstance(usage, dict):
        return None
    read = usage.get("prompt_tokens_details")
    made = usage.get("completion_tokens_details")
    return {
        "input_tokens": usage.get("prompt_tokens"),
        "input_tokens_details": {
            "cached_tokens": read.get("cached_tokens") if isinstance(read, dict) else 0
        },
        "output_tokens": usage.get("completion_tokens"),
        "output_tokens_details": {
            "reasoning_tokens": made.get("reasoning_tokens") if isinstance(made, dict) else 0
        },
    }


class ChatAssembler(Assembler):
    """Puts the chunks of a streamed chat reply together. Without a finish_reason it was cut."""

    def __init__(self, on_text: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._show = on_text
        self._head: dict[str, Json] = {}
        self._usage: Json = None
        self._said = ""
        self._refused = ""
        self._calls: dict[int, dict[str, Json]] = {}
        self._finish: str | None = None

    def feed(self, event: Json) -> None:
        if not isinstance(event, dict):
            return
        if event.get("error"):
            error = event["error"] if isinstance(event["error"], dict) else {}
            raise StreamCut(str(error.get("code") or "stream_error"), str(error.get("message", "")))
        self._head = self._head or {n: event[n] for n in ("id", "model") if n in event}
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or []:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else {}
        assert isinstance(delta, dict)  # noqa: S101  (for the type checker)
        if isinstance(delta.get("content"), str):
            self._said += delta["content"]
            if self._show is not None and delta["content"]:
                self._show(delta["content"])
        if isinstance(delta.get("refusal"), str):
            self._refused += delta["refusal"]
        for part in delta.get("tool_calls") or []:
            self._fragment(part)
        self._finish = choice.get("finish_reason") or self._finish

    def _fragment(self, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(part.get("index", len(self._calls)), {"function": {}})
        if part.get("id"):
            call["id"] = part["id"]
        function = part.get("function") or {}
        if function.get("name"):
            call["function"]["name"] = function["name"]
        if function.get("arguments"):
            call["function"].setdefault("arguments", "")
            call["function"]["arguments"] += function["arguments"]

    def body(self) -> str:
        if self._finish is None:
            raise StreamCut("stream_cut", "the stream ended before the reply was complete")
        message: dict[str, Json] = {"role": "assistant", "content": self._said or None}
        if self._refused:
            message["refusal"] = self._refused
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return json.dumps({**self._head, "choices": [choice], "usage": self._usage})
