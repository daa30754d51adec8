"""Who looks at a question, and passing it on to a higher group."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from agentcore.canonical import clean_text
from agentcore.ids import new_id
from agentcore.lifecycle import ApprovalState
from agentcore.policy import LADDER
from approvals import records, selectors
from approvals.errors import (
    AlreadyClaimed,
    ApprovalNotFound,
    DecisionError,
    InvalidRule,
    NothingHigher,
    ReasonRequired,
    StaleApproval,
)
from approvals.models import Approval
from runs.approving import MAX_REASON, content_refusal, question_refusal, run_refusal
from runs.deciding import PERMISSION, Decider, need, not_own, roles_of
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal
from runs.once import Within
from runs.selectors import database_clock
from runs.transitions import Draft, locked_run

CLAIM = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Claim:
    """A soft reservation: others see it, and may decide all the same."""

    approval_id: UUID
    by: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Escalated:
    """The old question is VOIDED, the new one asks a higher group."""

    old_approval_id: UUID
    approval_id: UUID
    action_id: UUID
    run_id: UUID
    role: str


def claim_approval(*, approval_id: UUID, by: Decider) -> Claim:
    """Reserve a question for `CLAIM`; the own claim is renewed. Raises `DecisionError`."""
    need(by, PERMISSION, "claim a question")
    until = records.claim(approval_id=approval_id, by=by.name, span=CLAIM)
    if until is not None:
        return Claim(approval_id, by.name, until)
    row = selectors.find(approval_id=approval_id)
    if row is None:
        raise ApprovalNotFound("There is no approval with this id.")
    if row.state != ApprovalState.PENDING:
        raise StaleApproval("This question is no longer open.")
    raise AlreadyClaimed(f"{row.claimed_by} is looking at this.")


def release_approval(*, approval_id: UUID, by: Decider) -> None:
    """Give the own claim back; without one nothing happens. Raises `NotPermitted`."""
    need(by, PERMISSION, "claim a question")
    records.release(approval_id=approval_id, by=by.name)


def next_role(role: str) -> str:
    """The step of the ladder above all that are asked already; "" when there is none."""
    steps = [LADDER.index(name) for name in roles_of(role) if name in LADDER]
    above = max(steps, default=0) + 1
    return LADDER[above] if above < len(LADDER) else ""


def escalate_approval(
    *,
    approval_id: UUID,
    params_hash: str,
    by: Decider,
    reason: str,
    role: str = "",
    within: Within | None = None,
) -> Escalated:
    """Ask a higher group instead: the same question with its impact and a new time.

    `role` "" is the next step of the ladder; only a step above those asked is taken. Opens its own
    transaction. Raises a `DecisionError`, and then nothing was written.
    """
    need(by, PERMISSION, "escalate a question")
    said = clean_text(reason.strip(), MAX_REASON)
    if not said:
        raise ReasonRequired("Say why you pass it on: the next reviewer is shown your reason.")
    known = selectors.find(approval_id=approval_id)
    if known is None:
        raise ApprovalNotFound("There is no approval with this id.")
    with locked_run(known.run_id, actor=by.name, event="approval.escalated") as draft:
        if within:
            within.begin()
        outcome = _escalate(draft, known, by=by, params_hash=params_hash, reason=said, role=role)
        if within:
            draft.finally_(lambda: within.end(outcome, run_id=known.run_id))
    hint_on_commit(draft.run)  # here, with the revision that was committed
    return outcome


def _escalate(
    draft: Draft, known: Approval, *, by: Decider, params_hash: str, reason: str, role: str
) -> Escalated:
    rows = ActionJournal.objects.select_for_update(no_key=True)
    action = rows.get(pk=known.action_id, run_id=draft.run.pk)
    before = selectors.locked(approval_id=known.pk)
    refused: DecisionError | None = (
        not_own(approval=before, run=draft.run, decider=by)
        or question_refusal(approval=before, now=database_clock())
        or content_refusal(approval=before, action=action, params_hash=params_hash)
        or run_refusal(run=draft.run)
    )
    if refused is not None:
        raise refused
    after = _raised(before, draft, to=_higher(before.role, role), why=f"{by.name}: {reason}")
    draft.also(partial(records.void, (before.pk,)))
    draft.also(partial(records.insert_pending, [after]))
    draft.log(object="approval", id=str(before.pk), to="VOIDED", cause="escalated")
    draft.log(object="approval", id=str(after.pk), to="PENDING", cause=f"escalated: {after.role}")
    draft.set_action(action, approval_id=after.pk)
    draft.note(approval=str(before.pk), next=str(after.pk), role=after.role, reason=reason)
    draft.set_run(wake_at=draft.now)  # its holder finds the next end among all its questions
    return Escalated(before.pk, after.pk, action.pk, draft.run.pk, after.role)


def _higher(asked: str, wanted: str) -> str:
    above = next_role(asked)
    if not above:
        raise NothingHigher(f"{asked} is the highest group there is.")
    if wanted and wanted not in LADDER[LADDER.index(above) :]:
        raise InvalidRule(f"Pass it on to: {', '.join(LADDER[LADDER.index(above) :])}.")
    return wanted or above


def _raised(before: Approval, draft: Draft, *, to: str, why: str) -> Approval:
    """The same question for a higher group; other groups that the policy names stay."""
    others = [name for name in roles_of(before.role) if name not in LADDER]
    kept = (
        "tenant run_id action_id tool tool_version tool_digest policy_version rule arguments "
        "params_hash resource_key resource_version impact requester editor renewal required_count"
    )
    return Approval(
        id=new_id(),
        state=ApprovalState.PENDING,
        **{name: getattr(before, name) for name in kept.split()},
        role=",".join([*others, to])[:200],
        high_risk=True,
        policy_reason=f"{before.policy_reason}; escalated by {why}"[:2000].removeprefix("; "),
        supersedes=before.pk,
        expires_at=draft.now + (before.expires_at - before.created_at),
        created_at=draft.now,
    )
