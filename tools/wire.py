"""A connected socket that keeps the call's two times and knows whether a byte was sent."""

from __future__ import annotations

import io
import socket
from typing import Any

from tools import clock
from tools.errors import Ambiguous, NotSent

_MAX_WAIT = 3600.0


class GuardedSocket:
    """The part of a socket that `http.client` uses: `sendall`, `makefile` and `close`.

    `started` turns true just before the first byte is handed to the kernel, and never back.
    """

    def __init__(self, raw: socket.socket, *, deadline: float, send_by: float) -> None:
        self._raw = raw
        self._deadline = deadline
        self._send_by = send_by
        self.started = False

    def sendall(self, data: bytes) -> None:
        """Send all of `data`, asking the clock before each write.

        Raises NotSent when `send_by` passed before the first byte, else Ambiguous.
        """
        view = memoryview(data)
        while view:
            left = min(self._send_by, self._deadline) - clock.now()
            if left <= 0:
                self._too_late()
            self._raw.settimeout(min(left, _MAX_WAIT))
            self.started = True
            try:
                sent = self._raw.send(view)
            except TimeoutError as exc:
                raise Ambiguous(
                    "the other side stopped reading the request", error_class="send_timeout"
                ) from exc
            view = view[sent:]

    def _too_late(self) -> None:
        if self.started:
            raise Ambiguous(
                "part of the request was sent, then its time was over",
                error_class="send_by_passed_midway",
            )
        raise NotSent("it is too late to start sending", error_class="send_by_passed")

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader whose every receive gets only the time that is left for the whole call."""
        if mode != "rb":
            raise ValueError("only reading is offered")
        return io.BufferedReader(_TimedReader(self._raw, self._deadline))

    def close(self) -> None:
        """Nothing: `http.client` closes before the body is read; the owner calls `hang_up`."""

    def hang_up(self) -> None:
        """Close the connection; a second time does nothing."""
        self._raw.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: socket.socket, deadline: float) -> None:
        super().__init__()
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - clock.now()
        if left <= 0:
            raise TimeoutError("no time left to read the reply")
        self._raw.settimeout(min(left, _MAX_WAIT))
        return self._raw.recv_into(buffer)
