"""The OpenAI Responses API through the official client. The only module that imports `openai`.

The client's own retries and its parsing stay out of it: one `create` is at most one request on
the wire, the request bytes are those that the context manifest hashes, and the reply body comes
back as text.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import httpx2
import openai
from openai import OpenAI, Stream

from agentcore.canonical import clean_text
from agentcore.context import ContextError, request_bytes
from agentcore.decisions import MAX_BODY
from agentcore.llm.base import ModelFailure, ModelReply
from agentcore.llm.sse import CONTENT_TYPE, Assembler, StreamCut, events
from agentcore.values import Json

CONNECT_TIMEOUT = 5.0
MAX_RETRY_AFTER = 24 * 3600.0
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
_TYPE = "content-type"
PERMANENT = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "invalid_api_key",
        "context_length_exceeded",
        "invalid_prompt",
    }
)
"""Codes that waiting does not cure, whatever the status or the place they came in."""

_clients: dict[tuple[int, str, str | None], OpenAI] = {}
_lock = threading.Lock()


class OpenAIHttp:
    """One POST to an OpenAI-like server, through the official client: bytes there, text back.

    Safe to share between threads and to carry through a fork.
    """

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url or None
        self._clock = clock

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._base_url!r})"

    def post(
        self,
        path: str,
        request: dict[str, Json],
        *,
        timeout: float,
        assembler: Assembler,
    ) -> ModelReply | ModelFailure:
        """Send `request` once and return the body text, or why there is none. Never raises.

        `timeout` (seconds) bounds connecting, each read, and the sum, looked at after each part
        of the body. A streamed reply goes through `assembler`; it is a reply only when its
        terminal event arrived.
        """
        if not self._api_key:
            return ModelFailure("no_api_key", "no API key is configured: set OPENAI_API_KEY", False)
        try:
            data = request_bytes(request)
        except ContextError as error:
            return self._failure("request_not_json", error, transient=False)
        try:
            return self._send(path, data, timeout, assembler)
        except (openai.APITimeoutError, httpx2.TimeoutException) as error:
            return self._failure("timeout", error)
        except openai.APIStatusError as error:
            return self._status_failure(error)
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            return self._failure("connection_error", error)
        except UnicodeDecodeError as error:
            return self._failure("reply_not_utf8", error)
        except StreamCut as error:
            return self._failure(error.code, error, transient=error.code not in PERMANENT)
        except Exception as error:  # noqa: BLE001  whatever else it raises is a failed call
            return self._failure("client_error", error)

    def _send(
        self, path: str, data: bytes, timeout: float, assembler: Assembler
    ) -> ModelReply | ModelFailure:
        client = _client(self._api_key, self._base_url)
        end = self._clock() + timeout
        limit = openai.Timeout(timeout, connect=min(CONNECT_TIMEOUT, timeout))
        # `stream` is about the HTTP body only: it is read here, within its limits.
        stream = client.post(
            path,
            content=data,
            cast_to=object,
            stream=True,
            stream_cls=Stream[object],
            options={
                "timeout": limit,
                "max_retries": 0,
                "follow_redirects": False,
                "security": {"bearer_auth": True},
            },
        )
        response = stream.response
        reader = _Reader(assembler, streamed=CONTENT_TYPE in response.headers.get(_TYPE, ""))
        try:
            for part in response.iter_bytes():
                reader.take(part)
                if reader.size > MAX_BODY:
                    return ModelFailure("reply_too_large", f"over {MAX_BODY} bytes", False)
                if self._clock() > end:
                    return ModelFailure("timeout", "the body did not end in time", True)
        finally:
            response.close()
        return ModelReply(reader.body())

    def _status_failure(self, error: openai.APIStatusError) -> ModelFailure:
        status = error.status_code
        code = str(error.code or error.type or f"http_{status}")
        transient = status >= 500 or status in _TRANSIENT_STATUS
        if PERMANENT & {str(error.code), str(error.type)}:
            transient = False
        after = retry_after(error.response.headers) if transient else None
        return self._failure(code, error, transient, after)

    def _failure(
        self,
        code: str,
        error: Exception,
        transient: bool = True,
        after: float | None = None,
    ) -> ModelFailure:
        detail = f"{type(error).__name__}: {error}"
        detail = detail.replace(self._api_key or "\0", "[key]")
        return ModelFailure(clean_text(code, 80), clean_text(detail, 500), transient, after)


class _Reader:
    """A body as it comes in: whole text, or the events of a stream."""

    def __init__(self, assembler: Assembler, *, streamed: bool) -> None:
        self.size = 0
        self._assembler = assembler
        self._streamed = streamed
        self._body = bytearray()

    def take(self, part: bytes) -> None:
        self.size += len(part)
        self._body += part
        if self._streamed:
            self._feed()

    def _feed(self) -> None:
        """The events that are whole so far; what follows the last blank line waits."""
        end = max(self._body.rfind(b"\n\n") + 2, self._body.rfind(b"\n\r\n") + 3)
        if end <= 3 and not self._body.startswith(b"\n"):
            return
        text = self._body[:end].decode("utf-8")
        del self._body[:end]
        try:
            for event in events(text.split("\n")):
                self._assembler.feed(event)
        except ValueError as error:
            raise StreamCut("stream_cut", f"an event is not JSON: {error}") from None

    def body(self) -> str:
        return self._assembler.body() if self._streamed else self._body.decode("utf-8")


class ResponsesClient(OpenAIHttp):
    """`POST {base_url}/responses`."""

    def create(
        self,
        *,
        request: dict[str, Json],
        timeout: float,
        on_text: Callable[[str], None] | None = None,
    ) -> ModelReply | ModelFailure:
        """Send `request` once and return the body text, or why there is none. Never raises."""
        whole = _stateless(request)
        return self.post("/responses", whole, timeout=timeout, assembler=Assembler(on_text))


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds the provider asks to wait (0 to a day), or None.

    Read from `retry-after-ms`, then `Retry-After` in seconds or as an HTTP date; a date counts
    from the reply's own `Date`, so no clock of ours is compared with theirs.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, MAX_RETRY_AFTER)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value and headers.get("date"):
        try:
            until, at = parsedate_to_datetime(value), parsedate_to_datetime(headers["date"])
            seconds = max(0.0, (until - at).total_seconds())
        except (TypeError, ValueError):
            return None
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _stateless(request: dict[str, Json]) -> dict[str, Json]:
    # The one strategy of history here: nothing stored remotely, reasoning comes back encrypted.
    include = list(request.get("include") or [])
    if "reasoning.encrypted_content" not in include:
        include.append("reasoning.encrypted_content")
    return {**request, "store": False, "include": include}


def _client(api_key: str, base_url: str | None) -> OpenAI:
    """The client of this process; connections must not be shared across a fork."""
    key = (os.getpid(), api_key, base_url)
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = OpenAI(api_key=api_key, base_url=base_url, max_retries=0)
            _clients[key] = client
        return client
