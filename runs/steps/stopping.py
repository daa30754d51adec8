"""A run that must end: nothing new starts, open effects are settled, then the terminal state."""

from __future__ import annotations

from functools import partial

from agentcore.lifecycle import (
    ACTION_UNDECIDED,
    ActionState,
    ApprovalState,
    RunState,
    StopReason,
)
from approvals import records
from runs import journal
from runs.steps import dispatch_tools, reconciling
from runs.steps.base import Answer, End
from runs.transitions import Draft
from runs.view import View, is_write

A = ActionState
_ENDS = {
    StopReason.CANCEL: RunState.CANCELLED,
    StopReason.DEADLINE: RunState.INCOMPLETE,
    StopReason.BUDGET: RunState.INCOMPLETE,
    StopReason.NO_PROGRESS: RunState.INCOMPLETE,
    StopReason.REFUSED: RunState.INCOMPLETE,
    StopReason.UNVERIFIED: RunState.INCOMPLETE,
}
"""Terminal state of each stop reason; every other reason is a failure."""


def plan(view: View, draft: Draft) -> Answer:
    """Void what never began, settle what did, end when nothing is open."""
    run = view.run
    dispatch_tools.settle_lost(view, draft)
    void_undecided(view, draft)
    for action in view.in_state(A.RUNNING):
        if not is_write(action):
            draft.move_action(action, A.VOIDED, reason="RUN_STOPPING")
        elif not any(a.outcome is None for a in view.attempts_of(action)):
            journal.fail_action(
                draft, action, error_class="stopped", detail="no attempt had an effect"
            )
    if run.stop_reason == StopReason.CANCEL and run.state != RunState.CANCELLING:
        draft.move_run(RunState.CANCELLING)
    if view.open_actions:
        if run.state == RunState.DISPATCHING_TOOLS:
            draft.move_run(RunState.RECONCILING)
        return reconciling.plan(view, draft)
    draft.move_run(_ENDS.get(StopReason(run.stop_reason or ""), RunState.FAILED))
    return End()


def void_undecided(view: View, draft: Draft) -> None:
    """VOIDED: every action of which nothing was sent, with its approval."""
    for action in view.in_state(*ACTION_UNDECIDED):
        approval = view.approval_of(action)
        if approval and approval.state in (ApprovalState.PENDING, ApprovalState.APPROVED):
            draft.also(partial(records.void, (approval.id,)))
            approval.state = ApprovalState.VOIDED
            draft.log(object="approval", id=str(approval.id), to="VOIDED", cause="run stopping")
        draft.move_action(action, A.VOIDED, reason="RUN_STOPPING")
