"""`make bench ARGS="waiting"`: many runs in model calls of a second, in one worker process.

Each run makes two model calls and one write. Measured: runs a second against the ideal (all slots
always in a call), the memory of the process, and how many database connections it holds.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence

from bench import machine, ours, results
from bench.installation import EVERY_STEP, Installation, installation

APPLICATION = "bench-waiting"
GOALS = {"share of the ideal": 0.9, "memory MB": 300, "connections": 10}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed."""
    made = argparse.ArgumentParser(prog="bench waiting", description=__doc__)
    made.add_argument("--slots", type=int, default=500, help="runs in flight")
    made.add_argument("--rounds", type=int, default=4, help="runs for each slot")
    made.add_argument("--wait", type=int, default=1000, help="milliseconds of a model call")
    made.add_argument("--turns", type=int, default=2)
    asked = made.parse_args(list(arguments))
    with installation(AGENTCORE_THREADS=str(asked.slots)) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        body = _measure(place, asked)
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    rows = [[name, value, GOALS.get(name, "")] for name, value in body.items()]
    print(results.table(["figure", "measured", "goal"], rows))
    results.store("waiting", {"machine": about, "asked": vars(asked), "figures": body})
    met = (
        body["share of the ideal"] >= GOALS["share of the ideal"]
        and body["memory MB"] < GOALS["memory MB"]
        and body["connections"] <= GOALS["connections"]
    )
    return 0 if met else 1


def _measure(place: Installation, asked: argparse.Namespace) -> dict[str, float]:
    for _ in range(asked.slots * asked.rounds):  # all are there before the first may begin
        ours.start_run(asked.turns, wait=asked.wait)
    (worker,) = place.start_workers(
        EVERY_STEP, concurrency=asked.slots, AGENTCORE_PROCESS=APPLICATION
    )
    watch = _Watch(place, worker.pid)
    begun, postgres = time.perf_counter(), place.servers_cpu()[0]
    left = ours.open_runs(place)
    with watch:
        ours.wait_for_all(place, every=0.05, seconds=600)
    taken = time.perf_counter() - begun
    turns, postgres = left * asked.turns, place.servers_cpu()[0] - postgres
    ideal = asked.slots / (asked.turns * asked.wait / 1000)
    rate = left / taken
    return {
        "runs": left,
        "seconds": round(taken, 1),
        "runs a second": round(rate, 1),
        "ideal": round(ideal, 1),
        "share of the ideal": round(rate / ideal, 2),
        "memory MB": round(watch.memory),
        "connections": watch.connections,
        "CPU share of a core": round(watch.cpu / taken, 2),
        "CPU ms a turn, worker": round(1000 * watch.cpu / turns, 1),
        "CPU ms a turn, PostgreSQL": round(1000 * postgres / turns, 1),
        "claims a run": round(place.number("SELECT sum(fence) FROM runs_run") / left, 2),
    }


class _Watch:
    """Looks at the worker twice a second and keeps the most it has seen."""

    def __init__(self, place: Installation, pid: int) -> None:
        self._place, self._pid = place, pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.memory = 0.0
        self.connections = 0
        self.cpu = 0.0

    def __enter__(self) -> None:
        self.cpu = machine.cpu_of([self._pid])
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.cpu = machine.cpu_of([self._pid]) - self.cpu

    def _look(self) -> None:
        import psycopg

        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        with psycopg.connect(self._place.env["DATABASE_URL"], autocommit=True) as conn:
            while not self._stop.wait(0.5):
                row = conn.execute(asked, [APPLICATION]).fetchone()
                self.connections = max(self.connections, int(row[0]) if row else 0)
                self.memory = max(self.memory, machine.rss_mb([self._pid]))
