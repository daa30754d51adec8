"""The public status of a run: the one place where internal states become public words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from agentcore.lifecycle import RUN_TERMINAL, ActionState, RunState, StopReason

PublicStatus = Literal[
    "queued",
    "in_progress",
    "requires_action",
    "cancelling",
    "completed",
    "incomplete",
    "failed",
    "cancelled",
]
STATUSES: tuple[str, ...] = get_args(PublicStatus)
TERMINAL = frozenset(str(state).lower() for state in RUN_TERMINAL)
ActionType = Literal["approval", "reconciliation", "operator"]

R = RunState

BASE: dict[RunState, PublicStatus] = {
    R.QUEUED: "queued",
    R.COMPILING_CONTEXT: "in_progress",
    R.CALLING_MODEL: "in_progress",
    R.DISPATCHING_TOOLS: "in_progress",
    R.WAITING_APPROVAL: "in_progress",
    R.WAITING_CHILD: "in_progress",
    R.RECONCILING: "in_progress",
    R.OBSERVING: "in_progress",
    R.VERIFYING: "in_progress",
    R.RETRY_WAIT: "in_progress",
    R.SUSPENDED: "requires_action",
    R.CANCELLING: "cancelling",
    R.COMPLETED: "completed",
    R.INCOMPLETE: "incomplete",
    R.FAILED: "failed",
    R.CANCELLED: "cancelled",
}
"""The status of a state when no rule of `OVERRIDES` applies."""

OVERRIDES: tuple[tuple[str, str], ...] = (
    ("any live state, stop_reason CANCEL", "cancelling"),
    ("any live state, an action in NEEDS_HUMAN", "requires_action (reconciliation)"),
    ("SUSPENDED", "requires_action (operator)"),
    ("WAITING_APPROVAL, an action in AWAITING_APPROVAL", "requires_action (approval)"),
)
"""The rules of `public_status`, in their order; the first that applies wins."""


@dataclass(frozen=True, slots=True)
class ActionFact:
    """What the status needs to know of one action. `expires_at` is that of its approval."""

    id: UUID
    state: ActionState
    approval_id: UUID | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RequiredAction:
    """What a person has to do. `ids`: approvals, actions or (operator) the run itself."""

    type: ActionType
    ids: tuple[UUID, ...]
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Public:
    status: PublicStatus
    required_action: RequiredAction | None = None


def public_status(
    *, run_id: UUID, state: RunState, stop_reason: StopReason | None, actions: Sequence[ActionFact]
) -> Public:
    """The public status of a run and what it waits for, if a person has to act.

    A cancelled run that needs a verdict stays `cancelling` and says so in `required_action`.
    A run whose last approval has just been decided is `in_progress` again before a worker has
    moved it out of WAITING_APPROVAL.
    """
    if state in RUN_TERMINAL:
        return Public(BASE[state])
    verdicts = tuple(a.id for a in actions if a.state is ActionState.NEEDS_HUMAN)
    required = RequiredAction("reconciliation", verdicts) if verdicts else None
    if state is R.CANCELLING or stop_reason is StopReason.CANCEL:
        return Public("cancelling", required)
    if required is not None:
        return Public("requires_action", required)
    if state is R.SUSPENDED:
        return Public("requires_action", RequiredAction("operator", (run_id,)))
    if state is R.WAITING_APPROVAL:
        return _waiting_approval(actions)
    return Public(BASE[state])


def _waiting_approval(actions: Iterable[ActionFact]) -> Public:
    asked = [a for a in actions if a.state is ActionState.AWAITING_APPROVAL and a.approval_id]
    if not asked:
        return Public(BASE[R.WAITING_APPROVAL])
    ids = tuple(a.approval_id for a in asked if a.approval_id is not None)
    expires = min((a.expires_at for a in asked if a.expires_at is not None), default=None)
    return Public("requires_action", RequiredAction("approval", ids, expires))


def status_table() -> list[tuple[str, str]]:
    """Rows (internal, public) for the documentation: the rules first, then each state alone."""
    return [*OVERRIDES, *((str(state), BASE[state]) for state in RunState)]


INCOMPLETE_REASON: dict[StopReason, str] = {
    StopReason.DEADLINE: "deadline",
    StopReason.NO_PROGRESS: "no_progress",
    StopReason.REFUSED: "refused",
    StopReason.UNVERIFIED: "postcondition_failed",
}
"""Public reason of an incomplete run; BUDGET is told apart by `incomplete_reason`."""

FAILED_LAYER: dict[StopReason, str] = {
    StopReason.MODEL_ERROR: "model",
    StopReason.TOOL_ERROR: "tool",
    StopReason.CONTEXT_ERROR: "context",
    StopReason.RUNTIME_ERROR: "runtime",
}
"""The layer that broke, for a failed run."""


def incomplete_reason(
    *, stop_reason: StopReason, turns: int, max_turns: int, spent: str = ""
) -> str:
    """Why the run is incomplete, as one public word. `spent`: the word for a limit of tokens or
    money, where the run had one and kept its limit of actions.
    """
    if stop_reason is StopReason.BUDGET:
        return "max_turns" if turns >= max_turns else spent or "max_actions"
    return INCOMPLETE_REASON.get(stop_reason, str(stop_reason).lower())
