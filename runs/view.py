"""What one drive knows of its run: rows read once, kept in step with what it writes itself.

The view carries the revision it was read at. Under the lock another revision discards every
decision made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Model

from agentcore.children import CONTRACT
from agentcore.context import ContextPack
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_OPEN, ACTION_TERMINAL, ActionState
from agentcore.llm.base import ModelFailure
from agentcore.throttle import Held
from agentcore.values import AttemptKind, Effect
from approvals.models import Approval
from runs import controls, sql
from runs.account_models import Ledger
from runs.controls import Snapshot
from runs.fleet_models import KeyOwner
from runs.history import History, is_settled, is_strange
from runs.models import ActionJournal, AgentVersion, Attempt, Run, Turn
from tools import clock, registry
from tools.invocation import Judgement
from tools.spec import ToolSpec


@dataclass
class View:
    """One run in memory. `actions` are all of the run, by turn and ordinal; of `turns` the manifest
    and what is only shown to people may still lie in the database, save for the last one.
    """

    run: Run
    agent: AgentVersion
    turns: list[Turn]
    actions: list[ActionJournal]
    attempts: list[Attempt]
    approvals: dict[UUID, Approval]
    read_at: datetime
    history: History = field(default_factory=History)
    read_local: float = field(default_factory=clock.now)
    owners: dict[tuple[str, str], tuple[KeyOwner | None, int]] = field(default_factory=dict)
    reserved: dict[UUID, Ledger] = field(default_factory=dict)  # by attempt, of this drive
    trusting: bool = True  # nothing planned from it was refused yet
    judgements: dict[UUID, Judgement] = field(default_factory=dict)
    pack: ContextPack | None = None
    held: dict[UUID, Held] = field(default_factory=dict)  # actions that a limit lets wait
    reply: ParsedReply | ReplyFailure | ModelFailure | None = None
    reply_attempt: UUID | None = None

    @cached_property
    def controls(self) -> Snapshot:
        """What operators have set, read when it is first asked for."""
        return controls.read()

    @cached_property
    def root(self) -> Run:
        """The run that somebody asked for: this one, or that above all its parents."""
        return self.run if self.run.root_id is None else Run.objects.get(pk=self.run.root_id)

    @cached_property
    def above(self) -> list[Run]:
        """The run that asked for this one, the one above that, and so on, each with its agent
        version; nothing for a run that somebody asked for. Only what never changes of them counts.
        """
        found: list[Run] = []
        parent_id = self.run.parent_id
        while parent_id is not None:
            found.append(Run.objects.select_related("agent_version").get(pk=parent_id))
            parent_id = found[-1].parent_id
        return found

    @cached_property
    def from_strangers(self) -> bool:
        """Whether a model that asked for this run, or for one above it, had read what strangers
        wrote."""
        run = self.run
        while run.parent_id is not None and run.parent_action is not None:
            asked = ActionJournal.objects.get(pk=run.parent_action)
            before = ActionJournal.objects.filter(run_id=run.parent_id, turn__lt=asked.turn)
            if any(is_strange(row) for row in before):
                return True
            run = Run.objects.get(pk=run.parent_id)
        return False

    @property
    def now(self) -> datetime:
        """The database clock at reading time, moved on by the local clock."""
        return self.read_at + timedelta(seconds=clock.now() - self.read_local)

    @property
    def turn(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    @property
    def turn_actions(self) -> list[ActionJournal]:
        return [action for action in self.recent if action.turn == self.run.turn]

    @property
    def open_actions(self) -> list[ActionJournal]:
        return [action for action in self.recent if action.state in ACTION_OPEN]

    @property
    def live_actions(self) -> list[ActionJournal]:
        return [action for action in self.recent if action.state not in ACTION_TERMINAL]

    @property
    def recent(self) -> list[ActionJournal]:
        """The actions of the turn under way and all that may still change. Most questions are about
        these, and a long run has few of them."""
        return self.actions[len(self.history.actions) :]

    def in_state(self, *states: ActionState) -> list[ActionJournal]:
        rows = self.actions if ACTION_TERMINAL.intersection(states) else self.recent
        return [action for action in rows if action.state in states]

    def action(self, action_id: UUID) -> ActionJournal:
        """One of the run's actions, most likely a recent one. Raises LookupError."""
        for row in reversed(self.actions):
            if row.id == action_id:
                return row
        raise LookupError(f"run {self.run.id} has no action {action_id}")

    def settle(self) -> None:
        """What has been committed by now is history, as far as it is settled."""
        known, turn = self.history, self.run.turn
        moving = (row.turn for row in self.recent if not is_settled(row, turn=turn))
        end = min(next(moving, turn), turn)
        rows = self.turns[len(known.turns) :]
        turns = [*takewhile(lambda row: row.number < end and row.decision, rows)]
        if turns:
            through = turns[-1].number
            known.add(turns, [row for row in self.recent if row.turn <= through], through=through)

    def attempts_of(
        self, action: ActionJournal | None, kind: AttemptKind = AttemptKind.TOOL
    ) -> list[Attempt]:
        """The attempts of one action (or of the current turn's model call), by number."""
        action_id = action.id if action else None
        return [
            attempt
            for attempt in self.attempts
            if attempt.kind == kind
            and attempt.action_id == action_id
            and (action_id is not None or attempt.turn == self.run.turn)
        ]

    def approval_of(self, action: ActionJournal) -> Approval | None:
        return self.approvals.get(action.approval_id) if action.approval_id else None


@dataclass(frozen=True, slots=True)
class Beside:
    """All there is of a run after turn `after` that a drive looks at."""

    after: int
    turns: list[Turn] = field(default_factory=list)
    actions: list[ActionJournal] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """A run row as a claim has just written it, the database clock, and our own at that moment;
    where they came in the same message, what operators have set and the other rows.
    """

    run: Run
    at: datetime
    local: float
    controls: Snapshot | None = None
    beside: Beside | None = None


def load_view(run_id: UUID, *, seen: Seen | None = None, history: History | None = None) -> View:
    """Read one run. The run row first: a change after it is caught by its revision.

    `seen` is the row itself, when it was read a moment ago; `history` what is known of the run
    already, and not read again.
    """
    seen = seen or _see(run_id)
    # A database that lost commits (docs/operations.md) may stand before what is remembered.
    known = history if history is not None and history.through < seen.run.turn else History()
    found = seen.beside
    if found is None or found.after != known.through:
        found = _beside(seen.run, known.through)
    view = View(
        run=seen.run,
        agent=_agent(seen.run.agent_version_id),
        turns=[*known.turns, *found.turns],
        actions=[*known.actions, *found.actions],
        attempts=found.attempts,
        approvals=_approvals(found.actions),
        read_at=seen.at,
        read_local=seen.local,
        history=known,
    )
    if seen.controls is not None:
        view.controls = seen.controls
    view.settle()
    return view


def _beside(run: Run, after: int) -> Beside:
    if run.turn == 0:  # before its first turn there is nothing else of a run
        return Beside(after)
    actions = _actions(run.id, after)
    return Beside(after, _turns(run, after), actions, _relevant_attempts(run, actions))


def beside(run_id: UUID, *, after: int) -> list[sql.Text]:
    """What `_beside` reads, as queries that need no look at the run row first."""
    turns, actions, attempts = _beside_texts()
    of_run = [run_id, after]
    return [(turns, of_run), (actions, of_run), (attempts, [run_id, run_id, *of_run])]


@cache
def _beside_texts() -> tuple[str, str, str]:
    ended = ", ".join(f"'{state}'" for state in sorted(ACTION_TERMINAL))
    live = (
        "SELECT id FROM runs_actionjournal WHERE run_id = %s AND turn > %s"  # noqa: S608
        f" AND state NOT IN ({ended})"
    )
    relevant = (
        "run_id = %s AND (turn = (SELECT turn FROM runs_run WHERE id = %s)"  # noqa: S608
        f" OR kind = '{AttemptKind.POSTCONDITION}' OR action_id IN ({live}))"
    )
    return (
        _query(Turn, f"run_id = %s AND number > %s ORDER BY number LIMIT {WHOLE + 1}"),
        _query(ActionJournal, "run_id = %s AND turn > %s ORDER BY turn, ordinal, edit"),
        _query(Attempt, f"{relevant} ORDER BY n, id"),
    )


def _query(model: type[Model], rest: str) -> str:
    return f"SELECT {sql.columns_of(model)} FROM {sql.table_of(model)} WHERE {rest}"  # noqa: S608


def read_beside(found: Sequence[Sequence[tuple[Any, ...]]], *, after: int) -> Beside | None:
    """The rows of `beside`; None where there are so many turns that not all of a row is read."""
    turns, actions, attempts = found
    if len(turns) > WHOLE:
        return None
    return Beside(
        after,
        [sql.row_of(Turn, values) for values in turns],
        [sql.row_of(ActionJournal, values) for values in actions],
        [sql.row_of(Attempt, values) for values in attempts],
    )


def _see(run_id: UUID) -> Seen:
    asked = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {sql.columns_of(Run)}, clock_timestamp() FROM runs_run WHERE id = %s",  # noqa: S608
            [run_id],
        )
        found = cursor.fetchone()
    if found is None:
        raise Run.DoesNotExist(f"no run {run_id}")
    return Seen(sql.row_of(Run, found[:-1]), found[-1], clock.answered(asked))


def _turns(run: Run, known: int) -> list[Turn]:
    """The turns after `known`. Of many, only the last with its manifest, which is most of a row."""
    rest = "WHERE run_id = %s AND number > %s AND number <= %s ORDER BY number"
    if run.turn - known <= WHOLE:
        return sql.select(Turn, rest, [run.id, known, run.turn])
    shown = ("manifest", "usage")
    old = sql.select(Turn, rest, [run.id, known, run.turn - 1], without=shown)
    return [*old, *_turns(run, run.turn - 1)]


WHOLE = 8
"""Turns that are read with all their columns; a second query costs more than it saves."""


def _actions(run_id: UUID, known: int) -> list[ActionJournal]:
    rest = "WHERE run_id = %s AND turn > %s ORDER BY turn, ordinal, edit"
    return sql.select(ActionJournal, rest, [run_id, known])


@lru_cache(maxsize=256)
def _agent(version_id: UUID) -> AgentVersion:
    """An agent version, kept: its row never changes."""
    return AgentVersion.objects.get(pk=version_id)


def _relevant_attempts(run: Run, actions: Iterable[ActionJournal]) -> list[Attempt]:
    """Those of the current turn, of live actions, and the checks of finished effects."""
    live = [action.id for action in actions if action.state not in ACTION_TERMINAL]
    rest = "WHERE run_id = %s AND (turn = %s OR kind = %s OR action_id = ANY(%s)) ORDER BY n, id"
    return sql.select(Attempt, rest, [run.id, run.turn, AttemptKind.POSTCONDITION.value, live])


def _approvals(actions: Iterable[ActionJournal]) -> dict[UUID, Approval]:
    ids = [
        action.approval_id
        for action in actions
        if action.approval_id and action.state not in ACTION_TERMINAL
    ]
    return {row.id: row for row in Approval.objects.filter(id__in=ids)} if ids else {}


def spec_of(action: ActionJournal | Approval) -> ToolSpec | None:
    """The tool as it is registered now, if it still has the version the action was decided for."""
    spec = registry.get(action.tool)
    return spec if spec is not None and spec.version == action.tool_version else None


def is_child(action: ActionJournal) -> bool:
    """Whether the action is a run of another agent."""
    return action.contract == CONTRACT


def is_write(action: ActionJournal) -> bool:
    return Effect(action.effect).is_write
