"""A run that must end: nothing new starts, open effects are settled, then the terminal state."""

from __future__ import annotations

from agentcore.lifecycle import (
    ACTION_UNDECIDED,
    ActionState,
    RunState,
    StopReason,
)
from runs import children, journal, outcomes
from runs.models import ActionJournal
from runs.steps import dispatch_tools, order, reconciling
from runs.steps.base import Answer, End, Wait, far
from runs.transitions import Draft
from runs.view import View, is_child, is_write

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
    children.take(view, draft)
    void_undecided(view, draft)
    for action in view.in_state(A.RUNNING):
        _settle_running(view, draft, action)
    if run.stop_reason == StopReason.CANCEL and run.state != RunState.CANCELLING:
        draft.move_run(RunState.CANCELLING)
    if view.open_actions:
        if run.state == RunState.DISPATCHING_TOOLS:
            if len(children.open_calls(view)) == len(view.open_actions):
                draft.move_run(RunState.WAITING_CHILD)
                return Wait(far(draft.now))
            draft.move_run(RunState.RECONCILING)
        return reconciling.plan(view, draft)
    note_outcome(view, draft)
    draft.move_run(_ENDS.get(StopReason(run.stop_reason or ""), RunState.FAILED))
    return End()


def note_outcome(view: View, draft: Draft) -> None:
    """What the business has of a run that ends without an answer; a word that is there stays."""
    if not draft.run.business_outcome:
        draft.set_run(business_outcome=outcomes.business_outcome(view))


def _settle_running(view: View, draft: Draft, action: ActionJournal) -> None:
    """A call that was begun: a read is dropped, a write is what its attempts say together. A run of
    another agent is stopped too, and comes to its own end.
    """
    attempts = view.attempts_of(action)
    if is_child(action):
        return
    if not is_write(action):
        draft.move_action(action, A.VOIDED, reason="RUN_STOPPING")
    elif any(a.outcome is None and a.lost_at is None for a in attempts):
        return  # in flight
    elif journal.joined_state(action, attempts) == A.FAILED:
        detail = "no attempt had an effect"
        journal.fail_action(draft, action, error_class="stopped", detail=detail)
    else:  # a person said "send it again" and it was not sent any more
        detail = "the run stops before it was sent again"
        sends = len(attempts)
        journal.to_unknown(draft, action, error_class="stopped", detail=detail, sends=sends)


def void_undecided(view: View, draft: Draft) -> None:
    """VOIDED: every action of which nothing was sent, with its approval."""
    for action in view.in_state(*ACTION_UNDECIDED):
        order.void_approval(view, draft, action, cause="run stopping")
        draft.move_action(action, A.VOIDED, reason="RUN_STOPPING")
