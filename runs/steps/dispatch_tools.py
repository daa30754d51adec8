"""Link 3: run what may run. Approvals are asked for first, reads side by side, writes in turn."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from agentcore.lifecycle import ActionState, ApprovalState, RunState
from agentcore.throttle import Held
from agentcore.values import AttemptKind
from approvals import records
from runs import children, journal, throttling
from runs.models import ActionJournal
from runs.steps import asking, order, reconciling, starting
from runs.steps.base import Answer, Call, Next, ToolRequest, Wait
from runs.transitions import Draft
from runs.view import View, is_child, is_write, spec_of

A = ActionState


def plan(view: View, draft: Draft) -> Answer:
    """Draft the next calls of the turn, or where the run has to wait."""
    settle_lost(view, draft)
    children.take(view, draft)
    if view.run.state == RunState.SUSPENDED:
        return reconciling.plan(view, draft)
    _expire(view, draft)
    if view.run.state == RunState.RECONCILING:
        return reconciling.plan(view, draft)
    view.held.clear()
    order.stop_after_failure(view, draft)
    prechecks = asking.prechecks_due(view, draft)
    asking.request_approvals(view, draft)
    reads = _reads_due(view, draft, room=settings.AGENTCORE_OPTIONS.read_cap - len(prechecks))
    if prechecks or reads:
        return Call(tuple(prechecks + reads))
    write = _next_write(view, draft)
    _void_refused(view, draft)
    if write is not None:
        return write
    return _come_to_rest(view, draft)


def settle_lost(view: View, draft: Draft) -> None:
    """Attempts of an earlier holder without an outcome: lost. A write is then UNKNOWN."""
    for action in view.in_state(A.RUNNING):
        attempts = view.attempts_of(action)
        lost = [
            a
            for a in attempts
            if a.outcome is None and a.lost_at is None and a.fence < view.run.fence
        ]
        journal.mark_lost(draft, lost)
        if lost and is_write(action):
            detail = "the process that sent it is gone"
            journal.to_unknown(
                draft, action, error_class="lost", detail=detail, sends=len(attempts)
            )
    for kind in (AttemptKind.PROBE, AttemptKind.PRECHECK):
        stale = [
            a
            for a in view.attempts
            if a.kind == kind and a.outcome is None and not a.lost_at and a.fence < view.run.fence
        ]
        journal.mark_lost(draft, stale)


def _expire(view: View, draft: Draft) -> None:
    """Questions out of time take their action along. An answer out of time is asked anew when the
    action would start, with the preview of that moment.
    """
    for action in view.in_state(A.AWAITING_APPROVAL):
        approval = view.approval_of(action)
        live = approval and approval.state == ApprovalState.PENDING
        if approval is None or not live or approval.expires_at > draft.now:
            continue
        draft.also(partial(records.expire, (approval.id,)))
        approval.state = ApprovalState.EXPIRED
        draft.log(object="approval", id=str(approval.id), to="EXPIRED", cause="out of time")
        draft.move_action(action, A.EXPIRED, reason="APPROVAL_EXPIRED")


def _void_refused(view: View, draft: Draft) -> None:
    """The approval of an action that was refused at its start is of no use any more."""
    for action in view.in_state(A.DENIED, A.VOIDED) if view.approvals else ():
        approval = view.approval_of(action)
        if approval and approval.state in (ApprovalState.PENDING, ApprovalState.APPROVED):
            draft.also(partial(records.void, (approval.id,)))
            approval.state = ApprovalState.VOIDED
            draft.log(object="approval", id=str(approval.id), to="VOIDED", cause="refused")


def _reads_due(view: View, draft: Draft, *, room: int) -> list[ToolRequest]:
    """READY reads, and RUNNING ones whose next try is due, up to the cap."""
    due: list[ToolRequest] = []
    for action in view.live_actions:
        if is_write(action) or len(due) >= room:
            continue
        if action.state == A.READY and order.may_start(view, action):
            if throttling.held_action(view, draft, action):
                continue
            request = starting.start(view, draft, action)
        elif is_child(action):
            continue  # a run of its own: its end comes by itself
        elif action.state == A.RUNNING and order.retry_at(view, action, draft.now) <= draft.now:
            if throttling.held_action(view, draft, action):
                continue
            request = starting.try_again(view, draft, action)
        else:
            continue
        if isinstance(request, ToolRequest):
            due.append(request)
    return due


def _next_write(view: View, draft: Draft) -> Answer | None:
    """The first write that may go: nothing uncertain before it, its resource free."""
    for action in view.in_state(A.RUNNING):
        if is_write(action) and order.retry_at(view, action, draft.now) <= draft.now:
            if throttling.held_action(view, draft, action):
                continue
            request = starting.try_again(view, draft, action)
            if isinstance(request, ToolRequest):
                return Call((request,))
    for action in view.in_state(A.READY):
        order.stop_after_failure(view, draft)  # the one before may just have used up its tries
        if action.state != A.READY or not is_write(action) or not order.may_start(view, action):
            continue
        if throttling.held_action(view, draft, action):
            continue
        answer = _start_write(view, draft, action)
        if answer is not None:
            return answer
    return None


def _start_write(view: View, draft: Draft, action: ActionJournal) -> Answer | None:
    """Start one write: with a preview its precheck must be fresh, so that comes first."""
    spec = spec_of(action)
    if spec is not None and spec.preview_fn is not None and not asking.is_fresh(action, draft.now):
        if asking.unanswered(view, action) >= asking.MAX_PRECHECKS:
            starting.deny(draft, action, "PRECHECK_FAILED", asking.precheck_problem(action))
            order.void_approval(view, draft, action, cause="refused at execution")
            return None
        return Call((asking.precheck_request(view, draft, action, spec),))
    request = starting.start(view, draft, action)
    return Call((request,)) if isinstance(request, ToolRequest) else None


def _come_to_rest(view: View, draft: Draft) -> Answer:
    """Nothing can start now: wait for the truth, a timer or a person, or go on to observe."""
    held = [found for a in view.in_state(A.READY) if (found := view.held.get(a.id))]
    if view.in_state(A.UNKNOWN, A.PENDING, A.NEEDS_HUMAN):
        draft.move_run(RunState.RECONCILING)
        if held:
            throttling.wait(draft, held[0])
        return Next()
    awaiting = view.in_state(A.AWAITING_APPROVAL)
    running = [action for action in view.in_state(A.RUNNING) if not is_child(action)]
    if running or (held and not awaiting):
        return _wait_for_a_try(view, draft, running, held)
    if awaiting:
        expiries = [approval.expires_at for a in awaiting if (approval := view.approval_of(a))]
        draft.move_run(RunState.WAITING_APPROVAL)
        if held:
            throttling.wait(draft, held[0])
        return Wait(min([*expiries, *(found.until for found in held), view.run.deadline_at]))
    if children.open_calls(view):
        draft.move_run(RunState.WAITING_CHILD)
        return Wait(view.run.deadline_at)
    draft.move_run(RunState.OBSERVING)
    return Next()


def _wait_for_a_try(
    view: View, draft: Draft, running: list[ActionJournal], held: list[Held]
) -> Answer:
    """RETRY_WAIT until a call may be made again, or a limit has room for it."""
    times, waits = [found.until for found in held], list(held)
    for action in running:
        at = order.retry_at(view, action, draft.now)
        found = view.held.get(action.id)
        times.append(max(at, found.until) if found else at)
        waits += [found] if found else []
    reason = {"reason": waits[0].reason} if waits else {}
    draft.move_run(RunState.RETRY_WAIT, resume_to=RunState.DISPATCHING_TOOLS, **reason)
    if waits:
        throttling.wait(draft, waits[0])
    return Wait(min([*times, view.run.deadline_at]))
