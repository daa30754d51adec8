"""The one transaction between two outside calls: truth first, then the steps in a savepoint.

Three guards. *Truth* asks nothing but "no outcome yet" and is never dropped. *Steps* need the
current fence and claim token and the revision they were computed from. A lost COMMIT reply is
answered by looking for this transaction's event under the lock, before anything is sent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from django.db import DatabaseError, InterfaceError, connection, transaction

from agentcore import failpoints
from agentcore.lifecycle import IllegalTransition
from runs import journal, transitions, worker
from runs.journal import Result
from runs.leases import UNREACHABLE, Lease
from runs.models import Event, Run
from runs.steps.base import Answer, Call
from runs.transitions import Draft, StaleDraft
from runs.view import View

log = logging.getLogger(__name__)

TRIES = 8
"""Tries of a transaction without a result in it; one with a result is tried until the drain."""


class Kept(Enum):
    """What the transaction wrote."""

    ALL = "truth and steps"
    TRUTH = "truth alone, look again"
    NOTHING = "the lease is lost; truth alone"


class Planned(Protocol):
    """A driver's plan."""

    @property
    def truth(self) -> Draft | None: ...
    @property
    def steps(self) -> Draft | None: ...
    @property
    def answer(self) -> Answer: ...


def commit(*, view: View, lease: Lease, plan: Planned, results: Sequence[Result]) -> Kept:
    """Write a plan; on a lost connection find out whether it was written, else write it again.

    Raises the database's error when it stays unreachable and there is no result to save.
    """
    points = _points(plan, results)
    tried = 0
    while True:
        try:
            kept = _once(view, lease, plan, results, points, again=tried > 0)
        except UNREACHABLE as error:
            tried += 1
            connection.close()
            if _give_up(tried, results):
                raise
            log.warning("run %s: commit failed, trying again: %s", lease.run_id, error)
            threading.Event().wait(min(0.05 * 2**tried, 2.0))
            continue
        for point in points:
            failpoints.hit(f"{point}.after_commit")
        return kept


def _give_up(tried: int, results: Sequence[Result]) -> bool:
    return not results and (worker.is_draining() or tried >= TRIES)


def _points(plan: Planned, results: Sequence[Result]) -> list[str]:
    """The failpoint families of this transaction."""
    points = []
    if results and plan.truth is not None:
        kinds = {move["kind"].lower() for move in plan.truth.transitions if "kind" in move}
        points += [f"{kind}.result" for kind in sorted(kinds)]
    if isinstance(plan.answer, Call):
        points.append(f"{plan.answer.point}.intent")
    return points or ["step"]


def _once(
    view: View,
    lease: Lease,
    plan: Planned,
    results: Sequence[Result],
    points: Sequence[str],
    *,
    again: bool,
) -> Kept:
    if not again and _at_once(view, lease, plan, results, points):
        return Kept.ALL
    with transaction.atomic(durable=True):
        run, now = transitions.lock_run(lease.run_id)
        held = lease.holds(run)
        if again and (earlier := _written(run, plan)) is not None:
            return _found(view, plan, earlier) if held else Kept.NOTHING
        if held and run.revision == view.run.revision:
            kept = _as_planned(run, now, lease, plan, results)
        else:
            _truth_alone(run, now, lease, results, late=not held)
            kept = Kept.TRUTH if held else Kept.NOTHING
        for point in points:
            failpoints.hit(f"{point}.before_commit")
    if kept is Kept.ALL:
        _carry(view, run, plan)
    return kept


def _at_once(
    view: View,
    lease: Lease,
    plan: Planned,
    results: Sequence[Result],
    points: Sequence[str],
) -> bool:
    """The whole plan as one statement, which asks for the lease and the revision itself.

    False when something did not fit or did not hold: nothing of it is kept, and the plan is written
    under the lock, truth first. The usual case takes this way, for a third of the time.
    """
    if plan.steps is None or (results and plan.truth is None):
        return False
    drafts, held = _drafts(plan), {"fence": lease.fence, "claim_token": lease.token}
    actor = f"worker:{lease.worker}"
    for point in points:  # COMMIT goes along with the statement
        failpoints.hit(f"{point}.before_commit")
    try:
        end = transitions.write_at_once(view.run, *drafts, actor=actor, held=held)
    except IllegalTransition:
        return False
    except UNREACHABLE:
        raise  # COMMIT may have gone through, whatever the server said: its row is asked
    except DatabaseError as error:
        log.info("run %s: not written at once: %s", lease.run_id, error)
        return False
    if end is None:
        return False
    end.carry(view.run)
    transitions.settle_revisions(*drafts)
    return True


def _as_planned(
    run: Run, now: datetime, lease: Lease, plan: Planned, results: Sequence[Result]
) -> Kept:
    """Truth, then the steps in a savepoint: their failure leaves the truth standing."""
    actor = f"worker:{lease.worker}"
    truth = plan.truth
    if truth is None and results:  # the steps were planned on rows that do not have it yet
        truth = journal.draft_truth(run, now, results, late=False)
    if truth is not None:
        transitions.write_rows(truth)
    if plan.steps is None:
        if truth is not None:
            transitions.finish(run, truth, actor=actor)
        return Kept.TRUTH
    drafts = [draft for draft in (truth, plan.steps) if draft is not None]
    try:
        with transaction.atomic():
            transitions.write_rows(plan.steps, after=truth)
            transitions.finish(run, *drafts, actor=actor)
    except (StaleDraft, IllegalTransition, DatabaseError, InterfaceError) as error:
        if _connection_is_lost():
            raise
        log.info("run %s: steps dropped, truth kept: %s", run.id, error)
        if truth is not None:
            truth.note(dropped=str(error)[:500])
            transitions.finish(run, truth, actor=actor)
        elif not isinstance(error, StaleDraft):
            raise
        return Kept.TRUTH
    return Kept.ALL


def _connection_is_lost() -> bool:
    """Whether the error took the connection along; a time-out of the server does not."""
    raw = connection.connection
    return raw is None or raw.closed


def _truth_alone(
    run: Run, now: datetime, lease: Lease, results: Sequence[Result], *, late: bool
) -> None:
    """Record results from the rows as they are now; no step follows from them here."""
    if not results:
        return
    draft = journal.draft_truth(run, now, results, late=late)
    if not draft.is_empty:
        transitions.write_rows(draft)
        transitions.finish(run, draft, actor=f"worker:{lease.worker}")


def _written(run: Run, plan: Planned) -> Event | None:
    """The event of an earlier try of this plan that was committed after all."""
    drafts = _drafts(plan)
    if not drafts:
        return None
    return Event.objects.filter(run_id=run.id, txn=drafts[0].txn).first()


def _found(view: View, plan: Planned, event: Event) -> Kept:
    """The earlier try was committed: go on as if its reply had not been lost."""
    if plan.steps is None or "dropped" in event.data:
        return Kept.TRUTH
    view.run.revision = event.revision_after
    view.run.event_seq, view.run.event_head = event.seq, event.hash
    transitions.settle_revisions(*_drafts(plan))
    return Kept.ALL


def _drafts(plan: Planned) -> list[Draft]:
    return [draft for draft in (plan.truth, plan.steps) if draft is not None]


def _carry(view: View, run: Run, plan: Planned) -> None:
    """The view's run row goes on from what was written under the lock."""
    view.run.revision = run.revision
    view.run.event_seq = run.event_seq
    view.run.event_head = run.event_head
    transitions.settle_revisions(*_drafts(plan))
