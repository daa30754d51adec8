"""The journal of intents and outcomes: before every outside call its attempt, after it the result.

A result is truth: written once, guarded by its attempt and nothing else, never dropped. Whoever
made the call records it, also after losing the lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection

from agentcore import canonical
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.lifecycle import ACTION_TERMINAL, ActionState
from agentcore.llm.base import ModelFailure
from agentcore.values import AttemptKind, AttemptOutcome, Effect, OutcomeKind
from agentcore.verdicts import join_attempts
from runs.models import ActionJournal, Attempt, Incident, KeyOwner, Run
from runs.transitions import Draft, StaleDraft
from runs.view import View, is_write
from tools import registry

A = ActionState
SEND_WITHIN = 5.0
"""Seconds after its start transaction in which an attempt may send its first byte."""
CALL_MARGIN = 10.0
"""Seconds a call may overrun its time limit before its lease lapses."""


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
    attempt = Attempt(
        run_id=run.id,
        turn=run.turn,
        action=action,
        kind=kind,
        n=number,
        fence=run.fence,
        worker=run.lease_worker,
        idempotency_key=(action.idempotency_key or "") if action else "",
        fingerprint=action.fingerprint if action else "",
        input_revision=run.revision,
        send_by=now + timedelta(seconds=min(SEND_WITHIN, timeout)),
        started_at=now,
    )
    view.attempts.append(attempt)
    draft.add(attempt)
    draft.log(
        object="attempt", id=str(attempt.id), kind=kind, n=number, turn=run.turn, to="STARTED"
    )
    return attempt


def take_key(view: View, draft: Draft, action: ActionJournal) -> None:
    """Make `action` the owner of its intent, as part of its start. Another owner: `StaleDraft`."""
    _, released = view.owner_of(action)
    key = canonical.idempotency_key(intent_key=action.intent_key, generation=released)
    draft.set_action(action, generation=released, idempotency_key=key)
    draft.also(partial(_insert_owner, action, draft.now))
    view.owners.pop((action.tool, action.intent_key), None)


def _insert_owner(action: ActionJournal, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_keyowner"
            " (tenant, tool, intent_key, generation, action_id, fingerprint, created_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                action.tenant,
                action.tool,
                action.intent_key,
                action.generation,
                action.id,
                action.fingerprint,
                now,
            ],
        )
        if cursor.rowcount != 1:
            raise StaleDraft(f"the intent of action {action.id} has another owner")


def _release_key(action_id: UUID, now: datetime) -> None:
    KeyOwner.objects.filter(action_id=action_id, released_at=None).update(released_at=now)


# --- after a call ------------------------------------------------------------


def apply_result(
    draft: Draft,
    *,
    attempt: Attempt,
    action: ActionJournal | None,
    siblings: Sequence[Attempt],
    result: Result,
    late: bool = False,
) -> None:
    """Draft the truth of one attempt and, for a tool call or probe, what follows for its action.

    `siblings` are all attempts of the same kind of the action, this one included.
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
    draft.set_run(claims=0)
    draft.log(
        object="attempt",
        id=str(attempt.id),
        kind=attempt.kind,
        n=attempt.n,
        turn=attempt.turn,
        to=outcome.kind,
        error_class=outcome.error_class,
        late=late,
    )
    if action is None:
        return
    if attempt.kind == AttemptKind.TOOL:
        _join(draft, action, attempt, siblings, outcome)
    elif attempt.kind == AttemptKind.PRECHECK and action.state not in ACTION_TERMINAL:
        draft.set_action(action, precheck=_precheck(outcome, draft.now))
    elif attempt.kind == AttemptKind.PROBE:
        _settle_by_probe(draft, action, attempt)


def _keeps_result(attempt: Attempt) -> bool:
    """A tool's result lives on its action; the answers to our own questions live here."""
    return attempt.kind in (AttemptKind.PROBE, AttemptKind.POSTCONDITION)


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
    known = [OutcomeKind(a.outcome) if a.outcome else None for a in siblings]
    joined = join_attempts(effect=Effect(action.effect), outcomes=known)
    if action.state in ACTION_TERMINAL:
        _contradiction(draft, action, attempt, outcome)
        return
    in_flight = any(a.outcome is None and a.lost_at is None for a in siblings)
    if joined == A.SUCCEEDED:
        _succeed(draft, action, outcome)
    elif in_flight or joined == action.state:
        return
    elif joined == A.PENDING and action.state != A.NEEDS_HUMAN:
        draft.move_action(
            action,
            A.PENDING,
            downstream_ref=outcome.reference or action.downstream_ref,
            next_probe_at=_first_probe_at(draft, action),
        )
    elif joined == A.FAILED:
        _fail(draft, action, siblings, outcome)
    elif joined == A.UNKNOWN and action.state == A.RUNNING:
        to_unknown(draft, action, error_class=outcome.error_class, detail=outcome.detail)


def _succeed(draft: Draft, action: ActionJournal, outcome: AttemptOutcome) -> None:
    draft.move_action(
        action,
        A.SUCCEEDED,
        result=outcome.result,
        error_class=outcome.error_class,
        downstream_ref=outcome.reference or action.downstream_ref,
        next_probe_at=None,
    )


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
    draft.also(partial(_release_key, action.id, draft.now))


def to_unknown(draft: Draft, action: ActionJournal, *, error_class: str, detail: str) -> None:
    """The write may have happened: it is UNKNOWN until somebody who knows is asked."""
    draft.move_action(
        action,
        A.UNKNOWN,
        error_class=error_class,
        detail=detail[:2000],
        next_probe_at=_first_probe_at(draft, action),
    )


def _first_probe_at(draft: Draft, action: ActionJournal) -> datetime:
    spec = registry.get(action.tool)
    wait = spec.probe_after[0] if spec and spec.probe_fn and spec.probe_after else 0.0
    return draft.now + timedelta(seconds=wait)


def max_attempts(action: ActionJournal) -> int:
    spec = registry.get(action.tool)
    return spec.retry.max_attempts if spec else 1


def _contradiction(
    draft: Draft, action: ActionJournal, attempt: Attempt, outcome: AttemptOutcome
) -> None:
    """Evidence against a terminal action: an incident for a person, never a state change."""
    if outcome.kind not in (OutcomeKind.SUCCESS, OutcomeKind.PENDING) or not is_write(action):
        return
    same = action.state == A.SUCCEEDED and outcome.reference in ("", action.downstream_ref)
    if same:
        return
    draft.add(
        Incident(
            run_id=action.run_id,
            action=action,
            attempt=attempt,
            kind="CONTRADICTION",
            detail=f"the action is {action.state}, attempt {attempt.n} says {outcome.kind}"
            f" with reference {outcome.reference or 'none'}",
            created_at=draft.now,
        )
    )


def _settle_by_probe(draft: Draft, action: ActionJournal, attempt: Attempt) -> None:
    """An effect that was found is truth at once; what absence means is decided under the lease."""
    verdict = attempt.result or {}
    if action.state not in (A.UNKNOWN, A.PENDING, A.NEEDS_HUMAN):
        return
    draft.set_action(action, probes=action.probes + 1)
    if verdict.get("verdict") != "found":
        return
    if verdict.get("fingerprint_matches", True):
        outcome = AttemptOutcome(
            kind=OutcomeKind.SUCCESS,
            result=verdict.get("result"),
            reference=verdict.get("reference", ""),
        )
        _succeed(draft, action, outcome)
    elif action.state != A.NEEDS_HUMAN:
        detail = "the downstream has this key with other arguments"
        needs_human(draft, action, reason="CONFLICT", detail=detail)


def needs_human(draft: Draft, action: ActionJournal, *, reason: str, detail: str) -> None:
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
