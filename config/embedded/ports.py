"""Free ports on loopback."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 15_000


def port_is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Return a port nobody listens on, below the range the system takes for outgoing connections.

    Port 0 would give one inside that range: while a server there is down, a client that connects
    again and again to it is sooner or later given the same number as its own and so talks to
    itself, and the server can never come back.
    """
    last = _ephemeral_start() - 1
    for _ in range(200):
        port = random.randint(_FIRST, last)  # noqa: S311  (a port is no secret)
        if port_is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        start = int(text.split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768
    return start if start > _FIRST + 1_000 else 32_768
