"""What the workload asks of everything that it measures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.installation import Installation
from bench.machine import calibrate, cpu_of, load, percentile, rss_mb

TURNS = 5
CPU = ("workers", "postgres", "server", "broker", "driver")
START_SECONDS = 4.0
"""To start a peer and to stop it, about."""


class Session(Protocol):
    """A peer that is up."""

    @property
    def pids(self) -> list[int]:
        """Its worker processes."""
        ...

    @property
    def servers(self) -> list[int]:
        """Those of a server that only this peer uses, beside PostgreSQL and the broker."""
        ...

    def many(self, count: int) -> None:
        """Start `count` runs at once and wait until the last has ended."""
        ...

    def one(self) -> float | None:
        """Start one run and wait until it has ended.

        Returns its seconds when a clock outside would count more than the run, else nothing."""
        ...


@dataclass(frozen=True)
class Peer:
    """A line of the table: its name, how many processes, its share of the runs, and how it begins.

    `pace` (runs a second) and `alone` (seconds of an isolated run) are about those of two quiet
    cores: they only serve to say how long a measurement will take.
    """

    name: str
    procs: int
    share: float
    open: Callable[[Installation, int], AbstractContextManager[Session]]
    pace: float = 40.0
    alone: float = 0.03

    @property
    def key(self) -> str:
        return f"{self.name} x{self.procs}"

    def runs(self, asked: int) -> int:
        """How many it does at once when `asked` are asked for."""
        return max(8, int(asked * self.share))

    def seconds(self, *, runs: int, singles: int) -> float:
        """About how long one repeat takes."""
        many = self.runs(runs)
        return START_SECONDS + (many + _warm_up(many)) / self.pace + singles * self.alone


@dataclass
class Measured:
    """One repeat of one peer. CPU in milliseconds a run; latencies in milliseconds.

    `cpu`: `workers`; `postgres`; `server`, one that only this peer has; `broker`; and `driver`, the
    process of the bench, which starts the runs of those that do not start them in a worker.
    """

    runs_s: float
    p50_ms: float
    p95_ms: float
    cpu: dict[str, float]
    write_transactions: float
    wal_bytes: float
    rss_mb: float
    calibration_ms: float
    load: list[float] = field(default_factory=list)

    @property
    def cpu_ms(self) -> float:
        """All processes but the one that starts the runs."""
        return sum(value for name, value in self.cpu.items() if name != "driver")

    @property
    def server_ms(self) -> float:
        """CPU of the server that holds the runs: PostgreSQL, or the peer's own."""
        return self.cpu["postgres"] + self.cpu["server"]

    def stored(self) -> dict[str, Any]:
        return {**self.__dict__, "cpu_ms": self.cpu_ms}


def measure(peer: Peer, place: Installation, *, runs: int, singles: int) -> Measured:
    """Warm up, all runs at once, then some one after the other."""
    calibration = calibrate()
    with peer.open(place, peer.procs) as session:
        place.looking.execute("CHECKPOINT")
        session.many(_warm_up(runs))
        before = _snapshot(place, session)
        begun = time.perf_counter()
        session.many(runs)
        taken = time.perf_counter() - begun
        after = _snapshot(place, session)
        memory = rss_mb(session.pids)
        latencies = [_timed(session.one) for _ in range(singles)]
    each = {name: (after[name] - value) / runs for name, value in before.items()}
    return Measured(
        runs_s=runs / taken,
        p50_ms=1000 * statistics.median(latencies) if latencies else 0.0,
        p95_ms=1000 * percentile(latencies, 0.95),
        cpu={name: 1000 * each[name] for name in CPU},
        write_transactions=each["xid"],
        wal_bytes=each["wal"],
        rss_mb=memory / max(1, len(session.pids)),
        calibration_ms=calibration,
        load=load(),
    )


def _warm_up(runs: int) -> int:
    return max(10, min(40, runs // 5))


def _timed(act: Callable[[], float | None]) -> float:
    begun = time.perf_counter()
    told = act()
    return time.perf_counter() - begun if told is None else told


def _snapshot(place: Installation, session: Session) -> dict[str, float]:
    """CPU seconds, transactions that wrote (with their savepoints), and bytes of WAL up to now."""
    postgres, broker = place.servers_cpu()
    return {
        "workers": cpu_of(session.pids),
        "postgres": postgres,
        "server": cpu_of(session.servers),
        "broker": broker,
        "driver": time.process_time(),
        "xid": place.number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"),
        "wal": place.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"),
    }
