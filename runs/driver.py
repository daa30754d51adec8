"""Driving a run: claim it, take steps until an outside call, make the call, record it, go on.

Before every outside call one transaction holds its intent, after it one records its outcome, and
the transaction between two calls is the same one. What is written is decided first, as drafts,
from a view that carries its revision; under the lock another revision throws the steps away and
keeps the truth.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection

from agentcore import canonical
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_UNDECIDED, RUN_TERMINAL, ActionState, RunState, StopReason
from agentcore.llm.base import ModelFailure
from agentcore.values import AttemptKind
from runs import (
    controls,
    history,
    inflight,
    isolation,
    leases,
    pausing,
    switches,
    throttling,
    worker,
)
from runs.calls import perform
from runs.cancelling import stop_children
from runs.commits import Kept, commit
from runs.dispatch import step_of_run
from runs.journal import Result, apply_result
from runs.leases import Lease
from runs.models import Run
from runs.steps import call_model, compile_context, dispatch_tools, observe, stopping
from runs.steps.base import Again, Answer, Call, End, Next, Wait
from runs.transitions import Draft, claim_margin
from runs.view import View, is_write, load_view

log = logging.getLogger(__name__)

STEPS = {
    "compile": compile_context.plan,
    "model": call_model.plan,
    "tools": dispatch_tools.plan,
    "observe": observe.plan,
}


@dataclass(frozen=True, slots=True)
class Driven:
    """Where a drive left the run. `due` is the step to hint now, None when it waits or ended."""

    revision: int
    due: str | None
    state: RunState


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next transaction will write, and what follows it."""

    truth: Draft | None
    steps: Draft | None
    answer: Answer


def drive(
    *, run_id: UUID, revision: int | None, inline: frozenset[str] | None = None
) -> Driven | None:
    """Advance a run as far as this process may; None when there was nothing to claim.

    `inline`: the steps to take here, by default those whose queue this process consumes. Leaves
    the run waiting, ended, or released with its next step due.
    """
    identity = worker.current()
    if worker.is_draining():
        return None
    with inflight.driving():
        lease = leases.claim(run_id=run_id, revision=revision, worker=identity)
        if lease is None:
            return None
        mine = identity.inline if inline is None else inline
        try:
            return _Drive(lease, mine, alone=identity.isolating).run()
        except leases.UNREACHABLE as error:
            # No result is in hand here. The row says what is due; the sweep brings it back.
            log.warning("run %s: the database broke the drive off: %s", run_id, error)
            connection.close()
            leases.give_back(lease)
            return None


class _Drive:
    """One claim's work on one run."""

    def __init__(self, lease: Lease, inline: frozenset[str], *, alone: bool = False) -> None:
        self.lease = lease
        self.inline = inline
        self.alone = alone
        self.calls = 0
        self.clean = True  # the view in memory is what was written
        self.reply: ParsedReply | ReplyFailure | ModelFailure | None = None
        self.until = time.monotonic() + settings.AGENTCORE_OPTIONS.slice_seconds

    def run(self) -> Driven | None:
        known = history.take(self.lease.run_id)
        view = load_view(self.lease.run_id, seen=self.lease.seen, history=known)
        results: tuple[Result, ...] = ()
        while True:
            view.reply = self.reply
            plan, kept = self._advance(view, results)
            results = ()
            if kept is Kept.NOTHING:
                return None  # the lease is gone; what was found out is recorded
            if kept is Kept.TRUTH:
                view = self._again(view, plan)
                continue
            if self.clean:
                view.settle()
            self.reply = None
            if isinstance(plan.answer, Call):
                self.calls += 1
                results = perform(plan.answer)
                self.reply = next((r.reply for r in results if r.reply is not None), None)
            elif not isinstance(plan.answer, Again):
                return self._left(view, plan.answer)

    def _again(self, view: View, plan: Plan) -> View:
        """The view as it is now, the steps of `plan` not being written."""
        if plan.steps is not None or plan.truth is None:
            view.history.forget_later()
        fresh = load_view(self.lease.run_id, history=view.history)
        fresh.trusting = False
        return fresh

    def _advance(self, view: View, results: tuple[Result, ...]) -> tuple[Plan, Kept]:
        """Plan and commit; a step that cannot be computed or written is noted and put off."""
        try:
            plan = self._plan(view, results)
            return plan, commit(view=view, lease=self.lease, plan=plan, results=results)
        except leases.UNREACHABLE as error:
            if not results:
                raise
            # The plan reads rows; what was found out must not depend on that.
            log.warning("run %s: truth alone, the plan failed: %s", view.run.id, error)
            connection.close()
            plan = Plan(None, None, Again())
            return plan, commit(view=view, lease=self.lease, plan=plan, results=results)
        except Exception as error:
            log.exception("run %s: step %s failed", view.run.id, step_of_run(view.run))
            plan = self._step_failed(view, error)
            return plan, commit(view=view, lease=self.lease, plan=plan, results=results)

    def _plan(self, view: View, results: tuple[Result, ...]) -> Plan:
        """The truth of `results`, then steps: both computed before the transaction begins."""
        truth = _truth(view, results) if results else None
        if truth is not None and _developer_code_next(view, results):
            # A tool developer's function must not be able to take a known write along.
            return Plan(truth, None, Again())
        steps = Draft(run=view.run, now=view.now)
        return Plan(truth, steps, self._steps(view, steps))

    def _steps(self, view: View, draft: Draft) -> Answer:
        """Take steps until one does not lead to another step of this process."""
        one_step = view.run.claims > 1
        while True:
            answer = self._step(view, draft)
            if not isinstance(answer, Next):
                break
            if one_step:
                answer = Again()
                break
        if isinstance(answer, Call):
            throttling.count(view, draft, answer)
            draft.also(controls.Guard(view.controls.stamp))
        self._settle(draft, answer)
        return answer

    def _step(self, view: View, draft: Draft) -> Answer:
        run = view.run
        if run.state in RUN_TERMINAL:
            return End()
        suspended = run.state == RunState.SUSPENDED  # its clock stands; it is only looked at
        if not suspended and not run.stop_reason and run.deadline_at <= draft.now:
            reason = f"the deadline {run.deadline_at.isoformat()} has passed"
            draft.set_run(stop_reason=StopReason.DEADLINE, reason=reason)
        if run.pause_asked_by and not suspended and not run.stop_reason:
            pausing.suspend(draft)
            return Next()
        if view.reply is None and switches.holds(view, draft):
            return Next()
        step = step_of_run(run)
        elsewhere = step not in self.inline or self._slice_is_over() or self._is_cured(run)
        if elsewhere and view.reply is None:  # a reply in hand was paid for and is nowhere else
            return Wait(draft.now)
        if run.stop_reason and (not suspended or run.stop_reason == StopReason.CANCEL):
            stop_children(view)
            return stopping.plan(view, draft)
        return STEPS[step](view, draft)

    def _slice_is_over(self) -> bool:
        """Between call sets only: the first step after a claim is always taken."""
        over = self.calls >= settings.AGENTCORE_OPTIONS.slice_calls
        return (self.calls > 0 and (over or time.monotonic() > self.until)) or worker.is_draining()

    def _is_cured(self, run: Run) -> bool:
        """Driven alone, it brought an outcome home: the others may have it back."""
        return self.alone and self.calls > 0 and run.claims == 0

    def _settle(self, draft: Draft, answer: Answer) -> None:
        """Lease, deadline and wake-up time that go with the answer."""
        match answer:
            case Wait(wake_at=wake_at):
                draft.release()
                draft.set_run(
                    wake_at=wake_at, hinted_at=draft.now if wake_at <= draft.now else None
                )
            case End():
                draft.release()
            case Call():
                # A holder that dies in this call counts, also when it recorded another before.
                draft.set_run(claims=max(draft.run.claims, 1))
                deadline = draft.now + timedelta(seconds=answer.seconds)
                draft.set_run(call_deadline_at=deadline, **_later(draft))
            case _:
                draft.set_run(call_deadline_at=draft.now + claim_margin(), **_later(draft))

    def _step_failed(self, view: View, error: Exception) -> Plan:
        """The step waits longer each time, and in the end for a person. The truth is kept: the
        commit computes it again from the rows."""
        self.clean = False
        fresh = load_view(self.lease.run_id)
        view.run, view.read_at, view.read_local = fresh.run, fresh.read_at, fresh.read_local
        run, claims = fresh.run, fresh.run.claims
        draft = Draft(run=run, now=fresh.now, event="step.failed")
        where = "" if run.state in RUN_TERMINAL else step_of_run(run)
        reason = canonical.clean_text(f"step {where}: {type(error).__name__}: {error}", 2000)
        draft.note(error=reason[:500], claims=claims)
        backoff = settings.AGENTCORE_OPTIONS.isolate_backoff * 2**claims
        wake_at = draft.now + timedelta(seconds=backoff)
        held = (RunState.SUSPENDED, RunState.CANCELLING)
        if claims >= settings.AGENTCORE_OPTIONS.poison_after and run.state not in held:
            draft.move_run(RunState.SUSPENDED, resume_to=RunState(run.state), reason=reason)
        draft.release()
        draft.set_run(reason=reason, claims=claims, wake_at=wake_at)
        return Plan(None, draft, Wait(wake_at))

    def _left(self, view: View, answer: Answer) -> Driven:
        run = view.run
        connection.close()
        if self.clean and run.state not in RUN_TERMINAL:
            history.keep(run.id, view.history)
        waits = not isinstance(answer, Wait) or answer.wake_at > view.now
        due = None if waits else step_of_run(run)
        return Driven(revision=run.revision, due=due, state=RunState(run.state))


def _truth(view: View, results: tuple[Result, ...]) -> Draft:
    """The truth of the calls just made, on the view: what `journal.draft_truth` does on rows."""
    draft = Draft(run=view.run, now=view.now, event="attempt.recorded")
    attempts = {attempt.id: attempt for attempt in view.attempts}
    for result in results:
        attempt = attempts[result.attempt_id]
        action = view.action(attempt.action_id) if attempt.action_id else None
        siblings = view.attempts_of(action, AttemptKind(attempt.kind))
        apply_result(
            draft,
            attempt=attempt,
            action=action,
            siblings=siblings,
            result=result,
            reserved=view.reserved.pop(attempt.id, None),
        )
    return draft


def _developer_code_next(view: View, results: tuple[Result, ...]) -> bool:
    """A write's result is in hand and the next step needs a function of a tool developer."""
    ids = {result.attempt_id for result in results}
    wrote = any(
        attempt.kind == AttemptKind.TOOL
        for attempt in view.attempts
        if attempt.id in ids and attempt.action_id and is_write(view.action(attempt.action_id))
    )
    waiting = ACTION_UNDECIDED - {ActionState.AWAITING_APPROVAL}
    return wrote and bool(view.in_state(*waiting))


def _later(draft: Draft) -> dict[str, datetime]:
    """When the run is due again should this process die: at once, unless it has died before.

    Nothing where it is due by what stands there: the column is indexed, and a row whose indexed
    columns stay costs half the WAL.
    """
    wake_at = isolation.wake_if_lost(claims=draft.run.claims, now=draft.now)
    return {} if max(wake_at, draft.run.wake_at) <= draft.now else {"wake_at": wake_at}
