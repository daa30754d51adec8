"""One installation for a measurement: embedded servers, a migrated database, workers on demand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from bench.machine import cpu_of
from config.broker import QUEUES
from config.embedded import Stack, embedded_stack
from config.embedded.stack import remove_stack
from config.processes import ROOT, start_process, stop_process, worker_command

READY_SECONDS = 60.0


@dataclass
class Worker:
    """A worker process of ours and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass
class Installation:
    """Servers, the environment of every process of ours, and a connection that looks on."""

    stack: Stack
    folder: Path
    env: dict[str, str]
    looking: psycopg.Connection[Any]
    server_pid: int
    broker_pid: int
    _started: int = 0
    workers: list[Worker] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.env["AGENTCORE_BROKER_PREFIX"]

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(self.stack.redis_url)

    def number(self, sql: str, *values: Any) -> int:
        """The one number that a query gives."""
        row = self.looking.execute(sql, values).fetchone()
        assert row is not None
        return int(row[0])

    def start_workers(
        self, queues: Sequence[Sequence[str]], *, concurrency: int | None = None, **env: str
    ) -> list[Worker]:
        """One worker process for each entry of `queues`, as `make run` starts them."""
        started = []
        for names in queues:
            self._started += 1
            name = f"bench{self._started}"
            log = self.folder / f"{name}.log"
            command = worker_command(queues=names, name=name, concurrency=concurrency)
            started.append(Worker(start_process(command, env={**self.env, **env}, log=log), log))
        for worker in started:
            await_ready(worker)
        self.workers += started
        return started

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        for worker in self.workers:
            stop_process(worker.process)
        self.workers.clear()

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """An empty database on the same server for the time of the block; its address."""
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            conn.execute(f'CREATE DATABASE "{name}"')
        try:
            yield address_of(self.stack, name)
        finally:
            with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
                conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def servers_cpu(self) -> tuple[float, float]:
        """CPU seconds of PostgreSQL and of the broker since they started."""
        return cpu_of([self.server_pid]), cpu_of([self.broker_pid])


def address_of(stack: Stack, name: str) -> str:
    return urlunsplit(urlsplit(stack.database_url)._replace(path=f"/{name}"))


def await_ready(worker: Worker) -> None:
    limit = time.monotonic() + READY_SECONDS
    while b" ready." not in worker.log.read_bytes():
        if worker.process.poll() is not None or time.monotonic() > limit:
            tail = worker.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"a worker did not start:\n{tail}")
        time.sleep(0.05)


@contextmanager
def installation(*, commit_delay: int = 0, **env: str) -> Iterator[Installation]:
    """Servers and a migrated database for the time of the block.

    `commit_delay` (microseconds) makes every commit wait that much longer, which stands for a
    slower disk; nothing is made less durable.
    """
    base = ROOT / ".run"
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    try:
        with (
            embedded_stack(folder=folder / "stack") as stack,
            slow_commits(stack, commit_delay),
            _migrated(stack, folder, env) as made,
        ):
            try:
                yield made
            finally:
                made.stop_workers()
    finally:
        remove_stack(folder / "stack")
        remove_stack(folder)


@contextmanager
def slow_commits(stack: Stack, microseconds: int) -> Iterator[None]:
    """Every commit of the server takes so much longer for the time of the block, also when no other
    transaction is open (`commit_siblings`)."""
    if not microseconds:
        yield
        return
    with psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute(f"ALTER SYSTEM SET commit_delay = {int(microseconds)}")
        conn.execute("ALTER SYSTEM SET commit_siblings = 0")
        conn.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:  # it may be a server of others
        with psycopg.connect(stack.database_url, autocommit=True) as conn:
            conn.execute("ALTER SYSTEM RESET commit_delay")
            conn.execute("ALTER SYSTEM RESET commit_siblings")
            conn.execute("SELECT pg_reload_conf()")


@contextmanager
def _migrated(stack: Stack, folder: Path, more: dict[str, str]) -> Iterator[Installation]:
    name = f"bench_{os.getpid()}"
    with psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    env = {
        "DATABASE_URL": address_of(stack, name),
        "REDIS_URL": stack.redis_url,
        "AGENTCORE_BROKER_PREFIX": f"{name}:",
        "AGENTCORE_APPS": "bench.stub",
        "AGENTCORE_MODEL_API": "bench.stub.model:client",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        **more,
    }
    command = [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0"]
    subprocess.run(command, env={**os.environ, **env}, cwd=ROOT, check=True)
    with psycopg.connect(env["DATABASE_URL"], autocommit=True) as looking:
        looking.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        backend = looking.info.backend_pid
        with redis.Redis.from_url(stack.redis_url) as client:
            broker_pid = int(client.info("server")["process_id"])
        yield Installation(stack, folder, env, looking, _parent_of(backend), broker_pid)


def _parent_of(pid: int) -> int:
    import psutil

    return int(psutil.Process(pid).ppid())


EVERY_STEP = (tuple(QUEUES),)
"""One worker that serves all queues."""
A_WORKER_A_STEP = tuple((name,) for name in QUEUES)
