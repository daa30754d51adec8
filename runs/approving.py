"""One person decides about one waiting action: the use case behind every entry (console, REST).

Reached as `runs.services.decide_approval`. Locks in the order Run, ActionJournal, Approval, checks
everything again under the locks, and writes the vote, the approval, the action and the event in one
commit. `refusal` holds the rules alone, so that a page can say beforehand what a decision would
be answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from agentcore.canonical import NotCanonical, clean_text
from agentcore.canonical import params_hash as hash_of
from agentcore.lifecycle import ActionState, ApprovalState, RunState
from approvals import records, selectors
from approvals.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    DecisionError,
    ReasonRequired,
    RunNotWaiting,
    StaleApproval,
)
from approvals.models import Approval, ApprovalVote
from runs.deciding import (
    EDIT,
    HIGH_RISK,
    PERMISSION,
    Decider,
    person,
    roles_of,
    same_person,
)
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal, Run
from runs.once import Within
from runs.selectors import database_clock
from runs.transitions import Draft, locked_run

__all__ = [
    "EDIT",
    "HIGH_RISK",
    "PERMISSION",
    "Decider",
    "Decision",
    "computed_hash",
    "content_refusal",
    "decide_approval",
    "person",
    "question_refusal",
    "refusal",
    "roles_of",
    "run_refusal",
    "same_person",
]

MAX_REASON = 2000
"""Characters of a reviewer's reason; longer ones are cut."""

Choice = Literal["APPROVE", "REJECT", "RESPOND"]
RESPONDED = "RESPONDED"
"""Reason of an action that a person answered instead of the tool."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What stands after the decision.

    `already` tells that this person had said the same before and nothing was written now.
    """

    approval_id: UUID
    action_id: UUID
    run_id: UUID
    approval_state: ApprovalState
    action_state: ActionState
    votes: int
    required: int
    already: bool


@dataclass(frozen=True, slots=True)
class _Said:
    """One decision as it was sent."""

    choice: Choice
    params_hash: str
    decider: Decider
    reason: str


def decide_approval(
    *,
    approval_id: UUID,
    params_hash: str,
    decision: Choice,
    decider: Decider,
    reason: str = "",
    within: Within | None = None,
) -> Decision:
    """Record one vote; at the quorum the action becomes READY, by one rejection REJECTED.

    RESPOND rejects it with `reason` as the answer that the model is given in place of the tool's.
    `params_hash` is the hash the person was shown. Opens its own transaction, in which `within`
    may store the answer. The same person saying the same again is answered, not refused. Raises a
    `DecisionError` (see `approvals/errors.py`), and then nothing was written.
    """
    if decision not in ("APPROVE", "REJECT", "RESPOND"):
        raise ValueError(f"decision is APPROVE, REJECT or RESPOND, not {decision!r}")
    said = _Said(decision, params_hash, decider, clean_text(reason.strip(), MAX_REASON))
    if decision == "REJECT" and not said.reason:
        raise ReasonRequired("Say why you reject: the model is shown your reason.")
    if decision == "RESPOND" and not said.reason:
        raise ReasonRequired("Write the answer that the model is to be given.")
    known = selectors.find(approval_id=approval_id)
    if known is None:
        raise ApprovalNotFound("There is no approval with this id.")
    with locked_run(
        known.run_id, actor=decider.name, event="approval.decided", point="decide"
    ) as draft:
        if within:
            within.begin()
        outcome = _decide(draft, known, said)
        if within:
            draft.finally_(lambda: within.end(outcome, run_id=known.run_id))
    if not outcome.already:  # then the draft was empty and wrote nothing
        hint_on_commit(draft.run)  # here, with the revision that was committed
    return outcome


def refusal(
    *,
    approval: Approval,
    action: ActionJournal,
    run: Run,
    decider: Decider,
    params_hash: str,
    now: datetime,
) -> DecisionError | None:
    """Why `decider` may not decide this now, or None. Writes nothing."""
    return (
        person(approval=approval, run=run, decider=decider)
        or question_refusal(approval=approval, now=now)
        or content_refusal(approval=approval, action=action, params_hash=params_hash)
        or run_refusal(run=run)
    )


def computed_hash(*, approval: Approval, action: ActionJournal) -> str:
    """The hash of what would execute now, from the action's own row; "" when it has none."""
    try:
        return hash_of(
            tool=action.tool,
            tool_version=action.tool_version,
            tenant=approval.tenant,
            params=action.arguments,
        )
    except NotCanonical:
        return ""


def _decide(draft: Draft, known: Approval, said: _Said) -> Decision:
    locked = ActionJournal.objects.select_for_update(no_key=True)
    action = locked.get(pk=known.action_id, run_id=draft.run.pk)
    approval = selectors.locked(approval_id=known.pk)
    votes = selectors.votes(approval_id=approval.pk)
    yes = sum(vote.decision == "APPROVE" for vote in votes)
    if _said_before(votes, said):
        return _decision(approval, action, votes=yes, already=True)
    now = database_clock()  # after the locks: waiting for them takes time
    refused = refusal(
        approval=approval,
        action=action,
        run=draft.run,
        decider=said.decider,
        params_hash=said.params_hash,
        now=now,
    )
    if refused is not None:
        raise refused
    records.record_vote(
        approval=approval,
        voter=said.decider.name,
        decision=said.choice,
        reason=said.reason,
        now=now,
    )
    yes += said.choice == "APPROVE"
    _apply(draft, approval, action, said, yes)
    draft.note(
        approval=str(approval.pk),
        action=str(action.pk),
        decision=said.choice,
        reason=said.reason,
        params_hash=approval.params_hash,
        votes=yes,
        required=approval.required_count,
    )
    return _decision(approval, action, votes=yes, already=False)


def _apply(draft: Draft, approval: Approval, action: ActionJournal, said: _Said, yes: int) -> None:
    """Move the approval and its action as far as the votes carry them."""
    cause = "rejected"
    if said.choice != "APPROVE":
        records.reject(approval=approval)
        word = RESPONDED if said.choice == "RESPOND" else "REJECTED"
        draft.move_action(action, ActionState.REJECTED, reason=word, detail=said.reason)
        cause = word.lower()
    elif yes >= approval.required_count:
        records.approve(approval=approval)
        draft.move_action(action, ActionState.READY)
        cause = f"{yes} of {approval.required_count} approvals"
    else:  # the run itself does not change, but the vote is an event of it
        draft.set_run(wake_at=draft.run.wake_at)
        return
    draft.log(
        object="approval",
        id=str(approval.pk),
        to=approval.state,
        cause=cause,
        **{"from": ApprovalState.PENDING},
    )
    draft.set_run(wake_at=draft.now)


def _said_before(votes: list[ApprovalVote], said: _Said) -> bool:
    """Whether this person voted so before. Raises AlreadyDecided for the other way."""
    mine = next((vote for vote in votes if same_person(vote.voter, said.decider.name)), None)
    if mine is None:
        return False
    if mine.decision == said.choice and mine.params_hash == said.params_hash:
        return True
    word = {"APPROVE": "approved", "REJECT": "rejected"}.get(mine.decision, "answered")
    raise AlreadyDecided(
        f"You {word} this at {mine.created_at:%H:%M:%S} UTC; a vote is not changed. "
        "To stop the action, cancel its run."
    )


def _decision(approval: Approval, action: ActionJournal, *, votes: int, already: bool) -> Decision:
    return Decision(
        approval_id=approval.pk,
        action_id=action.pk,
        run_id=approval.run_id,
        approval_state=ApprovalState(approval.state),
        action_state=ActionState(action.state),
        votes=votes,
        required=approval.required_count,
        already=already,
    )


# --- the rules, each an answer or None ------------------------------------------------------


def question_refusal(*, approval: Approval, now: datetime) -> DecisionError | None:
    if approval.state in (ApprovalState.APPROVED, ApprovalState.REJECTED, ApprovalState.CONSUMED):
        word = "rejected" if approval.state == ApprovalState.REJECTED else "approved"
        return AlreadyDecided(f"This was {word} already.")
    if approval.state == ApprovalState.EXPIRED or (
        approval.state == ApprovalState.PENDING and approval.expires_at <= now
    ):
        return ApprovalExpired(
            f"This ran out of time at {approval.expires_at:%H:%M:%S} UTC. Nothing will be sent."
        )
    if approval.state != ApprovalState.PENDING:
        return StaleApproval("This question was withdrawn; nothing is left to decide.")
    return None


def content_refusal(
    *, approval: Approval, action: ActionJournal, params_hash: str
) -> DecisionError | None:
    if action.approval_id != approval.pk or action.state != ActionState.AWAITING_APPROVAL:
        return StaleApproval("The action no longer waits for this approval. Load the page again.")
    stored = {approval.params_hash, action.params_hash}
    if stored != {params_hash} or computed_hash(approval=approval, action=action) != params_hash:
        return StaleApproval(
            "What you were shown is not what would run. Read the current content and decide again."
        )
    return None


def run_refusal(*, run: Run) -> DecisionError | None:
    if run.is_terminal:
        return RunNotWaiting(f"The run has ended ({run.state}). Nothing will be sent.")
    if run.stop_reason or run.state == RunState.CANCELLING:
        return RunNotWaiting(f"The run is stopping ({run.stop_reason}). Nothing will be sent.")
    return None
