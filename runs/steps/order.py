"""The order inside one reply: which calls wait for which, and when a try may be repeated.

Reads go side by side; calls that touch the same object go in call order. A write without a
resource key counts its tool as the object.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from agentcore.lifecycle import ACTION_OPEN, ACTION_UNDECIDED, ActionState, ApprovalState
from agentcore.retries import backoff
from agentcore.values import OutcomeKind
from approvals import records
from runs.models import ActionJournal
from runs.transitions import Draft
from runs.view import View, is_child, is_write

A = ActionState


def is_blocked(view: View, action: ActionJournal) -> bool:
    """Whether a READY call has to wait for another call on the same object.

    A write waits for every open write and for earlier reads; a read for earlier writes that are
    open or ready to go, so that it does not show the state before them.
    """
    mine = _object_of(action)
    if not mine:
        return False
    return any(
        _object_of(other) == mine and _holds_up(other, action)
        for other in view.live_actions
        if other.id != action.id
    )


def _holds_up(other: ActionJournal, action: ActionJournal) -> bool:
    earlier = _place(other) < _place(action)
    if is_write(action):
        return other.state in ACTION_OPEN and (is_write(other) or earlier)
    return earlier and is_write(other) and other.state in ACTION_OPEN | {A.READY}


def _object_of(action: ActionJournal) -> str:
    return action.resource_key or (f"tool:{action.tool}" if is_write(action) else "")


def _place(action: ActionJournal) -> tuple[int, int, int]:
    return action.turn, action.ordinal, action.edit


def is_uncertain(view: View) -> bool:
    """Whether a write of the run may or may not have happened: then no other one starts."""
    return bool(view.in_state(A.UNKNOWN, A.NEEDS_HUMAN))


def may_start(view: View, action: ActionJournal) -> bool:
    """Whether a READY call may go now, as far as the other calls are concerned."""
    if is_write(action) and (is_uncertain(view) or _waits_for_agent(view, action)):
        return False
    return not is_blocked(view, action)


def _waits_for_agent(view: View, action: ActionJournal) -> bool:
    """Whether an agent that stops after a failure does not know yet what an earlier call of another
    agent comes to."""
    return bool(view.agent.spec.get("stop_on_failure")) and any(
        is_child(other) and other.state == A.RUNNING and _place(other) < _place(action)
        for other in view.turn_actions
    )


def retry_at(view: View, action: ActionJournal, now: datetime) -> datetime:
    """When a RUNNING action without a call in flight may be tried again."""
    attempts = view.attempts_of(action)
    last = attempts[-1]
    if last.outcome is None and last.lost_at is None:
        return now + timedelta(days=1)  # in flight, by this holder
    if last.ended_at is None or (last.outcome == OutcomeKind.AMBIGUOUS and is_write(action)):
        return now  # lost, or a person said: send it again
    jitter = (last.id.int & 0xFFFF) / 0xFFFF
    return last.ended_at + timedelta(seconds=backoff(n=last.n, base=0.5, cap=30.0, jitter=jitter))


def stop_after_failure(view: View, draft: Draft) -> None:
    """For an agent that says so: after a FAILED call the later writes of its reply do not begin.

    They become VOIDED and not DENIED: nothing was found wrong with them, they are withdrawn like
    those of a stopping run; and from AWAITING_APPROVAL the table has no other way.
    """
    if not view.agent.spec.get("stop_on_failure"):
        return
    failed = [action for action in view.turn_actions if action.state == A.FAILED]
    if not failed:
        return
    first = min(failed, key=_place)
    for action in view.in_state(*ACTION_UNDECIDED):
        if is_write(action) and _place(action) > _place(first):
            void_approval(view, draft, action, cause="an earlier call failed")
            detail = f"{first.tool} failed before it; the agent stops there"
            draft.move_action(action, A.VOIDED, reason="STOPPED_ON_FAILURE", detail=detail)


DRY_RUN = "DRY_RUN"


def void_for_dry_run(draft: Draft, action: ActionJournal, *, asks: bool) -> None:
    """VOIDED: a write of a dry run, which was judged and is not executed. `asks`: the policy would
    have asked a person.
    """
    would = "it would wait for the approval of a person" if asks else "it would be executed"
    detail = f"this is a dry run: the call was not executed and has no effect; otherwise {would}"
    draft.move_action(action, A.VOIDED, cause="dry run", reason=DRY_RUN, detail=detail)


def void_approval(view: View, draft: Draft, action: ActionJournal, *, cause: str) -> None:
    """Withdraw the question about an action, or the answer that was not used."""
    approval = view.approval_of(action)
    if approval is None or approval.state not in (ApprovalState.PENDING, ApprovalState.APPROVED):
        return
    draft.also(partial(records.void, (approval.id,)))
    approval.state = ApprovalState.VOIDED
    draft.log(object="approval", id=str(approval.id), to="VOIDED", cause=cause)
