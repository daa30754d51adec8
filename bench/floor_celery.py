"""Floors (b) and (c): what Celery costs without a runtime.

(b) One task a run, a bare Django connection, raw SQL, the same commits as floor (a), early acks.
(c) A chain of four tasks a turn that do nothing, with a worker for each step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import redis

from bench.floor_psycopg import TABLES
from bench.installation import Installation, Worker, _await_ready
from config.broker import QUEUES
from config.processes import start_process, stop_process

PATIENCE = 120
"""Seconds without the end of any run after which the floor counts as stuck."""


@dataclass
class CeleryFloor:
    """Workers of the floor's own app."""

    pids: list[int]
    start: Callable[[], None]
    broker: redis.Redis
    done: str

    def many(self, count: int) -> None:
        for _ in range(count):
            self.start()
        for _ in range(count):
            if self.broker.blpop([self.done], timeout=PATIENCE) is None:
                raise RuntimeError("the floor is stuck; see the logs of its workers")

    def one(self) -> None:
        self.many(1)


@contextmanager
def floor_b(place: Installation, procs: int, turns: int = 5) -> Iterator[CeleryFloor]:
    """One task a run in `procs` worker processes."""
    url = place.new_database("bench_floor_b")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(TABLES)
    with _workers(place, url, [QUEUES[0]] * procs) as (app, workers):
        yield _floor(place, app, workers, lambda: app.whole_run.apply_async((turns,)))


@contextmanager
def floor_c(place: Installation, _procs: int, turns: int = 5) -> Iterator[CeleryFloor]:
    """Chains of no-ops; always one worker for each step."""
    with _workers(place, place.stack.database_url, QUEUES) as (app, workers):
        yield _floor(place, app, workers, lambda: app.start_chain(0, turns))


def _floor(
    place: Installation, app: object, workers: list[Worker], start: Callable[[], object]
) -> CeleryFloor:
    pids = [worker.pid for worker in workers]
    done: str = app.DONE  # type: ignore[attr-defined]
    return CeleryFloor(pids, lambda: (start(), None)[1], place.broker(), done)


@contextmanager
def _workers(
    place: Installation, url: str, queues: tuple[str, ...] | list[str]
) -> Iterator[tuple[object, list[Worker]]]:
    env = {
        "FLOOR_DATABASE_URL": url,
        "FLOOR_PREFIX": f"{place.prefix}floor:",
        "REDIS_URL": place.stack.redis_url,
        "DJANGO_SETTINGS_MODULE": "",
    }
    workers = []
    for number, queue in enumerate(queues):
        command = [
            sys.executable, "-m", "celery", "-A", "bench.floor_app", "worker", "-Q", queue,
            "--hostname", f"floor{number}@%h", "--loglevel", "INFO",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        log = place.folder / f"floor{number}.log"
        log.unlink(missing_ok=True)
        workers.append(Worker(start_process(command, env=env, log=log), log))
    try:
        for worker in workers:
            _await_ready(worker)
        os.environ.update({name: value for name, value in env.items() if value})
        from bench import floor_app

        yield floor_app, workers
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            stop_process(worker.process)
