"""One person settles a write whose fate is not known: the use case behind every entry.

Reached as `runs.services.record_verdict`. Locks the run, then the action, compares the action's
revision, checks everything under the locks, and writes the verdict, the action and the event in
one commit. A resend is granted by two people and made by the driver, under the run's lease.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from agentcore.canonical import clean_text
from agentcore.lifecycle import ActionState
from agentcore.reconciling import JUDGED, Ground, Send, Verdict, absence_refusal
from agentcore.values import AttemptOutcome, Json, OutcomeKind
from runs import journal, sends
from runs.approving import Decider, same_person
from runs.deciding import requesters_of
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal
from runs.once import Within
from runs.reconcile_models import Reconciliation
from runs.transitions import Draft, locked_run
from runs.verdict_errors import VerdictError
from runs.view import spec_of
from tools.storable import NotStorable, TooLarge, to_json

A = ActionState
PERMISSION = "runs.reconcile_action"
MAX_EVIDENCE = 4000
"""Characters of evidence text; longer text is refused, since it could not be read back whole."""
PROBE_IN = (timedelta(seconds=1), timedelta(days=30))
"""The least and the most that STILL_UNKNOWN may put the next probe off."""
BY_PERSON = "HUMAN_VERDICT"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What stands after the verdict.

    `waits_for_second`: a resend that a second person must ask for, too. `already`: this person had
    said so before, and nothing was written now.
    """

    reconciliation_id: UUID
    action_id: UUID
    run_id: UUID
    verdict: Verdict
    action_state: ActionState
    action_revision: int
    waits_for_second: bool
    already: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    """One verdict as it was sent, checked as far as that goes without the rows."""

    verdict: Verdict
    person: Decider
    revision: int
    evidence: str
    link: str
    reference: str
    result: Json
    ground: Ground | None
    next_probe_in: timedelta | None


def record_verdict(
    *,
    action_id: UUID,
    action_revision: int,
    verdict: Verdict,
    person: Decider,
    evidence_text: str,
    downstream_ref: str = "",
    result: Json = None,
    evidence_link: str = "",
    ground: Ground | None = None,
    next_probe_in: timedelta | None = None,
    within: Within | None = None,
) -> Recorded:
    """Record what a person establishes about an UNKNOWN or NEEDS_HUMAN write, once.

    `action_revision` is the revision of the action that the person was shown. EFFECT_EXISTS needs
    `downstream_ref`, and the run goes on with `result`; EFFECT_DOES_NOT_EXIST needs `ground`;
    STILL_UNKNOWN needs `next_probe_in`; RESEND_SAME_KEY takes two people. Opens its own
    transaction. Raises `VerdictError`, and then nothing was written.
    """
    said = _checked(
        _Said(
            verdict=Verdict(verdict),
            person=person,
            revision=action_revision,
            evidence=clean_text(evidence_text.strip()),
            link=clean_text(evidence_link.strip()),
            reference=clean_text(downstream_ref.strip()),
            result=result,
            ground=Ground(ground) if ground else None,
            next_probe_in=next_probe_in,
        )
    )
    run_id = ActionJournal.objects.filter(pk=action_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise VerdictError("not_found", "There is no action with this id.", status=404)
    with locked_run(run_id, actor=person.name, event="action.reconciled", point="verdict") as draft:
        if within:
            within.begin()
        recorded = _record(draft, action_id, said)
        if within:
            within.end(recorded, run_id=run_id)
    if not recorded.already:  # then the draft was empty and wrote nothing
        hint_on_commit(draft.run)
    return recorded


def may_judge(*, person: Decider, requesters: tuple[str, ...]) -> VerdictError | None:
    """Why `person` may give no verdict on a run of `requesters`, or None."""
    if person.is_agent:
        message = "An agent's own token never decides. A person must."
        return VerdictError("self_reconciliation", message, status=403)
    if any(name and same_person(person.name, name) for name in requesters):
        message = "You asked for this run. Somebody else must decide what became of its write."
        return VerdictError("self_reconciliation", message, status=403)
    if PERMISSION not in person.permissions and not person.is_superuser:
        message = f"You need the permission {PERMISSION} to give a verdict."
        return VerdictError("not_permitted", message, status=403)
    return None


# --- before the locks ---------------------------------------------------------------------------


def _bad(code: str, message: str) -> VerdictError:
    return VerdictError(code, message, status=400)


def _checked(said: _Said) -> _Said:
    """`said` with its result as storable JSON. Raises `VerdictError` for what is missing."""
    if not said.evidence:
        raise _bad("evidence_required", "Say what you know and how: a verdict is evidence.")
    if len(said.evidence) > MAX_EVIDENCE:
        raise _bad("evidence_too_long", f"At most {MAX_EVIDENCE} characters; link to the rest.")
    if said.link and not said.link.startswith(("https://", "http://")):
        raise _bad("evidence_link_invalid", "The link begins with https:// or http://.")
    if len(said.link) > 500 or len(said.reference) > 200:
        raise _bad("too_long", "A link has at most 500 characters, a reference at most 200.")
    match said.verdict:
        case Verdict.EFFECT_EXISTS if not said.reference:
            message = "Give the downstream's own reference of the effect, such as its refund id."
            raise _bad("reference_required", message)
        case Verdict.EFFECT_DOES_NOT_EXIST if said.ground is None:
            message = "Say why it cannot still happen. That time has passed proves nothing."
            raise _bad("ground_required", message)
        case Verdict.STILL_UNKNOWN:
            least, most = PROBE_IN
            if said.next_probe_in is None or not least <= said.next_probe_in <= most:
                raise _bad("next_probe_required", "Say when to ask again: within 30 days.")
    try:
        return replace(said, result=to_json(said.result))
    except (NotStorable, TooLarge) as error:
        raise _bad("result_unusable", f"The result cannot be stored: {error}") from None


# --- under the locks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """The locked rows, what was said, and what had been sent and said before."""

    draft: Draft
    action: ActionJournal
    said: _Said
    sends: list[Send]
    before: Reconciliation | None


def _record(draft: Draft, action_id: UUID, said: _Said) -> Recorded:
    action = ActionJournal.objects.select_for_update(no_key=True).get(pk=action_id)
    refused = may_judge(person=said.person, requesters=requesters_of(draft.run))
    if refused is not None:
        raise refused
    before = Reconciliation.objects.filter(action=action).order_by("-created_at", "-id").first()
    if before is not None and _same_again(before, said):
        return _recorded(before, action, already=True)
    _guard(action, before, said)
    case = _Case(draft, action, said, sends.stored_sends(action), before)
    row = _row(case)
    _apply(case, row)
    row.to_state = action.state
    draft.add(row)
    draft.set_run(wake_at=draft.now)
    draft.note(**_noted(row))
    return _recorded(row, action, revision=action.revision + 1)


def _row(case: _Case) -> Reconciliation:
    said = case.said
    return Reconciliation(
        run_id=case.action.run_id,
        action=case.action,
        verdict=said.verdict,
        person=said.person.name,
        evidence=said.evidence,
        evidence_link=said.link,
        ground=said.ground or "",
        downstream_ref=said.reference,
        result=said.result,
        action_revision=said.revision,
        sends=len(case.sends),
        from_state=case.action.state,
        created_at=case.draft.now,
    )


def _same_again(row: Reconciliation, said: _Said) -> bool:
    """A double click: the same person, verdict and revision as the newest row."""
    mine = same_person(row.person, said.person.name)
    return mine and row.verdict == said.verdict and row.action_revision == said.revision


def _guard(action: ActionJournal, before: Reconciliation | None, said: _Said) -> None:
    """The first verdict wins. Raises `VerdictError` with what changed."""
    changed = ""
    if before is not None and before.action_revision >= said.revision:
        words = before.verdict.replace("_", " ").lower()
        changed = f" {before.person} said: {words}, at {before.created_at:%H:%M:%S} UTC."
    if action.state not in JUDGED:
        words = action.state.replace("_", " ").lower()
        message = f"The action is {words}; there is no verdict to give.{changed}"
        raise VerdictError("action_not_unknown", message)
    if action.revision != said.revision:
        message = (
            f"The action has changed since you read it (revision {said.revision}, now "
            f"{action.revision}).{changed} Read what is known now and decide again."
        )
        raise VerdictError("action_changed", message)


def _apply(case: _Case, row: Reconciliation) -> None:
    """Move the action as far as the verdict carries it; always one revision step."""
    draft, action = case.draft, case.action
    match case.said.verdict:
        case Verdict.EFFECT_EXISTS:
            _exists(case)
        case Verdict.EFFECT_DOES_NOT_EXIST:
            _does_not_exist(case)
        case Verdict.RESEND_SAME_KEY:
            _resend(case, row)
        case Verdict.ABANDON:
            _to_human(case)
            detail = "a person gave up finding out; the fate of this write stays unknown"
            draft.move_action(
                action, A.ABANDONED, reason=BY_PERSON, detail=detail, next_probe_at=None
            )
        case Verdict.STILL_UNKNOWN:
            row.next_probe_at = draft.now + (case.said.next_probe_in or PROBE_IN[1])
            if action.state == A.NEEDS_HUMAN:
                draft.move_action(action, A.UNKNOWN)
            draft.set_action(action, reason="", next_probe_at=row.next_probe_at)


def _to_human(case: _Case) -> None:
    """A verdict on an UNKNOWN action passes through NEEDS_HUMAN, in the same transaction."""
    if case.action.state == A.UNKNOWN:
        cause = "a person takes it"
        case.draft.move_action(case.action, A.NEEDS_HUMAN, cause=cause, next_probe_at=None)


def _exists(case: _Case) -> None:
    said = case.said
    _to_human(case)
    given = said.result if said.result is not None else {"downstream_reference": said.reference}
    outcome = AttemptOutcome(OutcomeKind.SUCCESS, given, reference=said.reference)
    journal.succeed_action(case.draft, case.action, outcome=outcome)
    detail = "a person established that it happened"
    case.draft.set_action(case.action, reason=BY_PERSON, detail=detail)


def _does_not_exist(case: _Case) -> None:
    spec = spec_of(case.action)
    ground = case.said.ground or Ground.ABSENT_AFTER_SETTLING
    refused = absence_refusal(
        ground=ground,
        sends=case.sends,
        contract=spec.contract if spec else None,
        timeout=spec.timeout if spec else 0.0,
        now=case.draft.now,
    )
    if spec is None and ground is Ground.ABSENT_AFTER_SETTLING:
        refused = "The tool is not registered in this version, so its settle window is not known."
    if refused:
        raise VerdictError("too_early", refused)
    _to_human(case)
    detail = "a person established that it did not happen and cannot still happen"
    journal.fail_action(case.draft, case.action, error_class=BY_PERSON, detail=detail)
    case.draft.set_action(case.action, reason=BY_PERSON)


def _resend(case: _Case, row: Reconciliation) -> None:
    """The first person asks, the second one grants exactly one more attempt."""
    action, before = case.action, case.before
    refused = sends.why_not_resend(
        action=action,
        run=case.draft.run,
        sends=case.sends,
        spec=spec_of(action),
        now=case.draft.now,
    )
    if action.reason == journal.CONFLICT:
        refused = refused or "The downstream holds this key with other arguments: it would refuse."
    if refused:
        raise VerdictError("resend_refused", refused)
    asked = before is not None and before.verdict == Verdict.RESEND_SAME_KEY
    if before is not None and asked and before.sends == len(case.sends):
        if before.agrees_with_id is not None:
            message = "Two people have granted this resend already; it is about to be made."
            raise VerdictError("resend_granted", message)
        if same_person(before.person, case.said.person.name):
            message = "You asked for this resend. A second person must agree before it is sent."
            raise VerdictError("second_person_required", message)
        row.agrees_with = before
    _to_human(case)
    reason = "RESEND_GRANTED" if row.agrees_with_id else "RESEND_ASKED"
    case.draft.set_action(action, reason=reason)


def _noted(row: Reconciliation) -> dict[str, Any]:
    """What the event says of the verdict."""
    noted = {
        "reconciliation": str(row.pk),
        "action": str(row.action_id),
        "verdict": row.verdict,
        "person": row.person,
        "evidence": row.evidence,
        "evidence_link": row.evidence_link,
        "ground": row.ground,
        "downstream_ref": row.downstream_ref,
        "agrees_with": str(row.agrees_with_id or ""),
    }
    return {name: value for name, value in noted.items() if value}


def _recorded(
    row: Reconciliation,
    action: ActionJournal,
    *,
    revision: int | None = None,
    already: bool = False,
) -> Recorded:
    alone = row.verdict == Verdict.RESEND_SAME_KEY and row.agrees_with_id is None
    return Recorded(
        reconciliation_id=row.pk,
        action_id=action.pk,
        run_id=action.run_id,
        verdict=Verdict(row.verdict),
        action_state=ActionState(action.state),
        action_revision=action.revision if revision is None else revision,
        waits_for_second=alone,
        already=already,
    )
