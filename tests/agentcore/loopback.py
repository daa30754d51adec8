"""A real HTTP server on loopback that answers from a script and keeps what it was sent."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What one request gets. `mode`: "whole", "hang" (no answer), "reset" (RST), "cut" (the
    connection closes inside the body), "drip" (a byte at a time, for ever)."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    mode: str = "whole"


@dataclass
class Loopback:
    """`url` for the client, `script` of answers (the last one repeats), `received` requests."""

    url: str = ""
    script: list[Answer] = field(default_factory=list)
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def next(self) -> Answer:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def serving() -> Iterator[Loopback]:
    loopback = Loopback()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(loopback))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    loopback.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield loopback
    finally:
        loopback.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            loopback.received.append((self.path, headers, data))
            answer = loopback.next()
            if answer.mode == "hang":
                loopback.stopping.wait()
                self.close_connection = True
            elif answer.mode == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                self.close_connection = True
            else:
                self._write(answer)

        def _write(self, answer: Answer) -> None:
            extra = 0 if answer.mode == "whole" else 1_000_000
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + extra))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = bool(extra)
            while answer.mode == "drip" and not loopback.stopping.wait(0.02):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return

        def log_message(self, *args: object) -> None:
            """Quiet."""

    return Handler
