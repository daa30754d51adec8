"""The journal of intents and outcomes: before every outside call its attempt, after it the result.

A result is truth: written once, guarded by its attempt and nothing else, never dropped. Whoever
made the call records it, also after losing the lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_TERMINAL, ActionState
from agentcore.llm.base import ModelFailure
from agentcore.values import AttemptKind, AttemptOutcome, Effect, NoContract, OutcomeKind
from agentcore.verdicts import PROBE_WAITS, join_attempts
from runs import keys, slots, spending, sql
from runs.account_models import Ledger
from runs.models import ActionJournal, Attempt, Incident, Run
from runs.transitions import Draft
from runs.view import View, is_write
from tools import registry

A = ActionState
SEND_WITHIN = 5.0
"""Seconds after its start transaction in which an attempt may send its first byte."""
CONFLICT = "CONFLICT"
"""Reason and incident: the downstream has our key or reference with other arguments."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one outside call came to. `reply` only for a model call, kept in memory."""

    attempt_id: UUID
    outcome: AttemptOutcome
    usage: dict[str, Any] | None = None
    reply: ParsedReply | ReplyFailure | ModelFailure | None = None


# --- before a call ------------------------------------------------------------


def add_attempt(
    view: View,
    draft: Draft,
    *,
    kind: AttemptKind,
    action: ActionJournal | None,
    timeout: float,
) -> Attempt:
    """Draft the attempt of a call that starts when this transaction has committed."""
    run, now = draft.run, draft.now
    if run.lease_worker is None:
        raise RuntimeError(f"run {run.id}: an attempt without a lease")
    number = 1 + max((a.n for a in view.attempts_of(action, kind)), default=0)
    attempt = sql.new(
        Attempt,
        run_id=run.id,
        turn=run.turn,
        action_id=action.id if action else None,
        kind=kind,
        n=number,
        fence=run.fence,
        worker=run.lease_worker,
        idempotency_key=(action.idempotency_key or "") if action else "",
        fingerprint=action.fingerprint if action else "",
        input_revision=run.revision,
        # Not `now`: planning may have taken a while, and the call's own limit begins here.
        send_by=max(now, view.now) + timedelta(seconds=min(SEND_WITHIN, timeout)),
        started_at=now,
    )
    view.attempts.append(attempt)
    draft.add(attempt)
    draft.log(
        object="attempt", id=str(attempt.id), kind=kind, n=number, turn=run.turn, to="STARTED"
    )
    return attempt


# --- after a call ------------------------------------------------------------


def apply_result(
    draft: Draft,
    *,
    attempt: Attempt,
    action: ActionJournal | None,
    siblings: Sequence[Attempt],
    result: Result,
    late: bool = False,
    reserved: Ledger | None = None,
) -> None:
    """Draft the truth of one attempt and, for a tool call or probe, what follows for its action.

    `siblings` are all attempts of the same kind of the action, this one included. `reserved` is
    what this drive has booked for a model call, with nothing settled since.
    """
    outcome = result.outcome
    draft.set_row(
        attempt,
        guard={"outcome": None},
        outcome=outcome.kind,
        result=outcome.result if _keeps_result(attempt) else None,
        error_class=outcome.error_class,
        detail=outcome.detail[:2000],
        reference=outcome.reference,
        usage=result.usage,
        late=late,
        ended_at=draft.now,
    )
    if attempt.kind not in (AttemptKind.PROBE, AttemptKind.PRECHECK):
        draft.set_run(claims=0)  # a look says nothing about the call that killed its process
    draft.log(
        object="attempt",
        id=str(attempt.id),
        kind=attempt.kind,
        n=attempt.n,
        turn=attempt.turn,
        to=outcome.kind,
        **{"error_class": outcome.error_class} if outcome.error_class else {},
        **{"late": True} if late else {},
    )
    slots.release(draft, attempt)
    if attempt.kind == AttemptKind.MODEL:
        spending.settle(draft, attempt=attempt, reply=result.reply, known=reserved)
    if action is not None:
        _follow(draft, action, attempt, siblings, outcome)


def _follow(
    draft: Draft,
    action: ActionJournal,
    attempt: Attempt,
    siblings: Sequence[Attempt],
    outcome: AttemptOutcome,
) -> None:
    if attempt.kind == AttemptKind.TOOL:
        _join(draft, action, attempt, siblings, outcome)
    elif attempt.kind == AttemptKind.PRECHECK and action.state not in ACTION_TERMINAL:
        draft.set_action(action, precheck=_precheck(outcome, draft.now))
    elif attempt.kind == AttemptKind.PROBE:
        _settle_by_probe(draft, action, attempt)


def _keeps_result(attempt: Attempt) -> bool:
    """A tool's result lives on its action; the answers to our own questions live here."""
    return attempt.kind in (AttemptKind.PROBE, AttemptKind.POSTCONDITION, AttemptKind.MODEL)


def _precheck(outcome: AttemptOutcome, now: datetime) -> dict[str, Any]:
    body: dict[str, Any] = {"at": now.isoformat(), "ok": outcome.kind == OutcomeKind.SUCCESS}
    if outcome.kind == OutcomeKind.SUCCESS:
        return {**body, "preview": outcome.result}
    return {**body, "error": outcome.error_class, "detail": outcome.detail[:500]}


def _join(
    draft: Draft,
    action: ActionJournal,
    attempt: Attempt,
    siblings: Sequence[Attempt],
    outcome: AttemptOutcome,
) -> None:
    """The action is the join of its attempts; a single attempt never overrules an earlier one."""
    joined = joined_state(action, siblings)
    state = ActionState(action.state)
    if state in ACTION_TERMINAL:
        if _contradicts(action, joined, outcome):
            said = f"attempt {attempt.n} says {outcome.kind}"
            _contradiction(draft, action, attempt, said, outcome.reference)
        return
    in_flight = any(a.outcome is None and a.lost_at is None for a in siblings)
    if joined == A.SUCCEEDED:
        succeed_action(draft, action, outcome=outcome)
    elif in_flight or joined == state:
        return
    elif joined == A.PENDING:
        _accepted(draft, action, reference=outcome.reference)
    elif joined == A.FAILED and state != A.PENDING:
        _fail(draft, action, siblings, outcome)
    elif joined == A.UNKNOWN and state == A.RUNNING:
        sends = len(siblings)
        to_unknown(
            draft, action, error_class=outcome.error_class, detail=outcome.detail, sends=sends
        )


def joined_state(action: ActionJournal, attempts: Sequence[Attempt]) -> ActionState:
    """What the attempts of an action say together."""
    known = [OutcomeKind(a.outcome) if a.outcome else None for a in attempts]
    return join_attempts(effect=Effect(action.effect), outcomes=known)


def succeed_action(draft: Draft, action: ActionJournal, *, outcome: AttemptOutcome) -> None:
    """SUCCEEDED, from whatever open state; `outcome` has the result and the reference."""
    draft.move_action(
        action,
        A.SUCCEEDED,
        result=outcome.result,
        error_class=outcome.error_class,
        downstream_ref=outcome.reference or action.downstream_ref,
        next_probe_at=None,
    )
    if is_write(action):
        keys.after_success(draft, action)


def _accepted(draft: Draft, action: ActionJournal, *, reference: str = "") -> None:
    """PENDING: the downstream has it and is still at it. A conflict stays with the person."""
    if action.state == A.NEEDS_HUMAN and action.reason == CONFLICT:
        return
    spec = registry.get(action.tool)
    if spec and spec.probe_fn:
        probe_at = _probe_at(draft, action, 1)
    else:  # only the downstream's own word can settle it; a person is asked when it does not come
        probe_at = draft.now + settings.AGENTCORE_OPTIONS.reconcile_max_age
    known = reference or action.downstream_ref
    draft.move_action(action, A.PENDING, downstream_ref=known, next_probe_at=probe_at)


def _fail(
    draft: Draft, action: ActionJournal, siblings: Sequence[Attempt], outcome: AttemptOutcome
) -> None:
    """No attempt had an effect: try again while tries are left, else FAILED and the key is free."""
    retryable = outcome.kind == OutcomeKind.NO_EFFECT and not draft.run.stop_reason
    if action.state == A.RUNNING and retryable and len(siblings) < max_attempts(action):
        return
    fail_action(draft, action, error_class=outcome.error_class, detail=outcome.detail)


def fail_action(draft: Draft, action: ActionJournal, *, error_class: str, detail: str) -> None:
    """FAILED, proven without effect; its intent may be tried anew under the next generation."""
    draft.move_action(
        action, A.FAILED, error_class=error_class, detail=detail[:2000], next_probe_at=None
    )
    if is_write(action):
        keys.release(draft, action)


def to_unknown(
    draft: Draft, action: ActionJournal, *, error_class: str, detail: str, sends: int
) -> None:
    """The write may have happened: it is UNKNOWN until somebody who knows is asked.

    Without any contract that is a person, at once. `sends` is the number of attempts made: the
    more there were, the longer the wait for the next look.
    """
    draft.move_action(
        action,
        A.UNKNOWN,
        error_class=error_class,
        detail=detail[:2000],
        next_probe_at=_probe_at(draft, action, sends),
    )
    if action.contract == NoContract.name:
        needs_human(draft, action, reason="NO_CONTRACT", detail=f"{error_class}: {detail}")


def _probe_at(draft: Draft, action: ActionJournal, sends: int) -> datetime:
    spec = registry.get(action.tool)
    waits = spec.probe_after if spec and spec.probe_after else PROBE_WAITS
    return draft.now + timedelta(seconds=waits[min(max(sends, 1), len(waits)) - 1])


def max_attempts(action: ActionJournal) -> int:
    """Attempts that provably had no effect may be followed by others, up to this many in all."""
    spec = registry.get(action.tool)
    if spec is None or action.contract == NoContract.name:
        return 1
    return spec.retry.max_attempts


def _contradicts(action: ActionJournal, joined: ActionState, outcome: AttemptOutcome) -> bool:
    """Whether an outcome that came after the end speaks against that end."""
    if not is_write(action):
        return False
    if action.state == A.SUCCEEDED:
        other = outcome.kind == OutcomeKind.SUCCESS and _is_another(action, outcome.reference)
        return joined == A.FAILED or other
    return outcome.kind in (OutcomeKind.SUCCESS, OutcomeKind.PENDING)


def _is_another(action: ActionJournal, reference: str) -> bool:
    """Whether it names another effect; who settled the action may have named none."""
    known = action.downstream_ref
    return bool(known and reference and reference != known)


def _contradiction(
    draft: Draft, action: ActionJournal, attempt: Attempt, said: str, reference: str
) -> None:
    """Evidence against a terminal action: an incident for a person, never a state change."""
    detail = f"the action is {action.state}, {said} with reference {reference or 'none'}"
    _incident(draft, action, attempt, kind="CONTRADICTION", detail=detail)


def _incident(
    draft: Draft, action: ActionJournal, attempt: Attempt, *, kind: str, detail: str
) -> None:
    draft.add(
        Incident(
            run_id=action.run_id,
            action=action,
            attempt=attempt,
            kind=kind,
            detail=detail,
            created_at=draft.now,
        )
    )


def _settle_by_probe(draft: Draft, action: ActionJournal, attempt: Attempt) -> None:
    """What the downstream knows is truth at once; what absence means is decided under the lease."""
    said = attempt.result or {}
    word = said.get("verdict")
    reference = str(said.get("reference") or "")
    if action.state in ACTION_TERMINAL:
        other = action.state != A.SUCCEEDED or _is_another(action, reference)
        if word == "found" and said.get("fingerprint_matches", True) and other:
            _contradiction(draft, action, attempt, f"probe {attempt.n} found it", reference)
        return
    draft.set_action(action, probes=action.probes + 1)
    if word == "conflict" or (word == "found" and not said.get("fingerprint_matches", True)):
        _conflict(draft, action, attempt, str(said.get("detail") or ""))
    elif word == "found":
        outcome = AttemptOutcome(OutcomeKind.SUCCESS, said.get("result"), reference=reference)
        succeed_action(draft, action, outcome=outcome)
    elif word == "pending" and action.state == A.UNKNOWN:
        _accepted(draft, action)
    elif word == "not_done" and action.state == A.PENDING:
        detail = str(said.get("detail") or "the downstream refused it")
        fail_action(draft, action, error_class="not_done_downstream", detail=detail)


def _conflict(draft: Draft, action: ActionJournal, attempt: Attempt, detail: str) -> None:
    """The downstream has our key with other arguments: a person, and an incident."""
    detail = detail or "the downstream has this key with other arguments"
    _incident(draft, action, attempt, kind=CONFLICT, detail=detail)
    if action.state in (A.UNKNOWN, A.PENDING):
        needs_human(draft, action, reason=CONFLICT, detail=detail)


def needs_human(draft: Draft, action: ActionJournal, *, reason: str, detail: str) -> None:
    """Only a person can tell; `reason` is a machine word."""
    draft.move_action(
        action, A.NEEDS_HUMAN, reason=reason, detail=detail[:2000], next_probe_at=None
    )


def mark_lost(draft: Draft, attempts: Sequence[Attempt]) -> None:
    """The process that made these calls is gone; their outcome may still arrive."""
    for attempt in attempts:
        draft.set_row(attempt, guard={"lost_at": None}, lost_at=draft.now)
        draft.log(
            object="attempt",
            id=str(attempt.id),
            kind=attempt.kind,
            n=attempt.n,
            turn=attempt.turn,
            to="LOST",
        )


# --- the same truth from the locked rows -----------------------------------------------------


def draft_truth(run: Run, now: datetime, results: Sequence[Result], *, late: bool) -> Draft:
    """The truth of `results` computed from rows read under the run's lock."""
    draft = Draft(run=run, now=now, event="attempt.recorded")
    attempts = Attempt.objects.in_bulk([result.attempt_id for result in results])
    for result in results:
        attempt = attempts[result.attempt_id]
        if attempt.outcome is not None:
            continue
        action = (
            ActionJournal.objects.select_for_update(no_key=True).get(pk=attempt.action_id)
            if attempt.action_id
            else None
        )
        siblings = [
            attempt if row.id == attempt.id else row
            for row in Attempt.objects.filter(
                run_id=run.id, action=action, kind=attempt.kind, turn=attempt.turn
            ).order_by("n")
        ]
        apply_result(
            draft, attempt=attempt, action=action, siblings=siblings, result=result, late=late
        )
    if late and not draft.is_empty:
        draft.set_run(wake_at=now)
    return draft
