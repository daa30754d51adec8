"""A receiver of webhooks on loopback that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Message:
    """One POST as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`answers` are given one after the other, then 200; each is (status, headers)."""

    url: str = ""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    stall: threading.Event = field(default_factory=threading.Event)
    stalls: bool = False


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run one for the time of the block."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.messages.append(Message(self.path, headers, self.rfile.read(length)))
            if state.stalls:
                state.stall.wait(30)
            status, extra = state.answers.pop(0) if state.answers else (200, {})
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        state.stall.set()
        server.shutdown()
        thread.join()
        server.server_close()
