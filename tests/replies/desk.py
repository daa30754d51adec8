"""A run against a scripted server, driven in this process: real HTTP, real driver, real rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connection

from agentcore.context import request_bytes
from agentcore.lifecycle import RUN_TERMINAL, STEPS, RunState
from runs import agents, services, worker
from runs.account_models import Evidence, Ledger
from runs.contexts import rebuild
from runs.driver import drive
from runs.models import ActionJournal, Attempt, Run, Turn
from runs.selectors import database_clock
from runs.starting import Caller, StartRun
from tests.agentcore.bodies import message, recorded, reply
from tests.agentcore.loopback import Answer, Loopback
from tests.replies.history import problems
from tests.replies.tools_of_the_desk import desk_tools, offer
from tools.spec import Tool

KEY = "sk-test-5up3r-s3cret-key"
ALL_STEPS = frozenset(STEPS)
CALLER = Caller(tenant="acme", principal="token:shop", scopes=())


def answer(body: str | bytes, *, status: int = 200, mode: str = "whole", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=data, headers=names, mode=mode)


def of_record(name: str) -> Answer:
    """The answer of a recorded body: status, headers and bytes as they were."""
    record = recorded(name)
    value = record["body"]
    text = value if isinstance(value, str) else json.dumps(value)
    headers = {str(key): str(item) for key, item in record["headers"].items()}
    return Answer(status=record["status"], body=text.encode(), headers=headers)


def said(text: str = "That is all.") -> Answer:
    """A last answer that claims nothing."""
    return answer(reply(message(text)))


@dataclass
class Desk:
    """One scripted server and the tools of the desk."""

    server: Loopback
    tools: dict[str, Tool[Any, Any]]
    declared: list[str] = field(default_factory=list)

    def script(self, *answers: Answer) -> None:
        """What the server answers, in order; the last one repeats."""
        self.server.received.clear()
        self.server.script[:] = [*answers]

    def start(
        self,
        *,
        tools: Sequence[str] = ("get_order", "refund_order"),
        names: dict[str, str] | None = None,
        run_input: Any = None,
        caller: Caller = CALLER,
        **agent: Any,
    ) -> Run:
        """A run of an agent of its own."""
        name = f"desk_{len(self.declared)}"
        self.declared.append(name)
        offered = offer(*(self.tools[item] for item in tools), names=names)
        agents.agent(
            name=name,
            version="1",
            instructions=agent.pop("instructions", "You run the desk."),
            tools=offered,
            **agent,
        )
        request = StartRun(agent=name, input=run_input or {"order_id": "ord_1001"})
        return services.start_run(caller=caller, request=request)

    def drive(self, run: Run, *, hurry: bool = True, slices: int = 60) -> Run:
        """Drive until the run waits for a person or ends; timers are moved to now (`hurry`). One
        that the run sets again without having tried anything is waited for.
        """
        tried = -1
        for _ in range(slices):
            run.refresh_from_db()
            if run.state in RUN_TERMINAL or run.state == RunState.SUSPENDED:
                return run
            driven = drive(run_id=run.id, revision=None, inline=ALL_STEPS)
            run.refresh_from_db()
            if driven is None or driven.due is None:
                if not hurry or run.state != RunState.RETRY_WAIT:
                    return run
                before, tried = tried, Attempt.objects.filter(run=run).count()
                if tried == before:
                    left = (run.wake_at - database_clock()).total_seconds()
                    threading.Event().wait(min(max(left, 0), 10))
                self.wake(run)
        raise AssertionError(f"run {run.id} does not come to rest: {run.state}")

    def wake(self, run: Run) -> None:
        """The timer of a waiting run is over."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE runs_run SET wake_at = clock_timestamp() WHERE id = %s", [run.id]
            )

    # --- what there is afterwards ------------------------------------------------------------

    def requests(self) -> list[dict[str, Any]]:
        """The body of every request, as the server got it."""
        return [json.loads(data) for _, _, data in self.server.received]

    def turns(self, run: Run) -> list[Turn]:
        return list(Turn.objects.filter(run=run).order_by("number"))

    def actions(self, run: Run) -> list[ActionJournal]:
        return list(ActionJournal.objects.filter(run=run).order_by("turn", "ordinal", "edit"))

    def attempts(self, run: Run, kind: str = "MODEL") -> list[Attempt]:
        rows = Attempt.objects.filter(run=run, kind=kind)
        return list(rows.order_by("turn", "started_at", "n"))

    def ledger(self, run: Run) -> list[Ledger]:
        return list(Ledger.objects.filter(run=run).order_by("created_at", "entry"))

    def evidence(self, run: Run) -> list[Evidence]:
        return list(Evidence.objects.filter(run=run).order_by("turn", "id"))

    def check(self, run: Run) -> None:
        """What holds for every run, whatever the model said: valid histories, exact rebuilding,
        and an account that adds up.
        """
        for request in self.requests():
            assert problems(request) == []
        for turn in self.turns(run):
            found = rebuild(run_id=run.id, turn=turn.number)
            assert found.matches, f"turn {turn.number} is not rebuilt"
        sent = {bytes(data) for _, _, data in self.server.received}
        for turn in self.turns(run):
            if any(a.turn == turn.number and a.outcome for a in self.attempts(run)):
                found = rebuild(run_id=run.id, turn=turn.number)
                assert found.data in sent, f"turn {turn.number} was sent differently"
        self.check_account(run)

    def check_account(self, run: Run) -> None:
        """The sums on the run are those of its lines; nothing is held that has been settled."""
        run.refresh_from_db()
        used = tokens = held = cost = 0
        for line in self.ledger(run):
            amount = line.input_tokens + line.output_tokens
            if line.entry == "RESERVE":
                held += amount
                continue
            used += amount
            cost += line.cost
            if line.entry == "SETTLE":
                reserve = next(
                    r
                    for r in self.ledger(run)
                    if r.attempt_id == line.attempt_id and r.entry == "RESERVE"
                )
                held -= reserve.input_tokens + reserve.output_tokens
        tokens = run.tokens_used
        assert (tokens, run.tokens_held, run.cost_used) == (used, held, cost)


@contextmanager
def open_desk(server: Loopback, **options: Any) -> Iterator[Desk]:
    """A desk with the runtime pointed at `server`."""
    before = settings.AGENTCORE_OPTIONS
    settings.AGENTCORE_OPTIONS = before.model_copy(
        update={
            "openai_api_key": KEY,
            "openai_base_url": server.url,
            "model_timeout": 5.0,
            "slice_seconds": 60.0,
            "slice_calls": 1000,
            **options,
        }
    )
    try:
        with desk_tools() as tools:
            desk = Desk(server, tools)
            yield desk
            for name in desk.declared:
                agents._AGENTS.pop(name, None)
    finally:
        settings.AGENTCORE_OPTIONS = before


def stop_worker() -> None:
    """End this process's beat, so that the test database can be dropped."""
    worker.stop()
    worker._current = None


def bytes_of(request: dict[str, Any]) -> bytes:
    return request_bytes(request)
