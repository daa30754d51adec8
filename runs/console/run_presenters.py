"""What the pages of a run and of an action show. Each tab reads its own rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agentcore.context import ContextError
from agentcore.lifecycle import RUN_TERMINAL
from approvals import selectors as approvals
from approvals.models import Approval
from runs.cancelling import in_flight
from runs.console import text, why
from runs.console.graph import Graph, graph_of
from runs.console.redaction import Redactor, redacted, redactor_of
from runs.contexts import observation_of
from runs.models import ActionJournal, Attempt, Event, Incident, Ledger, Reconciliation, Run
from runs.selectors import database_clock
from tools import registry
from tools.guarantees import MEANING, guarantee

MAX_EVENTS = 500
MAX_ROWS = 200
TABS = (
    ("overview", "Overview"),
    ("timeline", "Timeline"),
    ("turns", "Turns"),
    ("actions", "Actions"),
    ("approvals", "Approvals"),
    ("cost", "Cost"),
    ("raw", "Raw"),
)

__all__ = ["TABS", "ActionView", "action_view", "head_of", "timeline"]


@dataclass(slots=True)
class ActionView:
    """One action with its attempts, approvals, verdicts and readable arguments."""

    action: ActionJournal
    attempts: list[Attempt] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    verdicts: list[Reconciliation] = field(default_factory=list)
    arguments: Any = None
    guarantee: str = ""
    meaning: str = ""
    compensates: str = ""
    repeat: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event of the timeline; `gap` is the time without events before it, where it is long."""

    event: Event
    gap: str
    lane: str
    moves: list[dict[str, Any]]
    rest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit: spent, reserved and the most, in words and as shares of 100."""

    name: str
    words: str
    used: int
    limit: int | None

    @property
    def near(self) -> bool:
        """Nine tenths are used."""
        return self.limit is not None and self.used * 10 >= self.limit * 9


@dataclass(frozen=True, slots=True)
class Head:
    """What stands above the tabs and in the overview."""

    run: Run
    now: datetime
    waiting: list[Approval]
    open_writes: tuple[ActionJournal, ...]
    because: str
    next_step: str
    graph: Graph
    budgets: list[Budget]
    incidents: list[Incident]
    retried_by: list[Run]
    children: list[Run]

    @property
    def is_over(self) -> bool:
        return self.run.state in RUN_TERMINAL


def head_of(*, run: Run) -> Head:
    """The overview of one run."""
    now = database_clock()
    live = list(run.actions.filter(ended_at=None).order_by("turn", "ordinal", "edit"))
    asked = [row for row in approvals.of_run(run_id=run.pk) if row.state == "PENDING"]
    known = why.explain(run=run, live=live, asked=asked, now=now)
    visited = _visited(run)
    return Head(
        run=run,
        now=now,
        waiting=asked,
        open_writes=in_flight(run) if run.ended_at is None else (),
        because=known.because,
        next_step=known.next_step,
        graph=graph_of(state=run.state, resume_to=run.resume_to, visited=visited),
        budgets=budgets_of(run),
        incidents=list(run.incidents.order_by("id")[:20]),
        retried_by=list(Run.objects.filter(retry_of_id=run.pk).order_by("id")[:10]),
        children=children_of(run),
    )


def children_of(run: Run) -> list[Run]:
    """The runs that it asked other agents for, oldest first."""
    if not run.handoffs_lent:
        return []
    rows = Run.objects.filter(parent_id=run.pk).select_related("agent_version")
    return list(rows.order_by("id")[:MAX_ROWS])


def _visited(run: Run) -> frozenset[str]:
    """The states that the last events of the run name."""
    rows = run.events.order_by("-seq").values_list("data", flat=True)[:MAX_EVENTS]
    return frozenset(
        str(move.get("to"))
        for data in rows
        if isinstance(data, dict)
        for move in _moves(data.get("transitions"))
        if move.get("object") == "run"
    )


def budgets_of(run: Run) -> list[Budget]:
    """The limits of a run and what it has used of them."""
    budget = run.agent_version.spec.get("budget") or {}
    tokens = run.max_tokens if run.max_tokens is not None else budget.get("tokens")
    cost = run.max_cost if run.max_cost is not None else budget.get("cost")
    held = f", {run.tokens_held} reserved" if run.tokens_held else ""
    held_cost = f", {text.money(run.cost_held)} reserved" if run.cost_held else ""
    ended = run.ended_at
    most = int((run.deadline_at - run.created_at).total_seconds())
    return [
        _budget("Turns", run.turn + run.turns_lent, run.max_turns, str, _lent(run.turns_lent)),
        _budget(
            "Actions",
            run.actions_used + run.actions_lent,
            run.max_actions,
            str,
            _lent(run.actions_lent),
        ),
        _budget("Tokens", run.tokens_used, tokens, str, held),
        _budget("Cost", run.cost_used, cost, text.money, held_cost),
        *(
            [_budget("Time", int((ended - run.created_at).total_seconds()), most, _seconds, "")]
            if ended
            else []
        ),
    ]


def _budget(name: str, used: int, limit: Any, words: Any, extra: str) -> Budget:
    most = int(limit) if isinstance(limit, int | float) else None
    of = f" of {words(most)}" if most is not None else ", no limit"
    return Budget(name, f"{words(used)}{of}{extra}", used, most)


def _lent(amount: int) -> str:
    return f", {amount} of them by other agents" if amount else ""


def _seconds(value: int) -> str:
    return text.span(timedelta(seconds=value))


# --- the tabs -----------------------------------------------------------------------------------


def timeline_tab(run: Run, redactor: Redactor) -> dict[str, Any]:
    """The last events, oldest first."""
    events = list(run.events.order_by("-seq")[:MAX_EVENTS])[::-1]
    for event in events:
        redactor.hide(event, "data")
    return {"timeline": timeline(events), "earlier_events": events[0].seq - 1 if events else 0}


def turns_tab(run: Run, redactor: Redactor) -> dict[str, Any]:
    """The model calls and what they decided."""
    turns = list(run.turns.order_by("number")[:MAX_ROWS])
    calls = list(run.attempts.filter(action=None).order_by("started_at", "n")[:MAX_ROWS])
    for turn in turns:
        turn.text = turn.said
        redactor.hide(turn, "text", "problem", "output")
    for call in calls:
        redactor.hide(call, "result", "detail")
    return {"turns": turns, "calls": calls}


def actions_tab(actions: list[ActionJournal], redactor: Redactor) -> dict[str, Any]:
    """Every action with its attempts, approvals and verdicts."""
    ids = [action.pk for action in actions]
    attempts = list(Attempt.objects.filter(action_id__in=ids).order_by("started_at", "n"))
    asked = approvals.of_actions(action_ids=ids)
    verdicts = list(Reconciliation.objects.filter(action_id__in=ids).order_by("created_at"))
    return {"views": [_view(a, attempts, asked, verdicts, redactor) for a in actions]}


def approvals_tab(run: Run) -> dict[str, Any]:
    """Every question of the run with its votes."""
    return {"approvals": approvals.of_run(run_id=run.pk)}


def cost_tab(run: Run) -> dict[str, Any]:
    """The account: each line, and the sum so far."""
    of_run = Ledger.objects.filter(attempt__run_id=run.pk, attempt__action=None)
    rows = list(of_run.order_by("created_at", "id")[:1000])
    total, lines = 0, []
    for row in rows:
        total += row.cost if row.entry != "RESERVE" else 0
        lines.append((row, total))
    return {"lines": lines, "total": total}


def raw_tab(run: Run, redactor: Redactor) -> dict[str, Any]:
    """The row itself."""
    hidden = {"claim_token"}
    columns = [f for f in run._meta.concrete_fields if f.attname not in hidden]
    return {"columns": [(f.attname, redactor.json(getattr(run, f.attname))) for f in columns]}


def action_view(*, action: ActionJournal, reveal: bool = False) -> ActionView:
    """One action with its attempts and approvals."""
    attempts = list(action.attempts.order_by("started_at", "n"))
    verdicts = list(action.reconciliations.order_by("created_at"))
    asked = approvals.of_actions(action_ids=[action.pk])
    redactor = redactor_of([action], reveal=reveal)
    return _view(action, attempts, asked, verdicts, redactor)


def _view(
    action: ActionJournal,
    attempts: Iterable[Attempt],
    asked: Iterable[Approval],
    verdicts: Iterable[Reconciliation],
    redactor: Redactor,
) -> ActionView:
    spec = registry.get(action.tool)
    mine = [attempt for attempt in attempts if attempt.action_id == action.pk]
    questions = [approval for approval in asked if approval.action_id == action.pk]
    for attempt in mine:
        redactor.hide(attempt, "result", "detail", "reference")
    shown = redacted(action.tool, action.arguments, reveal=redactor.reveal)
    kind = guarantee(spec) if spec and hasattr(spec, "contract") else None
    repeats = [(a.impact or {}).get("repeat") for a in questions]
    action.observation = _shown_to_the_model(action)
    redactor.hide(action, "result", "observation", "detail", "precheck")
    return ActionView(
        action=action,
        attempts=mine,
        approvals=questions,
        verdicts=[row for row in verdicts if row.action_id == action.pk],
        arguments=shown,
        guarantee=kind or "",
        meaning=MEANING[kind] if kind else "",
        compensates=getattr(spec, "compensates", "") if spec else "",
        repeat=next((item for item in repeats if isinstance(item, dict)), {}),
    )


def _shown_to_the_model(action: ActionJournal) -> str | None:
    """Its observation in full; as it is stored when the result beside it is another one."""
    try:
        return None if action.observation is None else observation_of(action)
    except ContextError:
        return action.observation


# --- events -------------------------------------------------------------------------------------

_LANES = {"user": "human", "worker": "system", "sweep": "system", "callback": "tool"}


def timeline(events: Sequence[Event]) -> list[EventLine]:
    """Events as lines, with a gap marker where more than ten seconds passed in silence."""
    lines = []
    previous: datetime | None = None
    for event in events:
        rest = dict(event.data) if isinstance(event.data, dict) else {"data": event.data}
        moves = _moves(rest.pop("transitions", []))
        silent = event.created_at - previous if previous else timedelta(0)
        gap = text.span(silent) if silent > timedelta(seconds=10) else ""
        lines.append(
            EventLine(event=event, gap=gap, lane=_lane(event, moves), moves=moves, rest=rest)
        )
        previous = event.created_at
    return lines


def _lane(event: Event, moves: list[dict[str, Any]]) -> str:
    kind = _LANES.get(event.actor.partition(":")[0], "caller")
    if kind != "system":
        return kind
    steps = {str(move.get("step")) for move in moves} | {str(move.get("kind")) for move in moves}
    if event.type.startswith("action.") or steps & {"TOOL", "PROBE", "PRECHECK", "POSTCONDITION"}:
        return "tool"
    return "model" if steps & {"model", "MODEL"} else "system"


def _moves(moves: Any) -> list[dict[str, Any]]:
    """The moves with `source` and `target`, since a template cannot read a key named `from`."""
    known = [move for move in moves if isinstance(move, dict)] if isinstance(moves, list) else []
    return [{**move, "source": move.get("from"), "target": move.get("to")} for move in known]


def actions_of(run_id: UUID) -> list[ActionJournal]:
    """The actions of a run in their order, at most `MAX_ROWS`."""
    rows = ActionJournal.objects.filter(run_id=run_id).order_by("turn", "ordinal", "edit")
    return list(rows[:MAX_ROWS])
