"""The installation under test: servers, services, a web server and a nursery of workers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg

from config.embedded import Stack
from examples.refund_desk import services
from examples.refund_desk.admin_client import AdminSession
from examples.refund_desk.services import Service
from tests.world import ROOT, World, open_world, post_json

T = TypeVar("T")

TIMES = {
    "AGENTCORE_SWEEP_PERIOD": "0.3",
    "AGENTCORE_BEAT_PERIOD": "0.4",
    "AGENTCORE_WORKER_DEAD_AFTER": "1.0",
    "AGENTCORE_HINT_BACKOFF": "0.4",
    "AGENTCORE_HINT_BACKOFF_CAP": "4.0",
    "AGENTCORE_CLAIM_MARGIN": "4",
    "AGENTCORE_ISOLATE_BACKOFF": "0.1",
}
DEAD_AFTER, SWEEP_PERIOD = 1.0, 0.3
ALL_QUEUES = "compile,model,tools,observe"


def wait_for(condition: Callable[[], T], *, seconds: float, what: str, every: float = 0.02) -> T:
    """The first true value of `condition`. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)


@dataclass
class Desk:
    """One installation, shared by all trials. Safe to use from many threads."""

    world: World
    folder: Path
    event_key: bytes
    proxy: Service
    numbers: Iterator[int]
    web: Service | None = None
    nurseries: list[subprocess.Popen[bytes]] = field(default_factory=list)
    cookies: CookieJar = field(default_factory=CookieJar)
    local: threading.local = field(default_factory=threading.local)
    connections: list[psycopg.Connection[Any]] = field(default_factory=list)

    # --- processes -------------------------------------------------------------------------

    def env(self, *, proxied: bool) -> dict[str, str]:
        """The environment of a process under test."""
        direct = self.world.env["DATABASE_URL"]
        url = direct
        if proxied:
            parts = urlsplit(direct)
            front = f"{parts.username}:{parts.password}@{self.proxy.url}"
            url = parts._replace(netloc=front).geturl()
        return {
            **self.world.env,
            "DATABASE_URL": url,
            "FAULTS_DATABASE_URL": direct,
            "FAULTS_PROXY": str(self.proxy.ready["control"]),
        }

    def start_web(self, *, without: str = "") -> None:
        """gunicorn, its one child forked from a master that has loaded the application.

        `without`: a guard that is taken out in it.
        """
        if self.web is not None:
            services.stop_all([self.web])
        command = [
            sys.executable, "-m", "gunicorn", "tests.faults.worker_entry:web", "--preload",
            "--bind", "127.0.0.1:0", "--workers", "1", "--threads", "12",
            "--no-control-socket", "--graceful-timeout", "2", "--log-level", "info",
        ]  # fmt: skip
        self.web = services.spawn(
            name="web",
            command=command,
            folder=self.folder,
            env={**self.env(proxied=True), "FAULTS_WITHOUT": without},
            on_parent_death=signal.SIGTERM,
        )
        services.await_web(self.web)
        if not len(self.cookies):  # the login outlives the server
            self.session("").sign_in(user="boss", password="boss-password")

    def start_workers(
        self, count: int, *, proxied: bool = False, fleet: bool = False, without: str = ""
    ) -> None:
        """`count` workers that serve all queues; for a `fleet` as many for each queue alone.
        Beside them one for the runs that are driven alone.

        `proxied`: their connections to PostgreSQL go through the proxy. `without`: a guard that is
        taken out in them.
        """
        self.stop_workers()
        queues = ALL_QUEUES.split(",") if fleet else [ALL_QUEUES]
        env = {**os.environ, **self.env(proxied=proxied), "FAULTS_WITHOUT": without}
        for served in queues:
            self._start_nursery({**env, "FAULTS_QUEUES": served}, count)
        self._start_nursery({**env, "FAULTS_QUEUES": "isolate"}, 1)
        wanted = count * len(queues) + 1
        wait_for(lambda: self.ready() >= wanted or self.ended(), seconds=90, what="the workers")

    def _start_nursery(self, env: dict[str, str], count: int) -> None:
        with (self.folder / "workers.log").open("ab") as log:
            nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker_entry"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, cwd=str(ROOT),
            )  # fmt: skip
        assert nursery.stdin is not None
        nursery.stdin.write(json.dumps({"count": count}).encode() + b"\n")
        nursery.stdin.flush()
        self.nurseries.append(nursery)

    def ended(self) -> bool:
        """False, or an error when a nursery ended by itself."""
        if any(nursery.poll() is not None for nursery in self.nurseries):
            tail = (self.folder / "workers.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"a nursery ended:\n{tail}")
        return False

    def ready(self) -> int:
        """Workers that consume."""
        return len(os.listdir(self.folder / "ready"))

    def stop_workers(self) -> None:
        for nursery in self.nurseries:
            assert nursery.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                nursery.stdin.close()
        for nursery in self.nurseries:
            try:
                nursery.wait(20)
            except subprocess.TimeoutExpired:
                nursery.kill()  # its workers die with it
                nursery.wait()
        self.nurseries = []
        for name in (self.folder / "ready").iterdir():
            name.unlink(missing_ok=True)

    def stop(self) -> None:
        self.stop_workers()
        self.close_connections()
        services.stop_all([service for service in (self.proxy, self.web) if service])

    # --- what a caller and a person do -----------------------------------------------------------

    def session(self, trial: str) -> AdminSession:
        """A signed-in browser whose requests belong to `trial`; all share one login."""
        assert self.web is not None
        session = AdminSession(url=self.web.url)
        jar = urllib.request.HTTPCookieProcessor(self.cookies)
        session._opener = urllib.request.build_opener(jar)
        session._opener.addheaders = [("X-Trial", trial)] if trial else []
        return session

    def post(self, trial: str, agent: str, body: dict[str, Any]) -> str | None:
        """POST a run; its UUID, or None when no answer came."""
        answer = self._send(trial, "/api/v1/runs", {"agent": agent, "input": body})
        return str(answer["id"]).removeprefix("run_") if answer else None

    def cancel(self, trial: str, run_id: str) -> bool:
        """POST the cancel of a run; False when no answer came."""
        path = f"/api/v1/runs/run_{run_id.replace('-', '')}/cancel"
        return self._send(trial, path, {"reason": "withdrawn"}) is not None

    def _send(self, trial: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        assert self.web is not None
        request = urllib.request.Request(
            f"{self.web.url}{path}",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self.world.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": f"key-{trial}",
                "X-Trial": trial,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                answer: dict[str, Any] = json.load(reply)
                return answer
        except urllib.error.HTTPError as error:
            if error.code in (409, 500, 503):  # in progress, or the database was lost
                return None
            raise RuntimeError(f"{path} answered {error.code}: {error.read()[:500]!r}") from None
        except (OSError, HTTPException):
            return None

    # --- what is known ------------------------------------------------------------------------

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.conn().execute(query, params).fetchall()

    def conn(self) -> psycopg.Connection[Any]:
        """This thread's own connection to the server itself."""
        conn: psycopg.Connection[Any] | None = getattr(self.local, "conn", None)
        if conn is None or conn.closed:
            conn = psycopg.connect(
                self.world.env["DATABASE_URL"], autocommit=True, options="-c timezone=UTC"
            )
            self.local.conn = conn
            self.connections.append(conn)
        return conn

    def close_connections(self) -> None:
        """Those of every thread; no trial may run."""
        while self.connections:
            self.connections.pop().close()

    def ledger(self, orders: list[str]) -> list[dict[str, Any]]:
        """The payment service's own rows of these orders, from its file. What stands behind a dot
        in a key is that of one request (`lookup_desk`)."""
        path = self.world.folder / "payment.sqlite3"
        marks = ", ".join("?" * len(orders))
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            query = f"SELECT * FROM refunds WHERE order_id IN ({marks}) ORDER BY n"  # noqa: S608
            rows = [dict(row) for row in db.execute(query, orders)]
        for row in rows:
            cents = row["amount"]
            row["idempotency_key"] = row["idempotency_key"].partition(".")[0]
            row["amount"], row["currency"] = f"{cents // 100}.{cents % 100:02d}", "EUR"
        return rows

    def arm(self, trial: str, order: dict[str, Any]) -> None:
        draft = self.folder / "arm" / f".{trial}"
        draft.write_text(json.dumps(order))
        draft.rename(self.folder / "arm" / trial)

    def disarm(self, trial: str) -> None:
        (self.folder / "arm" / trial).unlink(missing_ok=True)

    def log(self, trial: str) -> list[dict[str, Any]]:
        try:
            lines = (self.folder / "log" / trial).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def payment_fault(self, **fault: Any) -> None:
        post_json(f"{self.world.payment.url}/faults", fault)

    def model_fault(self, **fault: Any) -> None:
        post_json(f"{self.world.model.url}/faults", fault)


@contextlib.contextmanager
def open_desk(stack: Stack, folder: Path) -> Iterator[Desk]:
    """A whole installation on `stack`, with web, without workers."""
    folder = folder / "desk"
    for name in ("arm", "log", "fired", "ready"):
        (folder / name).mkdir(parents=True)
    key = secrets.token_hex(16)
    env = {**TIMES, "FAULTS_DIR": str(folder), "AGENTCORE_EVENT_KEY": key}
    apps = ("examples.refund_desk", "tests.faults.lookup_desk", "tests.faults.front_desk")
    with open_world(stack, folder, apps=apps, **env, FAULTS_DATABASE_URL="") as world:
        world.model.stop()
        world.model = _start_model(folder)
        world.env["OPENAI_BASE_URL"] = f"{world.model.url}/v1"
        proxy = _start_proxy(folder, urlsplit(world.env["DATABASE_URL"]))
        desk = Desk(world, folder, key.encode(), proxy, itertools.count(10_000_001))
        try:
            desk.start_web()
            yield desk
        finally:
            desk.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _start_model(folder: Path) -> Service:
    module = "tests.faults.exhaustive.model_server"
    command = [sys.executable, "-m", module, "--port", "0"]
    service = services.spawn(name="model", command=command, folder=folder)
    return services._await_ready(service, lambda: services._announced(service), timeout=20)


def _start_proxy(folder: Path, server: Any) -> Service:
    target = f"{server.hostname}:{server.port}"
    command = [sys.executable, "-m", "tests.faults.pg_proxy", "--target", target]
    service = services.spawn(name="proxy", command=command, folder=folder)
    return services._await_ready(service, lambda: services._announced(service), timeout=20)
