"""A person takes a run over: pause it, act by hand, record that, hand it back or end it.

Pausing, resuming and cancelling are use cases of their own. Here: an action that a person did
outside becomes VOIDED(BY_HAND) with reference and evidence. It is never executed, its intent is
owned from then on, and the model is told. Reading what tools keep secret leaves an event, too.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from agentcore.canonical import clean_text, sha256_hex
from agentcore.lifecycle import ACTION_UNDECIDED, ActionState, ApprovalState, RunState
from approvals import records, selectors
from runs import keys
from runs.models import ActionJournal, Evidence
from runs.refusals import Refused
from runs.transitions import Draft, locked_run
from runs.view import is_write, load_view

MAX_EVIDENCE = 4000
BY_HAND = "BY_HAND"


def record_by_hand(
    *, run_id: UUID, actor: str, action_id: UUID, reference: str, evidence: str
) -> ActionJournal:
    """Record that `actor` did what this action was about to do, in the journal of a paused run.

    Opens its own transaction. Raises `Run.DoesNotExist`, and `Refused` (run_not_paused,
    action_not_open) when the run is not paused or the action was sent or decided.
    """
    said, ref = clean_text(evidence.strip(), MAX_EVIDENCE), clean_text(reference.strip(), 200)
    with locked_run(run_id, actor=actor, event="action.done_by_hand") as draft:
        if draft.run.state != RunState.SUSPENDED:
            raise Refused(code="run_not_paused", detail="Pause the run first, then act by hand.")
        action = ActionJournal.objects.filter(pk=action_id, run_id=run_id).first()
        if action is None or action.state not in ACTION_UNDECIDED:
            raise Refused(
                code="action_not_open",
                detail="This action was sent or settled already; give a verdict on it instead.",
            )
        _void_questions(draft, action)
        _own_intent(draft, action)
        detail = f"{actor} did this by hand; reference {ref}. Do not do it again. {said}"
        draft.move_action(
            action,
            ActionState.VOIDED,
            cause="done by hand",
            reason=BY_HAND,
            detail=detail,
            downstream_ref=ref,
        )
        draft.add(_evidence(draft, action, actor=actor, reference=ref, said=said))
        draft.note(command="by_hand", by=actor, action=str(action.pk), reference=ref, evidence=said)
    return action


def record_reveal(*, run_id: UUID, actor: str, what: str) -> None:
    """Write that `actor` is about to be shown what the tools of a run keep secret."""
    with locked_run(run_id, actor=actor, event="run.revealed") as draft:
        draft.note(command="reveal", by=actor, what=what)
        draft.set_run(hints=draft.run.hints)  # a draft with nothing but a note is not written


def _void_questions(draft: Draft, action: ActionJournal) -> None:
    open_ones = (ApprovalState.PENDING, ApprovalState.APPROVED)
    asked = [row for row in selectors.of_actions(action_ids=[action.pk]) if row.state in open_ones]
    if asked:
        ids = tuple(row.pk for row in asked)
        draft.also(partial(records.void, ids))
        for row in asked:
            draft.log(object="approval", id=str(row.pk), to="VOIDED", cause="done by hand")


def _own_intent(draft: Draft, action: ActionJournal) -> None:
    """The intent was carried out: a later action with it is a duplicate, whatever the model says.

    Where another action owns it already, that one stands.
    """
    if not is_write(action) or not action.intent_key:
        return
    view = load_view(draft.run.id)
    view.run = draft.run
    owner, released = keys.owner_of(view, action)
    if owner is None:
        keys.take(view, draft, action=action, free=keys.Free(released))


def _evidence(
    draft: Draft, action: ActionJournal, *, actor: str, reference: str, said: str
) -> Evidence:
    return Evidence(
        run_id=action.run_id,
        turn=action.turn,
        action=action,
        source=f"person:{actor}"[:200],
        about=action.resource_key,
        version=reference,
        sha256=sha256_hex(said),
        verified=False,
        observed_at=draft.now,
        created_at=draft.now,
    )
