"""Cancelling a run: a command. `cancelling` is what follows at once, `cancelled` only the truth.

Reached as `runs.services.cancel_run`. It sets the stop reason; nothing new starts from then on.
Where nobody works on the run and nothing is in flight, the run ends in the same transaction; else
whoever holds it, or claims it next, settles what was sent and then ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from agentcore.canonical import clean_text
from agentcore.lifecycle import ACTION_OPEN, ActionState, RunState, StopReason
from runs import lineage
from runs.dispatch import hint_on_commit
from runs.leases import is_live
from runs.models import ActionJournal, Run
from runs.once import Within
from runs.refusals import check_revision
from runs.steps.stopping import note_outcome, void_undecided
from runs.transitions import Draft, locked_run
from runs.view import View, is_child, is_write, load_view

MAX_REASON = 500
"""Characters of a reason; longer ones are cut."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What a cancel came to. `in_flight`: writes that were sent and cannot be stopped.

    `already`: the run had ended or was stopping before, and nothing was written now.
    """

    run: Run
    in_flight: tuple[ActionJournal, ...]
    already: bool


def cancel_run(
    *,
    run_id: UUID,
    actor: str,
    reason: str = "",
    revision: int | None = None,
    within: Within | None = None,
) -> Cancellation:
    """Stop a run. Opens its own transaction; a run that has ended or is stopping stays as it is.

    Raises `Run.DoesNotExist`, and `Refused` (revision_mismatch). `actor` is a principal
    such as `token:shop` or `user:olga`.
    """
    said = clean_text(reason.strip(), MAX_REASON)
    with locked_run(run_id, actor=actor, event="run.cancelling", point="cancel") as draft:
        if within:
            within.begin()
        check_revision(draft.run, revision)
        outcome = _cancel(draft, actor=actor, reason=said)
        if within:
            draft.finally_(lambda: within.end(outcome, run_id=run_id))
    if not outcome.already and not draft.run.is_terminal:
        hint_on_commit(draft.run)  # here, with the revision that was committed
    return outcome


def in_flight(run: Run) -> tuple[ActionJournal, ...]:
    """The writes of a run, and of those that it asked for, that may have an effect which is not
    known to be final yet."""
    runs = [run.id, *lineage.below(run)]
    live = ActionJournal.objects.filter(run_id__in=runs, ended_at__isnull=True)
    found = live.filter(state__in=ACTION_OPEN).order_by("run_id", "turn", "ordinal", "edit")
    return tuple(action for action in found if is_write(action))


def _cancel(draft: Draft, *, actor: str, reason: str) -> Cancellation:
    run = draft.run
    sent = in_flight(run)
    if run.is_terminal or run.stop_reason:
        return Cancellation(run, sent, already=True)
    draft.note(command="cancel", by=actor, reason=reason)
    draft.set_run(
        stop_reason=StopReason.CANCEL,
        reason=reason or "cancelled",
        pause_asked_by="",
        wake_at=draft.now,
    )
    if not is_live(run_id=run.id):
        _leave_what_holds_still(draft)
    return Cancellation(run, sent, already=False)


def stop_children(view: View) -> None:
    """Cancel what a stopping run has asked other agents to do, each run in its own transaction.

    No lock of the parent is held: the end of a child takes it. The parent ends when they have.
    """
    waiting = [action.id for action in view.in_state(ActionState.RUNNING) if is_child(action)]
    if not waiting:
        return
    rows = Run.objects.filter(parent_action__in=waiting, ended_at=None, stop_reason=None)
    for run_id in rows.order_by("id").values_list("id", flat=True):
        reason = f"the run that asked for it stops: {view.run.reason or view.run.stop_reason}"
        cancel_run(run_id=run_id, actor=f"run:{view.run.id.hex}", reason=reason)


def _leave_what_holds_still(draft: Draft) -> None:
    """Nobody works on the run: end it where nothing was sent, wake it where it is suspended."""
    view = load_view(draft.run.id)
    view.run = draft.run
    if not view.open_actions:
        void_undecided(view, draft)
        note_outcome(view, draft)
        draft.move_run(RunState.CANCELLING)
        draft.move_run(RunState.CANCELLED)
        draft.release()
    elif draft.run.state == RunState.SUSPENDED:
        draft.move_run(RunState.CANCELLING)
