"""Inside the process under test: put the tracer around every I/O boundary, by patching."""

from __future__ import annotations

import functools
import random
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.faults.exhaustive.trace import Tracer, sql_text

_KEY = re.compile(rb"[^A-Za-z_.]")


def patch_everything(tracer: Tracer) -> None:
    """Every SQL statement, COMMIT and ROLLBACK; broker command; HTTP send and receive."""
    _patch_database(tracer)
    _patch_broker(tracer)
    _patch_tools(tracer)
    _patch_model(tracer)
    _patch_messages(tracer)
    tracer.inherit()


def _patch_database(tracer: Tracer) -> None:
    import psycopg

    execute = psycopg.Cursor.execute
    commit, rollback = psycopg.Connection.commit, psycopg.Connection.rollback
    connect = psycopg.Connection.__dict__["connect"].__func__

    @functools.wraps(execute)
    def executing(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = sql_text(query)
        self.connection._last = text
        call = functools.partial(execute, self, query, *args, **kwargs)
        return tracer.around("sql", text, call, link=self.connection)

    def ending(word: str, end: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(self: Any) -> None:
            if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                return end(self)  # sends nothing
            text = f"{word} after {getattr(self, '_last', '')[:60]}"
            return tracer.around("sql", text, functools.partial(end, self), link=self)

        return run

    def connecting(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return tracer.around("sql", "connect", functools.partial(connect, cls, *args, **kwargs))

    psycopg.Cursor.execute = executing  # type: ignore[method-assign,assignment]
    psycopg.Connection.commit = ending("COMMIT", commit)  # type: ignore[method-assign]
    psycopg.Connection.rollback = ending("ROLLBACK", rollback)  # type: ignore[method-assign]
    psycopg.Connection.connect = classmethod(connecting)  # type: ignore[assignment,method-assign]


def _patch_broker(tracer: Tracer) -> None:
    from redis import connection

    kind = connection.AbstractConnection
    send, read = kind.send_packed_command, kind.read_response

    def sending(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        self._said = _commands(command)
        call = functools.partial(send, self, command, *args, **kwargs)
        return tracer.around("broker", f"send {self._said}", call)

    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(read, self, *args, **kwargs)
        return tracer.around("broker", f"reply {getattr(self, '_said', '')}", call)

    kind.send_packed_command = sending
    kind.read_response = reading


def _commands(packed: Any) -> str:
    """The names of the packed commands, and the queue of a push."""
    data = packed if isinstance(packed, bytes) else b"".join(packed)
    parts = data.split(b"\r\n")
    names = []
    for place, part in enumerate(parts):
        if part.startswith(b"*") and place + 2 < len(parts):
            name = parts[place + 2].upper()
            if name.isalpha():
                key = parts[place + 4] if place + 4 < len(parts) else b""
                queue = _KEY.sub(b"", key.rpartition(b":")[2])
                names.append(f"{name.decode()} {queue.decode()}".strip())
    return "+".join(names)[:80]


def _patch_tools(tracer: Tracer) -> None:
    from tools import transport, wire

    kind, reader = wire.GuardedSocket, wire._TimedReader
    send, makefile, receive = kind.sendall, kind.makefile, reader.readinto
    open_socket = transport.Transport._open

    def sending(self: Any, data: bytes) -> None:
        self._said = _request_line(bytes(data[:200]), before=getattr(self, "_said", ""))
        call = functools.partial(send, self, data)
        tracer.around("http", f"send {self._said}", call)

    def making(self: Any, mode: str) -> Any:
        made = makefile(self, mode)
        made.raw._said = getattr(self, "_said", "")
        return made

    def receiving(self: Any, buffer: Any) -> int:
        call = functools.partial(receive, self, buffer)
        return tracer.around("http", f"receive {getattr(self, '_said', '')}", call)

    def opening(self: Any, *args: Any) -> Any:
        return tracer.around("http", "connect", functools.partial(open_socket, self, *args))

    kind.sendall, kind.makefile = sending, making  # type: ignore[method-assign]
    reader.readinto = receiving  # type: ignore[method-assign]
    transport.Transport._open = opening  # type: ignore[method-assign]


def _request_line(data: bytes, *, before: str) -> str:
    head = data.split(b"\r\n", 1)[0].decode("latin-1")
    match = re.match(r"([A-Z]+) ([^ ?]+)", head)
    if match is None:
        return f"body of {before}" if before and not before.startswith("body") else before
    return f"{match[1]} {re.sub(r'ORD-[0-9]+', 'ORD-N', match[2])}"


def _patch_model(tracer: Tracer) -> None:
    from httpcore2._backends import sync

    stream, backend = sync.SyncStream, sync.SyncBackend
    write, read, connect = stream.write, stream.read, backend.connect_tcp

    def writing(self: Any, buffer: bytes, timeout: float | None = None) -> None:
        what = "head" if buffer.startswith((b"POST", b"GET")) else "body"
        call = functools.partial(write, self, buffer, timeout)
        tracer.around("model", f"send {what}", call)

    def reading(self: Any, max_bytes: int, timeout: float | None = None) -> bytes:
        return tracer.around("model", "receive", functools.partial(read, self, max_bytes, timeout))

    def connecting(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(connect, self, *args, **kwargs)
        return tracer.around("model", "connect", call)

    stream.write, stream.read = writing, reading  # type: ignore[method-assign]
    backend.connect_tcp = connecting  # type: ignore[method-assign]


def _patch_messages(tracer: Tracer) -> None:
    """While `arm/_messages` exists each message is sent twice, and two old ones come again."""
    from kombu.transport.redis import Channel

    put = Channel._put
    earlier: deque[tuple[str, dict[str, Any]]] = deque(maxlen=50)

    def putting(self: Any, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        put(self, queue, message, **kwargs)
        if tracer.scope is not None and tracer.scope.stale:
            tracer.scope.say("published")
        if (tracer.folder / "arm" / "_messages").exists():
            put(self, queue, message, **kwargs)
            for old in random.sample(earlier, min(2, len(earlier))):
                put(self, *old, **kwargs)
            earlier.append((queue, message))

    Channel._put = putting
