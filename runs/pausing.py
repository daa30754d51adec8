"""Pausing and resuming a run: commands of an operator.

Reached as `runs.services.pause_run` and `resume_run`. A run that somebody works on is asked to
pause; its holder suspends it at its next step. What was sent is settled also while it is paused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID

from agentcore.canonical import clean_text
from agentcore.lifecycle import RunState
from runs.dispatch import hint_on_commit
from runs.leases import is_live
from runs.models import Run
from runs.once import Within
from runs.refusals import Refused, check_revision
from runs.transitions import Draft, locked_run

MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class NewLimits:
    """What a resume raises or lowers; None leaves it. `max_cost`: millionths of a US dollar."""

    max_turns: int | None = None
    max_actions: int | None = None
    max_tokens: int | None = None
    max_cost: int | None = None
    max_failures: int | None = None


def pause_run(
    *,
    run_id: UUID,
    actor: str,
    reason: str = "",
    revision: int | None = None,
    within: Within | None = None,
) -> Run:
    """Suspend a run, or ask its holder to. A paused run stays as it is.

    Opens its own transaction. Raises `Run.DoesNotExist`, and `Refused` (run_terminal,
    run_not_waiting for one that is stopping, revision_mismatch).
    """
    said = clean_text(reason.strip(), MAX_REASON)
    with locked_run(run_id, actor=actor, event="run.paused", point="pause") as draft:
        if within:
            within.begin()
        _check(draft.run, revision)
        if draft.run.state != RunState.SUSPENDED and not draft.run.pause_asked_by:
            draft.note(command="pause", by=actor, reason=said)
            draft.set_run(pause_asked_by=actor)
            if not is_live(run_id=run_id):
                suspend(draft, reason=said)
                draft.release()
                draft.set_run(wake_at=draft.now)  # somebody sees to what was sent
        if within:
            draft.finally_(lambda: within.end(draft.run, run_id=run_id))
    return draft.run


def suspend(draft: Draft, *, reason: str = "") -> None:
    """Draft SUSPENDED for a run that was asked to pause; it will go on from where it is."""
    run = draft.run
    resume_to = RunState(run.resume_to or "") if run.state == RunState.RETRY_WAIT else run.state
    draft.move_run(
        RunState.SUSPENDED,
        cause="pause",
        resume_to=resume_to,
        reason=reason or f"paused by {run.pause_asked_by}",
        pause_asked_by="",
    )


def resume_run(
    *,
    run_id: UUID,
    actor: str,
    reason: str = "",
    limits: NewLimits | None = None,
    revision: int | None = None,
    within: Within | None = None,
) -> Run:
    """Let a suspended run go on, whatever suspended it, perhaps with other limits.

    Opens its own transaction. Raises `Run.DoesNotExist`, and `Refused` (run_terminal,
    run_not_waiting, run_not_paused, run_is_child, revision_mismatch).
    """
    said = clean_text(reason.strip(), MAX_REASON)
    with locked_run(run_id, actor=actor, event="run.resumed", point="resume") as draft:
        if within:
            within.begin()
        _check(draft.run, revision, held=True)
        _resume(draft, actor=actor, reason=said, limits=limits or NewLimits())
        if within:
            draft.finally_(lambda: within.end(draft.run, run_id=run_id))
    hint_on_commit(draft.run)  # here, with the revision that was committed
    return draft.run


def _resume(draft: Draft, *, actor: str, reason: str, limits: NewLimits) -> None:
    run = draft.run
    asked = bool(run.pause_asked_by)
    if run.state != RunState.SUSPENDED and not asked:
        raise Refused(code="run_not_paused", detail="The run is not paused: it goes on by itself.")
    changed = {name: value for name, value in asdict(limits).items() if value is not None}
    if changed and run.parent_id is not None:
        raise Refused(
            code="run_is_child",
            detail="A child run keeps the part of the budget that its parent gave it. Raise the "
            f"limits of run_{run.parent_id.hex}, which may ask again.",
        )
    draft.note(command="resume", by=actor, reason=reason, limits=changed)
    # What came before no longer counts as standing still: a person has looked at it.
    draft.set_run(pause_asked_by="", wake_at=draft.now, progress_from=run.turn, **changed)
    if run.state == RunState.SUSPENDED and not is_live(run_id=run.id):
        kept = {} if run.stop_reason else {"reason": ""}
        draft.move_run(RunState(run.resume_to or ""), cause="resume", **kept)
        draft.release()  # also forgets how often its processes died
    elif run.state == RunState.SUSPENDED:
        raise Refused(
            code="run_not_waiting",
            detail="What the run has sent is being looked at this moment. Try again in a second.",
            retry_after=1,
        )


def _check(run: Run, revision: int | None, *, held: bool = False) -> None:
    """`held`: a run that was suspended while it was stopping is let go, to its end."""
    check_revision(run, revision)
    if run.is_terminal:
        raise Refused(code="run_terminal", detail=f"The run has ended ({run.state.lower()}).")
    if run.stop_reason and not (held and run.state == RunState.SUSPENDED):
        raise Refused(code="run_not_waiting", detail=f"The run is stopping ({run.stop_reason}).")
