"""A whole installation for tests: its own database, broker prefix, example services, web, workers.

Everything is a real process. Nothing sleeps for a fixed time: tests wait for conditions.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from config.embedded import Stack
from examples.refund_desk import services
from examples.refund_desk.admin_client import AdminSession
from examples.refund_desk.rest_client import RestClient, is_over
from examples.refund_desk.services import Service

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")

# Shortened so that a dead worker is found in seconds; the ratios are those of the defaults.
FAST = {
    "AGENTCORE_SWEEP_PERIOD": "0.3",
    "AGENTCORE_BEAT_PERIOD": "0.4",
    "AGENTCORE_WORKER_DEAD_AFTER": "2",
    "AGENTCORE_HINT_BACKOFF": "1",
    "AGENTCORE_ISOLATE_BACKOFF": "0.2",
    "AGENTCORE_ISOLATE_GRACE": "0.3",
}

_SETUP = """
import io
from django.contrib.auth import get_user_model
from django.core.management import call_command
get_user_model().objects.create_superuser("boss", "", "boss-password")
said = io.StringIO()
call_command("token", "create", "shop", *{scopes!r}, stdout=said, stderr=io.StringIO())
print("TOKEN", said.getvalue().strip())
"""
SCOPES = ("runs:write", "runs:read", "events:read", "refunds.write")


def wait_for(condition: Callable[[], T], *, seconds: float, what: str = "") -> T:
    """The first true value of `condition`, asked again and again. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what or condition}")
        time.sleep(0.01)


@dataclass
class World:
    """One installation. `workers` may die; `heal` replaces them."""

    stack: Stack
    folder: Path
    env: dict[str, str]
    payment: Service
    model: Service
    token: str
    web: Service | None = None
    workers: dict[str, Service] = field(default_factory=dict)
    worker_queues: dict[str, str] = field(default_factory=dict)
    _db: psycopg.Connection[Any] | None = None

    # --- processes -------------------------------------------------------------------------

    def start_web(self, **env: str) -> None:
        self.web = services.start_web(self.folder, env={**self.env, **env})

    def start_worker(
        self, name: str = "w1", *, queues: str = services.STEP_QUEUES, wait: bool = True
    ) -> Service:
        self.worker_queues[name] = queues
        self.workers[name] = services.start_worker(
            self.folder, env=self.env, queues=queues, name=name, wait=wait
        )
        return self.workers[name]

    def heal(self) -> None:
        """Start a new process for every worker that died."""
        for name, worker in list(self.workers.items()):
            if not worker.alive:
                self.start_worker(name, queues=self.worker_queues[name], wait=False)

    def stop(self) -> None:
        if self._db is not None:
            self._db.close()
        running = [self.payment, self.model, *self.workers.values()]
        services.stop_all([*running, self.web] if self.web else running)

    def arm(self, point: str) -> Path:
        """Have the next process that reaches a failpoint killed; the path that then exists."""
        folder = Path(self.env["AGENTCORE_FAILPOINTS_DIR"])
        fired = folder / f"{point}.fired"
        fired.unlink(missing_ok=True)
        (folder / point).write_text("kill")
        return fired

    # --- reading and doing -------------------------------------------------------------------

    @property
    def client(self) -> RestClient:
        assert self.web is not None
        return RestClient(url=self.web.url, token=self.token)

    def admin(self) -> AdminSession:
        assert self.web is not None
        session = AdminSession(url=self.web.url)
        session.sign_in(user="boss", password="boss-password")
        return session

    def decide(self, approval: str, decision: str, reason: str = "") -> None:
        """Decide through the admin's own form, as a person's browser would."""
        assert self.web is not None
        page = f"{self.web.url}/admin/review/{approval}/"
        self.admin().decide(page=page, decision=decision, reason=reason)

    def query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        if self._db is None or self._db.closed:
            self._db = psycopg.connect(self.env["DATABASE_URL"], autocommit=True)
        return self._db.execute(sql, params).fetchall()

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(self.env["REDIS_URL"])

    def refund(
        self, order: str, amount: str = "20.00 EUR", *, message: str = "", **more: Any
    ) -> str:
        """POST a refund run; its id. The same order again is the same request."""
        body = {"order_id": order, "message": message or "arrived broken", "amount": amount}
        key = f"key-{order}"
        run = self.client.start_run(agent="refund_desk", run_input=body, key=key, **more)
        return str(run["id"])

    def finish(self, run_id: str, *, seconds: float = 30, healing: bool = False) -> dict[str, Any]:
        between = self.heal if healing else lambda: None
        return self.client.follow(
            run_id, until=is_over, seconds=seconds, between=between, every=0.03
        )

    def waiting(self, run_id: str, *, seconds: float = 20) -> dict[str, Any]:
        """The run once it waits for a person."""
        return self.client.follow(
            run_id,
            until=lambda run: run["status"] == "requires_action",
            seconds=seconds,
            every=0.03,
        )

    def approvals(self, run_id: str, state: str = "PENDING") -> list[str]:
        rows = self.query(
            "SELECT id::text FROM approvals_approval WHERE run_id = %s AND state = %s ORDER BY id",
            uuid_of(run_id),
            state,
        )
        return [row[0] for row in rows]

    def refunds(self, order: str) -> list[dict[str, Any]]:
        """What the payment service did for this order, from its own ledger."""
        return [row for row in self.ledger() if row["order_id"] == order]

    def ledger(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = get_json(f"{self.payment.url}/ledger")["data"]
        return rows

    def fault(self, **fault: Any) -> None:
        post_json(f"{self.payment.url}/faults", fault)

    def event_seqs(self, run_id: str) -> list[int]:
        rows = self.query(
            "SELECT seq FROM runs_event WHERE run_id = %s ORDER BY seq", uuid_of(run_id)
        )
        return [row[0] for row in rows]

    def states(self, run_id: str) -> list[tuple[str, str]]:
        """(tool, state) of every action, in order."""
        return self.query(
            "SELECT tool, state FROM runs_actionjournal WHERE run_id = %s"
            " ORDER BY turn, ordinal, edit",
            uuid_of(run_id),
        )


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)


def post_json(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def uuid_of(run_id: str) -> str:
    return run_id.removeprefix("run_")


@contextlib.contextmanager
def open_world(
    stack: Stack,
    folder: Path,
    *,
    apps: Sequence[str] = ("examples.refund_desk",),
    scopes: Sequence[str] = SCOPES,
    **env: str,
) -> Iterator[World]:
    """A fresh database on `stack`, migrated; the payment and model services; no web, no worker."""
    name = f"world_{secrets.token_hex(5)}"
    with psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    parts = urlsplit(stack.database_url)
    whole = {
        **os.environ,
        **FAST,
        "DATABASE_URL": urlunsplit(parts._replace(path=f"/{name}")),
        "REDIS_URL": stack.redis_url,
        "AGENTCORE_BROKER_PREFIX": f"{name}:",
        "AGENTCORE_APPS": ",".join(apps),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": str(ROOT),
        "OPENAI_API_KEY": "scripted",
        **env,
    }
    payment = services.start_payment_service(folder)
    model = services.start_model_server(folder)
    whole["PAYMENT_URL"], whole["OPENAI_BASE_URL"] = payment.url, f"{model.url}/v1"
    world = World(stack, folder, whole, payment, model, token="")
    try:
        manage(world, "migrate", "-v0")
        flags = [part for scope in scopes for part in ("--scope", scope)]
        said = manage(world, "shell", "-v0", "-c", _SETUP.format(scopes=flags))
        world.token = said.split("TOKEN", 1)[1].strip()
        yield world
    finally:
        world.stop()
        with psycopg.connect(stack.database_url, autocommit=True) as conn:
            conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def manage(world: World, *arguments: str) -> str:
    """Run a management command in a process of its own; its standard output."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env=world.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
