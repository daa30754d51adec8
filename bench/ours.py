"""The runtime itself on the common workload: real tables, transitions, driver and workers.

Runs are started with the use case behind `POST /runs`, from the process of the bench.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from bench.installation import A_WORKER_A_STEP, EVERY_STEP, Installation

PATIENCE = 180.0


def set_up(place: Installation) -> None:
    """Make this process one of the installation: it can start runs now."""
    import django

    os.environ.update(place.env)
    django.setup()


def start_run(turns: int, *, agent: str = "bench", **more: Any) -> UUID:
    """Start one run; `more` goes into its input (`wait` and `tool_wait` in ms)."""
    from runs.services import Caller, StartRun, start_run

    caller = Caller(tenant="bench", principal="token:bench", scopes=())
    given = {"turns": turns, "account": uuid4().hex, **more}
    return start_run(caller=caller, request=StartRun(agent=agent, input=given)).id


@dataclass
class Ours:
    """Worker processes of ours."""

    pids: list[int]
    place: Installation
    turns: int
    alone: Alone
    servers: list[int] = field(default_factory=list)

    def many(self, count: int) -> None:
        for _ in range(count):
            start_run(self.turns)
        wait_for_all(self.place)

    def one(self) -> None:
        self.alone.run(self.turns)


class Alone:
    """Isolated runs, one after the other.

    Whoever looks whether a run has ended takes time from it, so nobody looks for most of the
    shortest time that a run of as many turns has taken so far, and then once a millisecond.
    """

    MOST = 0.7

    def __init__(self, place: Installation, *, seconds: float = PATIENCE) -> None:
        self._place, self._seconds = place, seconds
        self._shortest: dict[int, float] = {}

    def run(self, turns: int) -> tuple[float, UUID]:
        """Start one and wait until it has ended. Returns its seconds and its id."""
        begun = time.perf_counter()
        run_id = start_run(turns)
        shortest = self._shortest.get(turns, 0.0)
        time.sleep(max(0.0, begun + self.MOST * shortest - time.perf_counter()))
        wait_for_one(self._place, run_id, seconds=self._seconds)
        taken = time.perf_counter() - begun
        self._shortest[turns] = min(self._shortest.get(turns, math.inf), taken)
        return taken, run_id


def wait_for_all(place: Installation, *, every: float = 0.02, seconds: float = PATIENCE) -> None:
    """Until no run is open. Raises TimeoutError, and RuntimeError when one did not complete."""
    limit = time.monotonic() + seconds
    while open_runs(place):
        if time.monotonic() > limit:
            raise TimeoutError(f"{open_runs(place)} runs are still open")
        time.sleep(every)
    bad = place.number("SELECT count(*) FROM runs_run WHERE state <> 'COMPLETED'")
    if bad:
        raise RuntimeError(f"{bad} runs ended in another state than COMPLETED")


def open_runs(place: Installation) -> int:
    return place.number("SELECT count(*) FROM runs_run WHERE ended_at IS NULL")


def wait_for_one(place: Installation, run_id: UUID, *, seconds: float = PATIENCE) -> None:
    """Until this run has ended, looking once a millisecond."""
    limit = time.monotonic() + seconds
    asked = "SELECT count(*) FROM runs_run WHERE id = %s AND ended_at IS NOT NULL"
    while not place.number(asked, run_id):
        if time.monotonic() > limit:
            raise TimeoutError(f"run {run_id} is still open")
        time.sleep(0.001)


@contextmanager
def _serving(place: Installation, queues: Sequence[Sequence[str]], turns: int) -> Iterator[Ours]:
    workers = place.start_workers(queues)
    try:
        yield Ours([worker.pid for worker in workers], place, turns, Alone(place))
    finally:
        place.stop_workers()


@contextmanager
def all_queues(place: Installation, procs: int, turns: int = 5) -> Iterator[Ours]:
    """`procs` processes, each of which serves every queue."""
    with _serving(place, EVERY_STEP * procs, turns) as session:
        yield session


@contextmanager
def a_worker_a_step(place: Installation, _procs: int, turns: int = 5) -> Iterator[Ours]:
    """A process for each step: every turn passes four of them."""
    with _serving(place, A_WORKER_A_STEP, turns) as session:
        yield session
