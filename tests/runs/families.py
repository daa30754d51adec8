"""A parent that calls another agent, driven here; the models' replies are written by the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from pydantic import BaseModel

from agentcore.budgets import Budget
from agentcore.lifecycle import RunState
from agentcore.values import Effect, ToolCall
from runs import agents
from runs.agents import AgentDeclaration, AgentTool, agent
from runs.models import ActionJournal, Run, Turn
from runs.selectors import database_clock
from runs.steps.judging import propose
from runs.transitions import create_run, locked_run
from runs.view import load_view
from tests.runs.acting import Downstream, go, write_tool
from tools import Tool, registry

SCOPE = "shop.pay"
TO_THE_END = frozenset({"tools", "observe"})


class Errand(BaseModel):
    """What the helper is asked for."""

    what: str = "a"


@dataclass
class Family:
    """The agents `boss` and `helper`; both may pay."""

    shop: Downstream
    pay: Tool[Any, Any]
    boss: AgentDeclaration
    helper: AgentDeclaration

    def run(self, **fields: Any) -> UUID:
        """A run of the boss, QUEUED."""
        now, budget = database_clock(), self.boss.budget
        values: dict[str, Any] = {
            "tenant": "acme",
            "principal": "token:shop",
            "scopes": [SCOPE, "other"],
            "input": {"task": "a"},
            "wake_at": now,
            "max_turns": budget.turns,
            "max_actions": budget.actions,
            "deadline_at": now + budget.wall,
            "code_version": "test",
            "created_at": now,
        }
        run = Run(agent_version=self.boss.freeze(), **{**values, **fields})
        with transaction.atomic():
            create_run(run, actor="token:shop")
        return run.id


@contextmanager
def family(
    shop: Downstream,
    *,
    budget: Budget | None = None,
    own: Budget | None = None,
    call: dict[str, Any] | None = None,
    tools: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[Family]:
    """Both agents, for this block. `own` is the helper's budget, `call` how the boss calls it."""
    known = dict(agents._AGENTS)
    agents._AGENTS.clear()
    agents.forget_frozen()
    try:
        pay = write_tool(shop, scopes=(SCOPE,), **options)
        helper = agent(
            name="helper", version="1", model="m", instructions="Help.",
            tools=["shop.pay", *tools], input=Errand, budget=own or Budget(turns=6, actions=6),
        )  # fmt: skip
        values = {"effect": Effect.WRITE, "scopes": (SCOPE,), **(call or {})}
        boss = agent(
            name="boss", version="1", model="m", instructions="Lead.",
            tools=["shop.pay", *tools, AgentTool(agent="helper", **values)],
            budget=budget or Budget(turns=10, actions=12),
        )  # fmt: skip
        yield Family(shop, pay, boss, helper)
    finally:
        agents._AGENTS.clear()
        agents._AGENTS.update(known)
        agents.forget_frozen()


Said = tuple[str, dict[str, Any]]
"""(wire name of a tool, arguments): one call of a reply."""
ASK: Said = ("agents__helper", {"what": "a"})


def pays(what: str = "a") -> Said:
    return "shop__pay", {"what": what, "amount": 1}


def says(run_id: UUID, *calls: Said, text: str = "", tokens: int = 0) -> None:
    """The model of a run answers: `calls`, else the final `text`. It cost `tokens`."""
    number = Run.objects.get(pk=run_id).turn + 1
    with locked_run(run_id, actor="worker:test", event="turn.started") as draft:
        if draft.run.state != RunState.COMPILING_CONTEXT:
            draft.move_run(RunState.COMPILING_CONTEXT)
        draft.move_run(RunState.CALLING_MODEL, turn=number)
        draft.set_run(tokens_used=draft.run.tokens_used + tokens)
        draft.add(
            Turn(
                run_id=run_id,
                number=number,
                model="m",
                manifest={},
                request_sha256="0" * 64,
                code_version="test",
                created_at=draft.now,
            )
        )
    with locked_run(run_id, actor="worker:test", event="turn.decided") as draft:
        view = load_view(run_id)
        view.run = draft.run
        kind = "TOOL_CALLS" if calls else "FINAL"
        draft.set_row(view.turns[-1], decision=kind, output="[]", text=text, decided_at=draft.now)
        draft.move_run(RunState.DISPATCHING_TOOLS)
        draft.set_run(actions_used=draft.run.actions_used + len(calls))
        for ordinal, (name, arguments) in enumerate(calls):
            spec = registry.by_wire(name)
            assert spec is not None, name
            propose(view, draft, call=_call(ordinal, name, arguments), ordinal=ordinal)


def _call(ordinal: int, name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(f"call_{ordinal}", name, json.dumps(arguments))


def drive_to(run_id: UUID) -> str:
    """Drive a run as far as it goes without a model; its state."""
    go(run_id, inline=TO_THE_END)
    return Run.objects.get(pk=run_id).state


def child_of(run_id: UUID, ordinal: int = 0) -> Run:
    """The child of the latest turn's call."""
    rows = ActionJournal.objects.filter(run_id=run_id, contract="CHILD").order_by("-turn")
    found = rows.filter(ordinal=ordinal).first()
    assert found is not None
    return Run.objects.get(parent_action=found.pk)
