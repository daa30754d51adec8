"""A streamed reply as text: put together into the body it would have been, or found to be cut.

Only the terminal event makes a reply: fragments never do. `response.output_item.done` events hold
whole items, and while streaming only there is encrypted content complete, so they replace those of
the terminal event. Items are matched by `output_index`, as proxies were seen to change their ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agentcore.values import Json

CONTENT_TYPE = "text/event-stream"
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_DELTA = "response.output_text.delta"


class StreamCut(Exception):  # noqa: N818
    """The stream ended before its terminal event, or said that it failed. `code` says which."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Assembler:
    """Takes the data of events one by one; `body` is there after the terminal one.

    `on_text` gets fragments of the answer for people who watch. Nothing else may use them.
    """

    def __init__(self, on_text: Callable[[str], None] | None = None) -> None:
        self._on_text = on_text
        self._items: dict[int, Json] = {}
        self._reply: dict[str, Json] | None = None

    def feed(self, event: Json) -> None:
        """Take the data of one event. Raises `StreamCut` for an `error` event."""
        if not isinstance(event, dict):
            return
        kind = event.get("type")
        if kind == "error":
            inner = event.get("error")
            error = inner if isinstance(inner, dict) else event
            code = str(error.get("code") or "stream_error")
            raise StreamCut(code, str(error.get("message", ""))[:500])
        if kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            index = event.get("output_index")
            self._items[index if isinstance(index, int) else len(self._items)] = event["item"]
        elif kind in _TERMINAL and isinstance(event.get("response"), dict):
            self._reply = dict(event["response"])
        elif kind == _DELTA and self._on_text is not None and isinstance(event.get("delta"), str):
            self._on_text(event["delta"])

    def body(self) -> str:
        """The reply as the JSON text of an unstreamed one. Raises `StreamCut` without an end."""
        if self._reply is None:
            raise StreamCut("stream_cut", "the stream ended before the reply was complete")
        if self._items:
            given = self._reply.get("output")
            last = len(given) if isinstance(given, list) else 0
            indexes = sorted({*self._items, *range(last)})
            self._reply["output"] = [
                self._items[index] if index in self._items else given[index]  # type: ignore[index]
                for index in indexes
            ]
        return json.dumps(self._reply)


def events(lines: Iterable[str]) -> Iterator[Any]:
    """The JSON data of each event in the lines of a stream. Raises ValueError for other data."""
    data: list[str] = []
    for raw in lines:
        line = raw.rstrip("\r\n")
        if line:
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            continue
        if data and data != ["[DONE]"]:
            yield json.loads("\n".join(data))
        data = []
    # What is left without its empty line was cut, so it is no event.


def assemble(text: str) -> str:
    """The body that a whole stream stands for. Raises `StreamCut`."""
    assembler = Assembler()
    try:
        for event in events(text.split("\n")):
            assembler.feed(event)
    except ValueError as error:
        raise StreamCut("stream_cut", f"an event is not JSON: {error}") from None
    return assembler.body()
