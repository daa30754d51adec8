"""A small JSON-over-HTTP server on loopback, shared by the example's two services.

An application is one function `Request -> Reply`. Everything is stdlib, one thread a connection.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, urlsplit

MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` has no query; `query` keeps the first value of each name."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is not JSON."""
        return json.loads(self.body or b"null")


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer. A `str` body is sent as HTML, anything else as JSON.

    `drop` closes the connection without a byte; `cut` sends the head and half of the body first.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: bool = False


DROP = Reply(drop=True)
Application = Callable[[Request], Reply]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # one write a reply: head and body in separate packets cost 40 ms
    application: Application

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self._send(Reply(status=413, body={"error": "body too large"}))
            self.close_connection = True
            return
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=url.path,
            query={name: values[0] for name, values in parse_qs(url.query).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length),
        )
        self._send(type(self).application(request))

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _serve  # noqa: N815  (names of the base class)

    def _send(self, reply: Reply) -> None:
        if reply.drop:
            self.close_connection = True
            return
        is_html = isinstance(reply.body, str)
        payload = (reply.body if is_html else json.dumps(reply.body)).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/html" if is_html else "application/json")
        self.send_header("Content-Length", str(len(payload)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.cut:
            self.close_connection = True
            payload = payload[: len(payload) // 2]
        self.wfile.write(payload)

    def log_message(self, *args: Any) -> None:
        """Stay quiet: the services count their requests themselves."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is normal here; anything else is printed in full."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def serve(*, name: str, application: Application, port: int) -> None:
    """Serve on 127.0.0.1 until SIGTERM or Ctrl-C; prints one JSON line when ready.

    Port 0 takes a free one. A port that is in use ends the process with a clear message.
    """
    handler = type("Handler", (_Handler,), {"application": staticmethod(application)})
    try:
        server = _Server(("127.0.0.1", port), handler)
    except OSError as error:
        message = f"{name}: port {port} cannot be used ({error.strerror}); try --port 0"
        raise SystemExit(message) from None

    signal.signal(signal.SIGTERM, _stop)
    actual = server.server_address[1]
    print(
        json.dumps({"service": name, "port": actual, "url": f"http://127.0.0.1:{actual}"}),
        flush=True,
    )
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
