"""What the workload asks of everything that it measures."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.installation import Installation
from bench.machine import calibrate, cpu_of, load, percentile, rss_mb

TURNS = 5


class Session(Protocol):
    """A peer that is up. `pids` are its worker processes."""

    pids: list[int]

    def many(self, count: int) -> None:
        """Start `count` runs at once and wait until the last has ended."""
        ...

    def one(self) -> None:
        """Start one run and wait until it has ended."""
        ...


@dataclass(frozen=True)
class Peer:
    """A line of the table: its name, how many processes, its share of the runs, and how it
    begins."""

    name: str
    procs: int
    share: float
    open: Callable[[Installation, int], AbstractContextManager[Session]]

    @property
    def key(self) -> str:
        return f"{self.name} x{self.procs}"


@dataclass
class Measured:
    """One repeat of one peer. CPU in milliseconds a run; latencies in milliseconds."""

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

    def stored(self) -> dict[str, Any]:
        return {**self.__dict__, "cpu_ms": self.cpu_ms}


def measure(peer: Peer, place: Installation, *, runs: int, singles: int) -> Measured:
    """Warm up, all runs at once, then some one after the other."""
    calibration = calibrate()
    with peer.open(place, peer.procs) as session:
        place.looking.execute("CHECKPOINT")
        session.many(max(10, min(40, runs // 5)))
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
        cpu={name: 1000 * each[name] for name in ("workers", "postgres", "broker", "driver")},
        write_transactions=each["xid"],
        wal_bytes=each["wal"],
        rss_mb=memory / max(1, len(session.pids)),
        calibration_ms=calibration,
        load=load(),
    )


def _timed(act: Callable[[], None]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _snapshot(place: Installation, session: Session) -> dict[str, float]:
    """CPU seconds, transactions that wrote (with their savepoints), and bytes of WAL up to now."""
    postgres, broker = place.servers_cpu()
    return {
        "workers": cpu_of(session.pids),
        "postgres": postgres,
        "broker": broker,
        "driver": cpu_of([os.getpid()]) - cpu_of(session.pids) - postgres - broker,
        "xid": place.number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"),
        "wal": place.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"),
    }
