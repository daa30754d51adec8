"""The model of the workload: it reads the request as a real one would, and answers at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from agentcore.llm.base import ModelFailure, ModelReply
from agentcore.values import Json
from bench.stub.texts import MOST_TURNS, TEXTS


class StubModel:
    """Asks for one transfer a turn, and gives a final answer in the last.

    The run's input says how many turns (`turns`) and how many milliseconds a model call (`wait`)
    and a tool call (`tool_wait`) take; with `page` (characters) pages are read instead.
    """

    def create(
        self,
        *,
        request: dict[str, Json],
        timeout: float,  # noqa: ARG002  (the port's signature)
        on_text: Callable[[str], None] | None = None,  # noqa: ARG002
    ) -> ModelReply | ModelFailure:
        """One reply of the Responses API as text."""
        asked = _input(request)
        if wait := asked.get("wait", 0):
            time.sleep(wait / 1000)
        done = _turns_done(request)
        items = [_message(done)]
        if done < asked["turns"] - 1:
            items.append(_call(asked, done))
        body = {
            "id": f"resp_{done}",
            "object": "response",
            "status": "completed",
            "model": request["model"],
            "output": items,
            "usage": {"input_tokens": 400, "output_tokens": 80, "total_tokens": 480},
        }
        return ModelReply(json.dumps(body))


def client() -> StubModel:
    """What the option `model_api` names."""
    return StubModel()


def _input(request: dict[str, Json]) -> dict[str, Json]:
    """The run's input, as the context shows it to a model: after a heading, as JSON."""
    first = request["input"][0]["content"][0]["text"]
    found: dict[str, Json] = json.loads(first.partition("\n")[2])
    return found


def _turns_done(request: dict[str, Json]) -> int:
    """From the task state, the last item; calls may have been compacted away."""
    state = json.loads(request["input"][-1]["content"].partition("\n")[2])
    return int(MOST_TURNS - state["turns_left"])


def _message(done: int) -> dict[str, Json]:
    text = {"type": "output_text", "text": TEXTS[done % len(TEXTS)], "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{done}",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }


def _call(asked: dict[str, Json], done: int) -> dict[str, Json]:
    name, arguments = _transfer(asked, done)
    if "page" in asked:
        name, arguments = "stub__read_page", {"number": done, "size": asked["page"]}
    return {
        "type": "function_call",
        "id": f"fc_{done}",
        "call_id": f"call_{done}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def _transfer(asked: dict[str, Json], done: int) -> tuple[str, dict[str, Json]]:
    return "stub__transfer", {
        "account": asked.get("account", "main"),
        "number": done,
        "memo": TEXTS[done % len(TEXTS)][:40],
        "wait": asked.get("tool_wait", 0),
    }
