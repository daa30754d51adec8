"""A real stream server, and a reader of event streams that can be cut anywhere."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.embedded.ports import free_port
from config.processes import start_process, stop_process, stream_command, wait_for_http
from runs.models import Event, Run
from runs.transitions import locked_run


@contextmanager
def stream_server(
    env: Mapping[str, str], folder: Path, *, port: int = 0, **options: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """uvicorn on a port of loopback: (port, process)."""
    port = port or free_port()
    log = folder / "streams.log"
    process = start_process(stream_command(port=port), env={**env, **options}, log=log)
    try:
        wait_for_http(f"http://127.0.0.1:{port}/healthz", process=process, log=log)
        yield port, process
    finally:
        stop_process(process)


@dataclass
class Stream:
    """One connection. `events` are (id, type, data) as they came; `done` and `closed` its end."""

    sock: socket.socket
    status: int = 0
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    comments: int = 0
    done: bool = False
    closed: bool = False
    _buffer: bytes = b""
    _body: bytes = b""

    def read(self, *, until: int | None = None, seconds: float = 10) -> None:
        """Read until there are `until` events, or the end. Raises TimeoutError."""
        limit = time.monotonic() + seconds
        while not self.closed and (until is None or len(self.events) < until):
            self._more(limit)

    def read_comment(self, *, seconds: float = 10) -> None:
        limit = time.monotonic() + seconds
        while not self.comments:
            self._more(limit)

    def cut_after(self, count: int, *, seconds: float = 10) -> None:
        """Read until at least `count` bytes of the body have come, forget the rest, and leave."""
        limit = time.monotonic() + seconds
        while not self.closed and len(self._body) < count:
            self._more(limit)
        self.sock.close()
        self.events.clear()
        self._parse(self._body[:count])

    def _more(self, limit: float) -> None:
        self.sock.settimeout(max(0.01, limit - time.monotonic()))
        data = self.sock.recv(65536)
        if not data:
            self.closed = True
            return
        self._buffer += data
        self._unchunk()
        self.events.clear()
        self._parse(self._body)

    def _unchunk(self) -> None:
        if not self.status:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            self.status, self._buffer = int(head.split()[1]), rest
            if self.status != 200:
                self.closed = True
                return
        while b"\r\n" in self._buffer:
            size_text, _, rest = self._buffer.partition(b"\r\n")
            size = int(size_text, 16)
            if len(rest) < size + 2:
                return
            self._body, self._buffer = self._body + rest[:size], rest[size + 2 :]
            self.closed = self.closed or size == 0

    def _parse(self, body: bytes) -> None:
        self.comments = 0
        *blocks, _ = body.decode("utf-8", "ignore").split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line[:1] != ":")
            self.comments += block.startswith(":")
            if "id" in fields:
                data = json.loads(fields["data"])
                self.events.append((int(fields["id"]), fields["event"], data))
            self.done = self.done or fields.get("event") == "done"


@contextmanager
def open_stream(
    port: int, token: str, run: Run, *, after: int | None = None, query: str = ""
) -> Iterator[Stream]:
    """Ask for the events of a run as a stream."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        lines = [
            f"GET /api/v1/runs/run_{run.id.hex}/events{query} HTTP/1.1",
            "Host: localhost",
            "Accept: text/event-stream",
            f"Authorization: Bearer {token}",
        ]
        lines += [] if after is None else [f"Last-Event-ID: {after}"]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        yield Stream(sock)


def add_events(run: Run, count: int = 1) -> None:
    """Let something happen to a run."""
    for number in range(count):
        with locked_run(run.pk, actor="worker:test", event="run.advanced") as draft:
            draft.note(number=number)
            draft.set_run(wake_at=draft.run.wake_at)


def log_of(run: Run) -> list[int]:
    return list(Event.objects.filter(run=run).order_by("seq").values_list("seq", flat=True))
