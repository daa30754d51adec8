"""A run whose model has just proposed some calls, driven here, against a downstream in memory.

Everything of the runtime is real (rows, leases, driver, steps, journal); only the model's reply and
the other side are written by the test. Time passes by moving the rows' times back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from django.db import connection, transaction
from pydantic import BaseModel

from agentcore.lifecycle import RunState
from agentcore.values import Contract, Effect, Key, Preview, ProbeVerdict, ToolCall
from approvals.models import Approval
from runs.approving import Decision, decide_approval
from runs.driver import Driven, drive
from runs.models import ActionJournal, Attempt, Incident, Run, Turn
from runs.selectors import database_clock
from runs.steps.judging import propose
from runs.transitions import create_run, locked_run
from runs.view import load_view
from tests.factories import make_agent_version, real_decider
from tests.runs.rows import unguarded
from tools import Absent, Ambiguous, Found, NotSent, Pending, Rejected, Tool, ToolContext, tool

TOOLS_ONLY = frozenset({"tools"})
TO_THE_TURN = frozenset({"tools", "observe"})

Behaviour = Literal["ok", "lost", "dropped", "refused", "not_sent", "accepted", "precondition"]
"""What the downstream does with one request: `lost` acts and loses the reply, `dropped` does not
act and loses it, `accepted` will act later."""


class Done(BaseModel):
    """A made effect."""

    id: str


@dataclass
class Downstream:
    """The other side: its books, and what it does with the next requests."""

    behaves: list[Behaviour] = field(default_factory=list)
    answers: list[ProbeVerdict] = field(default_factory=list)
    dedupes: bool = True
    effects: list[tuple[str, str]] = field(default_factory=list)  # (key, what)
    sent: list[ToolContext] = field(default_factory=list)
    asked: list[ToolContext] = field(default_factory=list)
    during: Callable[[], object] | None = None  # called while a request is being handled

    def send(self, ctx: ToolContext, what: str) -> Done | Found | Pending:
        self.sent.append(ctx)
        if self.during is not None:
            self.during()
        match self.behaves.pop(0) if self.behaves else "ok":
            case "ok":
                return Found(Done(id=self._act(ctx, what)), self._reference(ctx))
            case "lost":
                self._act(ctx, what)
                raise Ambiguous("the reply was lost", error_class="read_timeout")
            case "dropped":
                raise Ambiguous("no reply", error_class="read_timeout")
            case "refused":
                raise Rejected("no", error_class="http_422")
            case "precondition":
                raise Rejected("it moved on", error_class="http_412")
            case "accepted":
                return Pending("in the queue")
            case _:
                raise NotSent("refused", error_class="connection_refused")

    def _act(self, ctx: ToolContext, what: str) -> str:
        key = ctx.idempotency_key
        if not (self.dedupes and any(known == key for known, _ in self.effects)):
            self.effects.append((key, what))
        return self._reference(ctx)

    def _reference(self, ctx: ToolContext) -> str:
        return f"ref-{ctx.idempotency_key[-8:]}"

    def ask(self, ctx: ToolContext) -> ProbeVerdict:
        """Scripted answers first, then what the books say."""
        self.asked.append(ctx)
        if self.answers:
            return self.answers.pop(0)
        mine = [what for key, what in self.effects if key == ctx.idempotency_key]
        return Found({"id": self._reference(ctx)}, self._reference(ctx)) if mine else Absent()


def write_tool(
    shop: Downstream,
    *,
    name: str = "pay",
    contract: Contract | None = None,
    probe: bool = True,
    preview: Callable[[], Preview] | None = None,
    **options: Any,
) -> Tool[Any, Any]:
    """A write `shop.<name>(what, amount)` whose identity is `what`."""

    def act(ctx: ToolContext, what: Literal["a", "b", "c"], amount: int = 1) -> Done | Found:
        """Do it."""
        return shop.send(ctx, what)  # type: ignore[return-value]

    act.__name__ = act.__qualname__ = name
    values: dict[str, Any] = {
        "effect": Effect.WRITE,
        "contract": contract or Key(retention=timedelta(days=2)),
        "identity": ("what",),
        "app_label": "shop",
        "timeout": 10,
    }
    made = tool(**{**values, **options})(act)
    if probe:
        made.probe(after=[5, 30])(lambda ctx, _: shop.ask(ctx))
    if preview is not None:
        made.preview(lambda *_: preview())
    return made


def read_tool(answer: Callable[[], Any], *, name: str = "look", **options: Any) -> Tool[Any, Any]:
    """A read `shop.<name>(what)`."""

    def act(ctx: ToolContext, what: Literal["a", "b", "c"] = "a") -> dict[str, Any]:
        """Look."""
        return answer()  # type: ignore[no-any-return]

    act.__name__ = act.__qualname__ = name
    return tool(effect=Effect.READ, app_label="shop", timeout=10, **options)(act)


Proposed = tuple[Tool[Any, Any], dict[str, Any]]


def propose_run(*calls: Proposed, stop_on_failure: bool = False, **fields: Any) -> UUID:
    """A run in DISPATCHING_TOOLS whose model proposed `calls` in one reply; its id."""
    offered = {call.spec.name: call.spec for call, _ in calls}
    spec = {
        "name": "shop",
        "model": "scripted",
        "instructions": "",
        "settings": {},
        "tools": [tool.manifest() for tool in offered.values()],
        "stop_on_failure": stop_on_failure,
    }
    now = database_clock()
    values: dict[str, Any] = {
        "tenant": "acme",
        "principal": "token:shop",
        "input": {},
        "wake_at": now,
        "max_turns": 12,
        "max_actions": 20,
        "deadline_at": now + timedelta(days=30),
        "code_version": "test",
        "created_at": now,
    }
    run = Run(agent_version=make_agent_version(spec=spec), **{**values, **fields})
    with transaction.atomic():
        create_run(run, actor="token:shop")
    _decide(run.id, calls)
    return run.id


def propose_next(run_id: UUID, *calls: Proposed) -> None:
    """The model of a run in COMPILING_CONTEXT proposes these in its next turn."""
    _decide(run_id, calls, number=Run.objects.get(pk=run_id).turn + 1)


def _decide(run_id: UUID, calls: Sequence[Proposed], number: int = 1) -> None:
    with locked_run(run_id, actor="worker:test", event="turn.started") as draft:
        if draft.run.state != RunState.COMPILING_CONTEXT:
            draft.move_run(RunState.COMPILING_CONTEXT)
        draft.move_run(RunState.CALLING_MODEL, turn=number)
        draft.add(
            Turn(
                run_id=run_id,
                number=number,
                model="scripted",
                manifest={},
                request_sha256="0" * 64,
                code_version="test",
                created_at=draft.now,
            )
        )
    with locked_run(run_id, actor="worker:test", event="turn.decided") as draft:
        view = load_view(run_id)
        view.run = draft.run
        draft.set_row(view.turns[-1], decision="TOOL_CALLS", output="[]", decided_at=draft.now)
        draft.move_run(RunState.DISPATCHING_TOOLS)
        for ordinal, (made, arguments) in enumerate(calls):
            full = dict.fromkeys(made.spec.params_model.model_fields) | arguments
            raw = json.dumps({name: value for name, value in full.items() if value is not None})
            call = ToolCall(f"call_{ordinal}", made.spec.wire_name, raw)
            propose(view, draft, call=call, ordinal=ordinal)


def go(run_id: UUID, *, inline: frozenset[str] = TOOLS_ONLY) -> Driven | None:
    """Drive the run here as far as it goes now."""
    return drive(run_id=run_id, revision=None, inline=inline)


def pass_time(run_id: UUID, **span: float) -> None:
    """Let time pass for one run: all its times move back by the span."""
    by = timedelta(**span)
    columns = {
        "runs_run": ("id", ("wake_at", "call_deadline_at")),
        "runs_actionjournal": ("run_id", ("next_probe_at", "first_sent_at", "ended_at")),
        "runs_attempt": ("run_id", ("started_at", "send_by", "ended_at", "lost_at")),
        "approvals_approval": ("run_id", ("expires_at",)),
    }
    with unguarded(), connection.cursor() as cursor:
        for table, (key, names) in columns.items():
            sets = ", ".join(f"{name} = {name} - %s" for name in names)
            cursor.execute(
                f"UPDATE {table} SET {sets} WHERE {key} = %s",  # noqa: S608
                [*[by] * len(names), run_id],
            )


def later(run_id: UUID, **span: float) -> Driven | None:
    """Let time pass, then drive."""
    pass_time(run_id, **span)
    return go(run_id)


def decide(run_id: UUID, ordinal: int = 0, *, decision: str = "APPROVE", **fields: Any) -> Decision:
    """A person with an account and every right decides about a waiting call."""
    row = Approval.objects.get(pk=action(run_id, ordinal).approval_id)
    values: dict[str, Any] = {
        "decider": real_decider("user:boss", is_superuser=True),
        "reason": "seen",
        "decision": decision,
    }
    return decide_approval(approval_id=row.pk, params_hash=row.params_hash, **{**values, **fields})


def state_of(run_id: UUID) -> str:
    return Run.objects.values_list("state", flat=True).get(pk=run_id)


def actions(run_id: UUID) -> list[ActionJournal]:
    rows = ActionJournal.objects.filter(run_id=run_id).order_by("turn", "ordinal", "edit")
    return list(rows)


def action(run_id: UUID, ordinal: int = 0) -> ActionJournal:
    return actions(run_id)[ordinal]


def states(run_id: UUID) -> list[str]:
    return [row.state for row in actions(run_id)]


def attempts(row: ActionJournal, kind: str = "TOOL") -> list[Attempt]:
    return list(Attempt.objects.filter(action=row, kind=kind).order_by("n"))


def incidents(run_id: UUID) -> list[str]:
    rows = Incident.objects.filter(run_id=run_id).order_by("id")
    return list(rows.values_list("kind", flat=True))
