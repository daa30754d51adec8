"""`make bench ARGS="rest"`: how fast `POST /runs` is, against a bare DRF view that inserts one row.

Same machine, same database, same settings and middleware, same gunicorn (one process, 16 threads),
same load generator; 1, 8 and 32 clients; broker up and down. The targets take turns, since a
machine drifts; the table has the medians of the rounds. `cpu ms` is what one request costs the web
server, PostgreSQL and the broker together: on a machine that others use, too, it says more than the
rate. Loopback only; under two minutes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psutil

from bench import machine, results
from bench.machine import cpu_of
from config.embedded import embedded_stack
from config.embedded.ports import free_port
from config.embedded.stack import remove_stack
from examples.refund_desk import services
from examples.refund_desk.services import Service
from tests.world import ROOT, World, open_world

CLIENTS = (1, 8, 32)
ROUNDS = 3
SECONDS = 2.5
WARM_UP = 1.0
BODY = {
    "agent": "refund_desk",
    "input": {"order_id": "ORD-1001", "message": "Broken. Refund.", "amount": "20.00 EUR"},
    "metadata": {"order": "1001"},
}


@dataclass(frozen=True)
class Target:
    """One line of the table: a path of a server that was started with these settings."""

    name: str
    server: str
    path: str


TARGETS = (
    Target("bare view, one row", "bare", "/bare"),
    Target("the same with a token", "bare", "/bare_with_token"),
    Target("POST /runs", "product", "/api/v1/runs"),
    Target("POST /runs, broker down", "alone", "/api/v1/runs"),
)


@dataclass
class Measured:
    """Latencies in seconds of one phase, and how long it took."""

    taken: float = 0.0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: int = 0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.taken if self.taken else 0.0

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of all servers for one request."""
        return 1000 * self.cpu / len(self.latencies) if self.latencies else 0.0

    def percentile(self, share: int) -> float:
        """In milliseconds."""
        cuts = statistics.quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0] * 99
        return 1000 * cuts[share - 1]

    def stored(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "p50_ms": self.percentile(50),
            "p99_ms": self.percentile(99),
            "cpu_ms": self.cpu_ms,
            "failures": self.failures,
        }


def load(url: str, token: str, *, clients: int, seconds: float) -> Measured:
    """Post to `url` from `clients` threads for `seconds`, each on its own kept connection."""
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
        client.request("POST", parts.path, body, headers)
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


Results = dict[str, dict[int, list[Measured]]]


def measure(world: World, servers: dict[str, Service], *, rounds: int, seconds: float) -> Results:
    """Target -> clients -> one result for each round."""
    urls = {target.name: servers[target.server].url + target.path for target in TARGETS}
    found: Results = {name: {clients: [] for clients in CLIENTS} for name in urls}
    pids = [*(server.pid for server in servers.values()), *_server_pids(world)]
    for url in urls.values():
        load(url, world.token, clients=4, seconds=WARM_UP)
    for _ in range(rounds):
        for clients in CLIENTS:
            for name, url in urls.items():
                before = cpu_of(pids)
                made = load(url, world.token, clients=clients, seconds=seconds)
                made.cpu = cpu_of(pids) - before
                found[name][clients].append(made)
    return found


def _server_pids(world: World) -> list[int]:
    """The processes of PostgreSQL and of the broker."""
    ((backend,),) = world.query("SELECT pg_backend_pid()")
    postmaster = psutil.Process(backend).ppid()
    return [postmaster, int(world.broker().info("server")["process_id"])]


@contextmanager
def three_servers(world: World) -> Iterator[dict[str, Service]]:
    """The yardstick, the product, and the product with a broker that nobody can reach."""
    more = {
        "bare": {"DJANGO_SETTINGS_MODULE": "bench.bare"},
        "product": {},
        "alone": {"REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"},
    }
    servers: dict[str, Service] = {}
    try:
        for name, env in more.items():
            servers[name] = services.start_web(world.folder, env={**world.env, **env}, name=name)
        yield servers
    finally:
        services.stop_all(list(servers.values()))


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. Returns the exit code."""
    made = argparse.ArgumentParser(prog="bench rest", description=__doc__)
    made.add_argument("--repeats", type=int, default=ROUNDS, help=f"rounds ({ROUNDS})")
    made.add_argument("--seconds", type=float, default=SECONDS, help=f"of a phase ({SECONDS})")
    asked = made.parse_args(list(arguments))
    base = ROOT / ".run"
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    limits = {"AGENTCORE_API_READS_A_MINUTE": "0", "AGENTCORE_API_WRITES_A_MINUTE": "0"}
    try:
        with (
            embedded_stack(folder=folder) as stack,
            open_world(stack, folder / "world", **limits) as world,
            three_servers(world) as servers,
        ):
            about = machine.describe(world.env["DATABASE_URL"])
            found = measure(world, servers, rounds=asked.repeats, seconds=asked.seconds)
    finally:
        remove_stack(folder)
    print(results.describe(about))
    report(found)
    results.store("rest", {"machine": about, "asked": vars(asked), "targets": stored(found)})
    return 0


def stored(found: Results) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """As JSON has it: target, clients, rounds."""
    return {
        name: {clients: [one.stored() for one in ones] for clients, ones in by_clients.items()}
        for name, by_clients in found.items()
    }


def report(found: Results) -> None:
    """A table, and the ratio to the bare view of the same round."""
    print(
        f"{'':<26}{'clients':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'of bare':>9}"
        f"{'cpu ms':>8}{'of bare':>9}{'failed':>8}"
    )
    bare = found[TARGETS[0].name]
    for name, by_clients in found.items():
        for clients, rounds in by_clients.items():
            shares = [
                made.rate / yardstick.rate
                for made, yardstick in zip(rounds, bare[clients], strict=True)
            ]
            cheaper = [
                yardstick.cpu_ms / made.cpu_ms if made.cpu_ms else 0.0
                for made, yardstick in zip(rounds, bare[clients], strict=True)
            ]
            print(
                f"{name:<26}{clients:>8}{_median(made.rate for made in rounds):>9.0f}"
                f"{_median(made.percentile(50) for made in rounds):>9.1f}"
                f"{_median(made.percentile(99) for made in rounds):>9.1f}"
                f"{_median(shares):>9.2f}{_median(made.cpu_ms for made in rounds):>8.2f}"
                f"{_median(cheaper):>9.2f}{sum(made.failures for made in rounds):>8}"
            )


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
