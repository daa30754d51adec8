"""What one drive knows of its run: rows read once, kept in step with what it writes itself.

The view carries the revision it was read at. Under the lock another revision discards every
decision made from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from uuid import UUID

from django.db.models import Q

from agentcore.context import ContextPack, Exchange
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_OPEN, ACTION_TERMINAL, ActionState
from agentcore.llm.base import ModelFailure
from agentcore.throttle import Held
from agentcore.values import AttemptKind, Effect
from approvals.models import Approval
from runs import controls
from runs.account_models import Ledger
from runs.controls import Snapshot
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal, AgentVersion, Attempt, Run, Turn
from tools import clock, registry
from tools.invocation import Judgement
from tools.spec import ToolSpec


@dataclass
class View:
    """One run in memory. `actions` are all of the run, by turn and ordinal."""

    run: Run
    agent: AgentVersion
    turns: list[Turn]
    actions: list[ActionJournal]
    attempts: list[Attempt]
    approvals: dict[UUID, Approval]
    read_at: datetime
    read_local: float = field(default_factory=clock.now)
    owners: dict[tuple[str, str], tuple[KeyOwner | None, int]] = field(default_factory=dict)
    reserved: dict[UUID, Ledger] = field(default_factory=dict)  # by attempt, of this drive
    trusting: bool = True  # nothing planned from it was refused yet
    judgements: dict[UUID, Judgement] = field(default_factory=dict)
    exchanges: dict[int, Exchange] = field(default_factory=dict)  # by turn, finished ones
    pack: ContextPack | None = None
    held: dict[UUID, Held] = field(default_factory=dict)  # actions that a limit lets wait
    reply: ParsedReply | ReplyFailure | ModelFailure | None = None
    reply_attempt: UUID | None = None

    @cached_property
    def controls(self) -> Snapshot:
        """What operators have set, read when it is first asked for."""
        return controls.read()

    @property
    def now(self) -> datetime:
        """The database clock at reading time, moved on by the local clock."""
        return self.read_at + timedelta(seconds=clock.now() - self.read_local)

    @property
    def turn(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    @property
    def turn_actions(self) -> list[ActionJournal]:
        return [action for action in self.actions if action.turn == self.run.turn]

    @property
    def open_actions(self) -> list[ActionJournal]:
        return [action for action in self.actions if action.state in ACTION_OPEN]

    @property
    def live_actions(self) -> list[ActionJournal]:
        return [action for action in self.actions if action.state not in ACTION_TERMINAL]

    def in_state(self, *states: ActionState) -> list[ActionJournal]:
        return [action for action in self.actions if action.state in states]

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
class Seen:
    """A run row as a claim has just written it, the database clock, and our own at that moment."""

    run: Run
    at: datetime
    local: float


def load_view(run_id: UUID, *, seen: Seen | None = None) -> View:
    """Read one run whole. The run row first: a change after it is caught by its revision.

    `seen` is the row itself, when it was read a moment ago.
    """
    seen = seen or _see(run_id)
    begun = seen.run.turn > 0  # before its first turn there is nothing else of a run
    actions = _actions(run_id) if begun else []
    return View(
        run=seen.run,
        agent=_agent(seen.run.agent_version_id),
        turns=list(Turn.objects.filter(run_id=run_id).order_by("number")) if begun else [],
        actions=actions,
        attempts=_relevant_attempts(seen.run, actions) if begun else [],
        approvals=_approvals(actions),
        read_at=seen.at,
        read_local=seen.local,
    )


def _see(run_id: UUID) -> Seen:
    local = clock.now()  # before the reading: what is planned with it is rather late than early
    run = Run.objects.raw(
        "SELECT *, clock_timestamp() AS db_now FROM runs_run WHERE id = %s", [run_id]
    )[0]
    return Seen(run, run.db_now, local)  # type: ignore[attr-defined]


def _actions(run_id: UUID) -> list[ActionJournal]:
    rows = ActionJournal.objects.filter(run_id=run_id)
    return list(rows.order_by("turn", "ordinal", "edit"))


@lru_cache(maxsize=256)
def _agent(version_id: UUID) -> AgentVersion:
    """An agent version, kept: its row never changes."""
    return AgentVersion.objects.get(pk=version_id)


def _relevant_attempts(run: Run, actions: Iterable[ActionJournal]) -> list[Attempt]:
    """Those of the current turn, of live actions, and the checks of finished effects."""
    live = [action.id for action in actions if action.state not in ACTION_TERMINAL]
    wanted = Q(turn=run.turn) | Q(kind=AttemptKind.POSTCONDITION)
    if live:
        wanted |= Q(action_id__in=live)
    return list(Attempt.objects.filter(wanted, run_id=run.id).order_by("n", "id"))


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


def is_write(action: ActionJournal) -> bool:
    return Effect(action.effect).is_write
