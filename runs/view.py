"""What one drive knows of its run: rows read once, kept in step with what it writes itself.

The view carries the revision it was read at. Under the lock another revision discards every
decision made from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from agentcore.context import ContextPack
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_OPEN, ACTION_TERMINAL, ActionState
from agentcore.llm.base import ModelFailure
from agentcore.values import AttemptKind, Effect
from approvals.models import Approval
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal, AgentVersion, Attempt, Run, Turn
from tools import registry
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
    read_monotonic: float = field(default_factory=time.monotonic)
    owners: dict[tuple[str, str], tuple[KeyOwner | None, int]] = field(default_factory=dict)
    judgements: dict[UUID, Judgement] = field(default_factory=dict)
    pack: ContextPack | None = None
    reply: ParsedReply | ReplyFailure | ModelFailure | None = None
    reply_attempt: UUID | None = None

    @property
    def now(self) -> datetime:
        """The database clock at reading time, moved on by the local monotonic clock."""
        return self.read_at + timedelta(seconds=time.monotonic() - self.read_monotonic)

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


def load_view(run_id: UUID) -> View:
    """Read one run whole. The run row first: a change after it is caught by its revision."""
    run = Run.objects.raw(
        "SELECT *, clock_timestamp() AS db_now FROM runs_run WHERE id = %s", [run_id]
    )[0]
    actions = list(ActionJournal.objects.filter(run_id=run_id).order_by("turn", "ordinal", "edit"))
    return View(
        run=run,
        agent=AgentVersion.objects.get(pk=run.agent_version_id),
        turns=list(Turn.objects.filter(run_id=run_id).order_by("number")),
        actions=actions,
        attempts=_relevant_attempts(run, actions),
        approvals=_approvals(actions),
        read_at=run.db_now,  # type: ignore[attr-defined]
    )


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


def spec_of(action: ActionJournal) -> ToolSpec | None:
    """The tool as it is registered now, if it still has the version the action was decided for."""
    spec = registry.get(action.tool)
    return spec if spec is not None and spec.version == action.tool_version else None


def is_write(action: ActionJournal) -> bool:
    return Effect(action.effect).is_write
