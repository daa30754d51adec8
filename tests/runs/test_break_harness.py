"""For test_break_driver: an agent whose tools a test declares, a real HTTP model that answers what
the test says, and a database that goes away for a second. Runs are driven in this process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from agentcore.budgets import Budget
from agentcore.lifecycle import STEPS
from agentcore.values import Effect, Key
from runs import agents, services, worker
from runs.driver import drive
from runs.models import ActionJournal, Run
from runs.starting import Caller, StartRun
from tools import ToolContext, registry, tool

ALL = frozenset(STEPS)
KEY = Key(retention=timedelta(days=1))
Reply = Callable[[int], Any]
"""What the model answers to its n-th call (from 1): the reply body, as JSON or as text."""


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": f"desk__{name}",
        "arguments": json.dumps(arguments),
    }


def says(text: str = "done") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def body(*items: Any, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "status": "completed", "output": list(items), **more}


@dataclass
class Desk:
    """One agent whose tools are declared by the test and whose model is `reply`."""

    settings: Any
    reply: Reply = lambda n: body(says())
    asked: int = 0
    effects: list[Any] = field(default_factory=list)

    def options(self, **changes: Any) -> None:
        changed = self.settings.AGENTCORE_OPTIONS.model_copy(update=changes)
        self.settings.AGENTCORE_OPTIONS = changed

    def start(self, *, turns: int = 6, actions: int = 100, wall: timedelta | None = None) -> UUID:
        names = [spec.name for spec in registry.all_tools()]
        budget = Budget(turns=turns, actions=actions, wall=wall or timedelta(hours=1))
        agents._AGENTS.pop("desk", None)
        agents.agent(name="desk", version="1", instructions="Do it.", tools=names, budget=budget)
        caller = Caller(tenant="acme", principal="token:shop", scopes=())
        run = services.start_run(caller=caller, request=StartRun(agent="desk", input={"a": 1}))
        return run.id

    def drive(self, run_id: UUID, *, times: int = 30) -> Run:
        """Drive until the run waits for somebody or something, or ended."""
        for _ in range(times):
            driven = drive(run_id=run_id, revision=None, inline=ALL)
            if driven is None or driven.due is None:
                break
        return Run.objects.get(pk=run_id)

    def actions(self, run_id: UUID) -> list[ActionJournal]:
        return list(ActionJournal.objects.filter(run_id=run_id).order_by("turn", "ordinal"))


def forget_worker() -> None:
    """The worker of this process is gone; the next drive is that of its replacement."""
    worker.stop()
    worker._current = None
    worker._shared_drain[0] = 0


@pytest.fixture
def desk(settings: Any) -> Iterator[Desk]:
    made = Desk(settings)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    made.options(openai_api_key="scripted", openai_base_url=url)
    with registry.isolated():
        yield made
    forget_worker()
    agents._AGENTS.pop("desk", None)
    server.shutdown()
    server.server_close()
    thread.join()


def _handler(desk: Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            desk.asked += 1
            answer = desk.reply(desk.asked)
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    return Handler


def put(desk: Desk, act: Callable[[int], Any] = lambda number: {"ok": True}, **more: Any) -> Any:
    """Declare the write `desk.put`."""

    @tool(
        effect=Effect.WRITE,
        **{"contract": KEY, "identity": ("number",), "app_label": "desk", **more},
    )
    def put(ctx: ToolContext, number: int) -> Any:
        """Put one.

        Args:
            number: which.
        """
        desk.effects.append(number)
        return act(number)

    return put


class Outage:
    """Takes the database away for a second, as a restart does, only for longer than the pool
    waits for a connection; `over` waits until it is back."""

    def __init__(self) -> None:
        settings = connection.settings_dict
        self._params = {k: settings[k.upper()] for k in ("user", "password", "host", "port")}
        self._name, self._timers = settings["NAME"], list[threading.Timer]()
        self._pool = connection.pool
        self._waits = self._pool.timeout

    def begin(self) -> None:
        """Once: a repeated call finds a healthy database."""
        if self._timers:
            return
        self._pool.timeout = 0.2
        self._say(
            f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS false',
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
        )
        back = f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS true'
        self._timers.append(threading.Timer(1.0, self._say, args=(back,)))
        self._timers[-1].start()

    def over(self) -> None:
        for timer in self._timers:
            timer.join()
        self._pool.timeout = self._waits
        connection.close()

    def _say(self, *statements: str) -> None:
        with psycopg.connect(dbname="postgres", autocommit=True, **self._params) as conn:
            for statement in statements:
                conn.execute(statement, [self._name] if "%s" in statement else None)


@pytest.fixture
def outage() -> Iterator[Outage]:
    made = Outage()
    yield made
    made.over()
