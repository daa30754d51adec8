"""What the figures were measured on, and small helpers for measuring."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import psutil
import psycopg

SHOWN = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "commit_delay",
    "commit_siblings",
    "shared_buffers",
    "max_wal_size",
)
"""PostgreSQL settings on which the figures rest; the bench changes none that makes it less safe."""


def describe(database_url: str) -> dict[str, Any]:
    """Processors, load, versions, durability settings, and the time of one small commit."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        settings = {name: conn.execute(f"SHOW {name}").fetchone()[0] for name in SHOWN}  # type: ignore[index]
    packages = ("Django", "celery", "kombu", "psycopg", "redis")
    return {
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "load_before": load(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "postgres": settings,
        "commit_ms": round(commit_ms(database_url), 3),
        "calibration_ms": calibrate(),
    }


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def commit_ms(database_url: str, times: int = 100) -> float:
    """The median of a commit that writes one row, in milliseconds."""
    taken = []
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("DROP TABLE IF EXISTS bench_commit")
        conn.execute("CREATE TABLE bench_commit (n int)")
        for n in range(times):
            begun = time.perf_counter()
            conn.execute("INSERT INTO bench_commit VALUES (%s)", [n])
            taken.append(time.perf_counter() - begun)
        conn.execute("DROP TABLE bench_commit")
    return 1000 * statistics.median(taken)


def calibrate() -> float:
    """Milliseconds of a fixed job in pure Python: shows how the machine drifts."""
    taken = []
    for _ in range(3):
        begun, x = time.perf_counter(), 0
        for i in range(300_000):
            x = (x * 31 + i) & 0xFFFF
        taken.append(time.perf_counter() - begun)
    return round(1000 * statistics.median(taken), 1)


def cpu_of(pids: Iterable[int]) -> float:
    """CPU seconds of these processes, their children, and those of them that have ended."""
    return sum(_cpu_of_tree(pid) for pid in pids)


def _cpu_of_tree(pid: int) -> float:
    """Looks again when a child ends meanwhile: its time has just moved to its parent."""
    while True:
        try:
            top = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return 0.0
        with suppress(psutil.NoSuchProcess):
            family = (top, *top.children(recursive=True))
            return sum(sum(process.cpu_times()[:4]) for process in family)


def rss_mb(pids: Iterable[int]) -> float:
    """Resident memory of these processes and their children, in MB."""
    total = 0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(pid)
            for process in (top, *top.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
    return total / 2**20


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, interpolated. 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """`median (least-most)` of some repeats; the one value of one."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
