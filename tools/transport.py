"""HTTP for tools: one request, one reply, and the truth about what left this process.

`NotSent` is raised only for the closed list `PROVABLY_NOT_SENT`: in each of these cases no byte of
the request was handed to the network. From the first byte on every failure is `Ambiguous`. There
are no redirects, no retries, no proxies, no cookies and no reuse of connections.
"""

from __future__ import annotations

import http.client
import json as jsonlib
import math
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentcore.values import Json
from tools import clock
from tools.errors import Ambiguous, NotSent, Rejected, ReplyUnreadable, ToolError
from tools.fencing import the_transport
from tools.limits import TookTooLong, run_limited
from tools.storable import one_line
from tools.types import Money
from tools.wire import GuardedSocket

PROVABLY_NOT_SENT = frozenset(
    {
        "request_invalid",  # the request could not be built
        "send_by_passed",  # too late, before the first byte
        "dns_failure",
        "connection_refused",
        "connect_timeout",
        "connect_failed",  # no route, network down, reset while connecting
        "tls_handshake",
    }
)
MAX_BODY_BYTES = 1024 * 1024
WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
METHODS = WRITE_METHODS | {"GET", "HEAD", "OPTIONS"}
RETRYABLE_STATUSES = frozenset({408, 425, 429})  # refused before or after acting: cannot be told


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply. `body` holds at most 1 MB; `truncated` says that there was more."""

    status: int
    headers: Mapping[str, str]  # names in lower case; of repeated ones the last
    body: bytes = field(repr=False)
    method: str = "GET"
    truncated: bool = False
    after_write: bool = False  # an earlier request of the same call may have written

    def json(self) -> Json:
        """The body as JSON, or ReplyUnreadable."""
        wrote = self.method in WRITE_METHODS
        if self.truncated:
            raise ReplyUnreadable(
                f"the reply is larger than {MAX_BODY_BYTES} bytes",
                error_class="TOO_LARGE",
                status=self.status,
                wrote=wrote,
            )
        try:
            return jsonlib.loads(self.body)
        except (ValueError, RecursionError) as exc:
            raise ReplyUnreadable(
                f"the reply with status {self.status} is not JSON: {one_line(exc, limit=120)}",
                error_class="RESULT_UNREADABLE",
                status=self.status,
                wrote=wrote,
            ) from exc

    def raise_for_write(self) -> None:
        """Nothing for 2xx. Else Rejected for a 4xx that says no, Ambiguous for all others.

        408, 425, 429, 3xx and 5xx are ambiguous: they do not prove that nothing happened. So is
        every refusal that follows another write of the same call.
        """
        if 200 <= self.status < 300:
            return
        word, detail = f"http_{self.status}", f"HTTP {self.status}: {self._message()}"
        refused = 400 <= self.status < 500 and self.status not in RETRYABLE_STATUSES
        if refused and not self.after_write:
            raise Rejected(detail, error_class=word)
        raise Ambiguous(detail, error_class=word, retry_after=self._retry_after())

    def _message(self) -> str:
        try:
            body = jsonlib.loads(self.body)
        except (ValueError, RecursionError):
            return one_line(self.body[:1000].decode("utf-8", "replace")) or "no message"
        if isinstance(body, dict):
            for name in ("detail", "message", "error", "title"):
                value = body.get(name)
                if isinstance(value, dict):
                    value = value.get("message")
                if isinstance(value, str) and value.strip():
                    return one_line(value)
        return one_line(jsonlib.dumps(body, ensure_ascii=False))

    def _retry_after(self) -> float | None:
        text = self.headers.get("retry-after", "").strip()
        return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """One call's way out. `deadline` and `send_by` are seconds of `tools.clock.now()`."""

    deadline: float
    send_by: float
    write_headers: Mapping[str, str] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)  # those of this call that may have left
    tls: ssl.SSLContext | None = None

    def request(
        self, method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """Send one request and read the whole reply, whatever its status.

        `json` may hold Money, dates, UUIDs and models; a Secret must be revealed first. Raises
        NotSent or Ambiguous, each with a machine word as `error_class`; NotSent only while no
        earlier request of the same call may have written.
        """
        after_write = bool(self.writes)
        try:
            reply = self._request(method.upper(), url, json, headers or {})
        except NotSent as exc:
            if not after_write:
                raise
            raise Ambiguous(
                f"an earlier write of this call was sent; this one was not: {exc.detail}",
                error_class="not_sent_after_write",
            ) from exc
        return replace(reply, after_write=after_write)

    def _request(self, method: str, url: str, json: Any, headers: Mapping[str, str]) -> HttpReply:
        parts, body, sent_headers = self._build(method, url, json, headers)
        wire: GuardedSocket | None = None
        try:
            wire = self._connect(parts)
            return _exchange(wire, method, parts, body, sent_headers)
        except ToolError:
            raise
        except Exception as exc:
            raise _translate(exc, started=wire is not None and wire.started) from exc
        finally:
            if wire is not None:
                wire.hang_up()
                if wire.started and method in WRITE_METHODS:
                    self.writes.append(method)

    def _build(
        self, method: str, url: str, json: Any, headers: Mapping[str, str]
    ) -> tuple[SplitResult, bytes | None, dict[str, str]]:
        try:
            parts = _checked_url(url)
            self._check_names(method, headers)
            own = {"Accept": "application/json", "Connection": "close"}
            if method in WRITE_METHODS:
                own |= self.write_headers
            body = None
            if json is not None:
                own["Content-Type"] = "application/json"
                plain = to_jsonable_python(json, fallback=_plain)
                body = jsonlib.dumps(plain, allow_nan=False).encode()
            return parts, body, {**own, **headers}
        except (ValueError, TypeError, PydanticSerializationError, RecursionError) as exc:
            raise NotSent(one_line(exc), error_class="request_invalid") from exc

    def _check_names(self, method: str, headers: Mapping[str, str]) -> None:
        if method not in METHODS:
            raise ValueError(f"method {method[:20]!r} is not supported")
        taken = {name.lower() for name in self.write_headers}
        taken |= {"host", "connection", "content-length", "transfer-encoding"}
        for name in headers:
            if name.lower() in taken:
                raise ValueError(f"header {name} is set by the runtime")

    def _connect(self, parts: SplitResult) -> GuardedSocket:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        error: NotSent | None = None
        for family, kind, proto, _, address in self._resolve(host, port):
            try:
                raw = self._open(family, kind, proto, address)
            except NotSent as exc:
                error = exc
                continue
            if parts.scheme == "https":
                raw = self._encrypt(raw, host)
            return GuardedSocket(raw, deadline=self.deadline, send_by=self.send_by)
        raise error or NotSent(f"{host} has no address", error_class="dns_failure")

    def _time_to_connect(self) -> float:
        left = min(self.send_by, self.deadline) - clock.now()
        if left <= 0:
            raise NotSent("it is too late to start sending", error_class="send_by_passed")
        return min(left, 3600.0)

    def _resolve(self, host: str, port: int) -> list[Any]:
        def ask(flags: int) -> list[Any]:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)

        limit = self._time_to_connect()
        try:
            return ask(socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass  # not a literal address: ask the resolver, which knows no time limit of its own
        try:
            return run_limited(lambda: ask(0), seconds=limit)
        except (OSError, UnicodeError, TookTooLong) as exc:
            raise NotSent(one_line(f"{host}: {exc}"), error_class="dns_failure") from exc

    def _open(self, family: int, kind: int, proto: int, address: Any) -> socket.socket:
        limit = self._time_to_connect()
        raw = socket.socket(family, kind, proto)
        try:
            raw.settimeout(limit)
            with the_transport():
                raw.connect(address)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as exc:
            raw.close()
            word = "connect_failed"
            if isinstance(exc, TimeoutError):
                word = "connect_timeout"
            elif isinstance(exc, ConnectionRefusedError):
                word = "connection_refused"
            raise NotSent(one_line(f"{address[0]}:{address[1]}: {exc}"), error_class=word) from exc
        return raw

    def _encrypt(self, raw: socket.socket, host: str) -> socket.socket:
        try:
            raw.settimeout(self._time_to_connect())
            context = self.tls or ssl.create_default_context()
            return context.wrap_socket(raw, server_hostname=host)
        except (OSError, ValueError) as exc:
            raw.close()
            raise NotSent(one_line(exc), error_class="tls_handshake") from exc
        except NotSent:
            raw.close()
            raise


def _checked_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url[:80]!r} is not an absolute http or https address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not carry a user name or password")
    _ = parts.port  # raises ValueError when it is not a port
    return parts


def _plain(value: object) -> str:
    if isinstance(value, Money):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON; a Secret must be revealed")


def _exchange(
    wire: GuardedSocket,
    method: str,
    parts: SplitResult,
    body: bytes | None,
    headers: Mapping[str, str],
) -> HttpReply:
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    if parts.scheme == "https":
        connection.default_port = 443
    connection.sock = wire
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request(method, target, body=body, headers=dict(headers))
    with connection.getresponse() as reply:
        content = reply.read(MAX_BODY_BYTES + 1)
        if reply.length and len(content) <= MAX_BODY_BYTES:
            # `read(n)` does not notice that the connection ended before the promised length.
            raise http.client.IncompleteRead(content, reply.length)
        return HttpReply(
            status=reply.status,
            headers={name.lower(): value for name, value in reply.getheaders()},
            body=content[:MAX_BODY_BYTES],
            method=method,
            truncated=len(content) > MAX_BODY_BYTES,
        )


def _translate(exc: Exception, *, started: bool) -> ToolError:
    detail = one_line(f"{type(exc).__name__}: {exc}")
    if not started:
        return NotSent(detail, error_class="request_invalid")
    words: tuple[tuple[type[Exception], str], ...] = (
        (TimeoutError, "read_timeout"),
        (http.client.RemoteDisconnected, "closed_without_reply"),
        (http.client.IncompleteRead, "reply_cut"),
        (http.client.BadStatusLine, "unreadable_status_line"),
        (http.client.HTTPException, "unreadable_reply"),
        (ssl.SSLEOFError, "reply_cut"),
        (ConnectionResetError, "connection_reset"),
        (BrokenPipeError, "connection_reset"),
        (OSError, "connection_lost"),
    )
    for kind, word in words:
        if isinstance(exc, kind):
            return Ambiguous(detail, error_class=word)
    return Ambiguous(detail, error_class="unreadable_reply")


NEVER = math.inf
"""A time that never comes, for `deadline` and `send_by`."""
