"""`python -m bench.rest`: how fast `POST /runs` is, against a bare DRF view that inserts one row.

Same machine, same database server, same gunicorn (one process, 16 threads), same load generator;
with the broker up and with it down; 1, 8 and 32 clients. Loopback only; about two minutes.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from config.embedded import embedded_stack
from config.embedded.ports import free_port
from config.embedded.stack import remove_stack
from tests.world import ROOT, World, open_world

CLIENTS = (1, 8, 32)
SECONDS = 4.0
WARM_UP = 1.0
BODY = {
    "agent": "refund_desk",
    "input": {"order_id": "ORD-1001", "message": "Broken. Refund.", "amount": "20.00 EUR"},
    "metadata": {"order": "1001"},
}


@dataclass
class Measured:
    """Latencies in seconds of one phase, and how long it took."""

    taken: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: int = 0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.taken if self.taken else 0.0

    def percentile(self, share: int) -> float:
        """In milliseconds."""
        cuts = statistics.quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0] * 99
        return 1000 * cuts[share - 1]


def load(url: str, token: str, *, clients: int, seconds: float) -> Measured:
    """Post from `clients` threads for `seconds`, each on its own kept connection."""
    found, lock = Measured(), threading.Lock()
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_client, args=(url, token, until, found, lock))
        for _ in range(clients)
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.taken = time.monotonic() - started
    return found


def _client(url: str, token: str, until: float, found: Measured, lock: threading.Lock) -> None:
    parts = urlsplit(url)
    client = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    body = json.dumps(BODY)
    latencies, failures = [], 0
    while time.monotonic() < until:
        headers = {
            "Authorization": f"Bearer {token}",
            "Idempotency-Key": uuid4().hex,
            "Content-Type": "application/json",
        }
        started = time.monotonic()
        client.request("POST", "/api/v1/runs", body, headers)
        reply = client.getresponse()
        reply.read()
        if reply.status == 201:
            latencies.append(time.monotonic() - started)
        else:
            failures += 1
    client.close()
    with lock:
        found.latencies += latencies
        found.failures += failures


def measure(world: World, *, seconds: float, **env: str) -> dict[int, Measured]:
    """One target, started for this alone, under each number of clients."""
    world.start_web(**env)
    assert world.web is not None
    try:
        load(world.web.url, world.token, clients=4, seconds=WARM_UP)
        return {
            clients: load(world.web.url, world.token, clients=clients, seconds=seconds)
            for clients in CLIENTS
        }
    finally:
        world.web.stop()


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print. Returns the exit code."""
    seconds = float(arguments[0]) if arguments else SECONDS
    base = ROOT / ".run"
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    limits = {"AGENTCORE_API_READS_A_MINUTE": "0", "AGENTCORE_API_WRITES_A_MINUTE": "0"}
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    targets = {
        "bare view, one row": {"DJANGO_SETTINGS_MODULE": "bench.bare"},
        "POST /runs": {},
        "POST /runs, broker down": {"REDIS_URL": nobody},
    }
    try:
        with (
            embedded_stack(folder=folder) as stack,
            open_world(stack, folder / "world", **limits) as world,
        ):
            found = {name: measure(world, seconds=seconds, **env) for name, env in targets.items()}
    finally:
        remove_stack(folder)
    report(found)
    return 0


def report(found: dict[str, dict[int, Measured]]) -> None:
    """A table, and the ratio to the bare view."""
    print(
        f"{'':<26}{'clients':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'of bare':>9}{'failed':>8}"
    )
    bare = next(iter(found.values()))
    for name, by_clients in found.items():
        for clients, item in by_clients.items():
            share = item.rate / bare[clients].rate if bare[clients].rate else 0.0
            print(
                f"{name:<26}{clients:>8}{item.rate:>9.0f}{item.percentile(50):>9.1f}"
                f"{item.percentile(99):>9.1f}{share:>9.2f}{item.failures:>8}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
