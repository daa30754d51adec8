"""A raw TCP server that counts what it really received and answers as it is told."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket, "Downstream"], None]


@dataclass
class Downstream:
    port: int
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/refunds"


@contextmanager
def downstream(behaviour: Behaviour) -> Iterator[Downstream]:
    """Serve connections with `behaviour` until the block ends; waits for its own threads."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Downstream(port=listener.getsockname()[1])
    workers: list[threading.Thread] = []

    def handle(peer: socket.socket) -> None:
        with peer:
            try:
                behaviour(peer, server)
            except OSError:
                return  # the client hung up, which several tests provoke

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            server.connections += 1
            worker = threading.Thread(target=handle, args=(peer,))
            workers.append(worker)
            worker.start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield server
    finally:
        server.released.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for worker in workers:
            worker.join(5)


def read_request(peer: socket.socket, server: Downstream) -> None:
    """Read one whole request and keep it."""
    while b"\r\n\r\n" not in server.received:
        chunk = peer.recv(65536)
        if not chunk:
            return
        server.received += chunk
    head, _, body = bytes(server.received).partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        chunk = peer.recv(65536)
        if not chunk:
            return
        server.received += chunk
        body += chunk


def answers(raw: bytes, *, reset: bool = False) -> Behaviour:
    """Read the request, send `raw`, close; with `reset` by RST instead of FIN."""

    def behave(peer: socket.socket, server: Downstream) -> None:
        read_request(peer, server)
        peer.sendall(raw)
        if reset:
            # Linger 0: close sends RST instead of FIN.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def reply(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
