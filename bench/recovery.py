"""`make bench ARGS="recovery"`: from kill -9 of a worker process to the next claim, under load.

Two workers drive runs whose calls take a while; again and again one of them is killed, and for
every run that it held the time is taken until another process has claimed it. A new process takes
its place each time.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Sequence
from uuid import UUID

from bench import machine, ours, results
from bench.installation import EVERY_STEP, Installation, Worker, installation
from bench.peer import TURNS

HELD = "SELECT id, fence FROM runs_run WHERE ended_at IS NULL AND lease_worker = (SELECT id"
HELD += " FROM runs_worker WHERE pid = %s ORDER BY started_at DESC LIMIT 1)"
LOST_TWICE = "SELECT count(*) FROM runs_run WHERE id = ANY(%s) AND ended_at IS NULL AND claims > 1"
CLAIMED = "SELECT id FROM runs_run WHERE id = ANY(%s) AND fence > %s"


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a run was not taken over in time."""
    made = argparse.ArgumentParser(prog="bench recovery", description=__doc__)
    made.add_argument("--kills", type=int, default=4)
    made.add_argument("--load", type=int, default=48, help="runs kept in flight")
    made.add_argument("--wait", type=int, default=300, help="milliseconds of each call")
    asked = made.parse_args(list(arguments))
    with installation() as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        from django.conf import settings

        options = settings.AGENTCORE_OPTIONS
        bound = options.worker_dead_after + 2 * 1.25 * options.sweep_period
        workers = place.start_workers(EVERY_STEP * 2)
        taken: list[float] = []
        for _ in range(asked.kills):
            taken += _kill_one(place, workers, asked)
            results.progress(f"{len(taken)} runs taken over, the last after {taken[-1]:.1f} s")
        _finish(place)
    p50, p99 = machine.percentile(taken, 0.5), machine.percentile(taken, 0.99)
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    head = ["kills", "runs held", "p50 s", "p99 s", "most s", "bound s"]
    row = [asked.kills, len(taken), f"{p50:.2f}", f"{p99:.2f}", f"{max(taken):.2f}", f"{bound:.1f}"]
    print(results.table(head, [row]))
    print(
        f"\nbound: dead after {options.worker_dead_after} s, two sweeps of {options.sweep_period} s"
    )
    body = {"machine": about, "asked": vars(asked), "seconds_to_claim": taken, "bound": bound}
    results.store("recovery", body)
    return 0 if p99 <= bound + 1.5 else 1


def _fill(place: Installation, asked: argparse.Namespace) -> None:
    for _ in range(max(0, asked.load - ours.open_runs(place))):
        ours.start_run(TURNS, wait=asked.wait, tool_wait=asked.wait)


def _kill_one(place: Installation, workers: list[Worker], asked: argparse.Namespace) -> list[float]:
    """Kill the older worker; the seconds until each run that it held was claimed again."""
    victim = workers.pop(0)
    while len(_held(place, victim.pid)) < 8:
        _fill(place, asked)
        time.sleep(0.1)
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()
    victim.process.wait()
    waiting = _held(place, victim.pid)
    taken_over = list(waiting)
    workers += place.start_workers(EVERY_STEP)
    taken: list[float] = []
    while waiting:
        _fill(place, asked)
        now = time.monotonic()
        for run_id, fence in list(waiting.items()):
            if place.looking.execute(CLAIMED, [[run_id], fence]).fetchone():
                taken.append(now - killed)
                del waiting[run_id]
        if now - killed > 120:
            raise TimeoutError(f"{len(waiting)} runs were not taken over")
        time.sleep(0.05)
    # The next kill would hit some of them before they have gone on: a run that loses two processes
    # in a row is driven alone, on purpose, which is not what is measured here.
    while place.number(LOST_TWICE, taken_over):
        time.sleep(0.05)
    return taken


def _held(place: Installation, pid: int) -> dict[UUID, int]:
    return {row[0]: row[1] for row in place.looking.execute(HELD, [pid]).fetchall()}


def _finish(place: Installation) -> None:
    ours.wait_for_all(place, every=0.2)
