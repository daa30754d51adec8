"""Floors (b) and (c), and other shapes of a run on Celery: what it costs without a runtime.

(b) One task a run, a bare Django connection, raw SQL, the same commits as floor (a), early acks.
(c) A chain of four tasks a turn that do nothing, with a worker for each step.

The shapes run as Celery is mostly run: one worker with as many forked processes as asked for, late
acks, four messages fetched at a time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import uuid4

import psycopg
import redis

from bench.floor_psycopg import INSERT_RUN, TABLES
from bench.installation import Installation, Worker, await_ready
from config.broker import QUEUES
from config.processes import start_process, stop_process

PATIENCE = 120
"""Seconds without the end of any run after which the floor counts as stuck."""
FETCHED = 4


@dataclass
class CeleryFloor:
    """Workers of the floor's own app."""

    pids: list[int]
    start: Callable[[], object]
    broker: redis.Redis
    done: str
    servers: list[int] = field(default_factory=list)

    def many(self, count: int) -> None:
        for _ in range(count):
            self.start()
        for _ in range(count):
            if self.broker.blpop([self.done], timeout=PATIENCE) is None:
                raise RuntimeError(
                    f"no run has ended for {PATIENCE} s; see the logs of the workers"
                )

    def one(self) -> None:
        self.many(1)


@contextmanager
def floor_b(place: Installation, procs: int, turns: int = 5) -> Iterator[CeleryFloor]:
    """One task a run in `procs` worker processes."""
    with _database(place, "bench_floor_b") as url:
        queues = [QUEUES[0]] * procs
        with _workers(place, url=url, module="bench.floor_app", queues=queues) as (app, workers):
            yield _floor(place, workers, lambda: app.whole_run.apply_async((turns,)))


@contextmanager
def floor_c(place: Installation, _procs: int, turns: int = 5) -> Iterator[CeleryFloor]:
    """Chains of no-ops; always one worker for each step."""
    url = place.stack.database_url
    with _workers(place, url=url, module="bench.floor_app", queues=QUEUES) as (app, workers):
        yield _floor(place, workers, lambda: app.start_chain(0, turns))


def shape(
    name: str, store: str, *, threads: int = 0, turns: int = 5
) -> Callable[[Installation, int], AbstractContextManager[CeleryFloor]]:
    """How a shape of `bench/shape_app.py` begins that stores by `store` of `bench/shape_stores.py`.

    `threads`: so many of them instead of forked processes.
    """

    @contextmanager
    def opened(place: Installation, procs: int) -> Iterator[CeleryFloor]:
        conf = {
            "worker_pool": "threads" if threads else "prefork",
            "worker_concurrency": threads or procs,
            "worker_prefetch_multiplier": FETCHED,
            "task_acks_late": True,
        }
        with (
            _database(place, "bench_shape") as url,
            psycopg.connect(url, autocommit=True) as conn,
            _workers(
                place,
                url=url,
                module="bench.shape_app",
                queues=QUEUES[:1],
                conf=conf,
                more={"SHAPE_STORE": store},
            ) as (app, workers),
        ):

            def start() -> None:
                run = str(uuid4())
                if store != app.NOTHING:
                    conn.execute(INSERT_RUN, [run])
                app.start_turn(name, run, 0, turns)

            yield _floor(place, workers, start)

    return opened


def _floor(place: Installation, workers: list[Worker], start: Callable[[], object]) -> CeleryFloor:
    broker = redis.Redis.from_url(place.stack.redis_url, socket_timeout=PATIENCE + 10)
    return CeleryFloor([worker.pid for worker in workers], start, broker, _prefix(place) + "done")


@contextmanager
def _database(place: Installation, name: str) -> Iterator[str]:
    with place.database(name) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(TABLES)
        yield url


def _prefix(place: Installation) -> str:
    return f"{place.prefix}floor:"


def _forget(place: Installation) -> None:
    """Remove what a floor that failed has left in the broker."""
    with place.broker() as client:
        for key in client.scan_iter(f"{_prefix(place)}*"):
            client.delete(key)


@contextmanager
def _workers(
    place: Installation,
    *,
    url: str,
    module: str,
    queues: Sequence[str],
    conf: Mapping[str, object] | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[tuple[Any, list[Worker]]]:
    """A worker of the app in `module` for each queue; the module as this process imports it."""
    _forget(place)
    env = {
        "FLOOR_DATABASE_URL": url,
        "FLOOR_PREFIX": _prefix(place),
        "REDIS_URL": place.stack.redis_url,
        "DJANGO_SETTINGS_MODULE": "",
    }
    own = {"FLOOR_CONF": json.dumps(conf or {}), **(more or {})}
    workers: list[Worker] = []
    try:
        for number, queue in enumerate(queues):
            log = place.folder / f"floor{number}.log"
            log.unlink(missing_ok=True)
            command = _command(module, queue, number)
            workers.append(Worker(start_process(command, env={**env, **own}, log=log), log))
        for worker in workers:
            await_ready(worker)
        os.environ.update({name: value for name, value in env.items() if value})
        yield import_module(module), workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        for worker in workers:
            stop_process(worker.process)


def _command(module: str, queue: str, number: int) -> list[str]:
    return [
        sys.executable, "-m", "celery", "-A", module, "worker", "-Q", queue,
        "--hostname", f"floor{number}@%h", "--loglevel", "INFO",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip
