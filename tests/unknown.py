"""Writes whose fate is not known, made by the product's own doors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import transaction

from agentcore import canonical
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, RunState
from agentcore.values import AttemptKind, AttemptOutcome
from runs import commits
from runs.approving import Decider
from runs.journal import Result
from runs.leases import Lease
from runs.models import ActionJournal, Attempt, KeyOwner, Run, Turn
from runs.reconciliations import PERMISSION
from runs.transitions import Draft, lock_run, locked_run
from tests.factories import _turn, make_run, new_action

A = ActionState
GRACE = Decider(name="user:grace", permissions=frozenset({PERMISSION}))
HEIDI = Decider(name="user:heidi", permissions=frozenset({PERMISSION}))


@dataclass(frozen=True)
class Unknown:
    """One write that was sent once, and its run."""

    run: Run
    action: ActionJournal
    attempt: Attempt

    def reload(self) -> Unknown:
        """The rows as they are now."""
        for row in (self.run, self.action, self.attempt):
            row.refresh_from_db()
        return self


def make_sent(
    state: ActionState = A.UNKNOWN,
    *,
    run: Run | None = None,
    outcome: str | None = "AMBIGUOUS",
    lost: bool = False,
    sent_ago: timedelta = timedelta(minutes=10),
    **fields: Any,
) -> Unknown:
    """A write in `state` (RUNNING, UNKNOWN, PENDING or NEEDS_HUMAN) with one attempt.

    `outcome` None: the attempt has none yet, `lost` tells whether its process is gone.
    """
    run = run or make_run()
    with locked_run(run.pk, actor="worker:test", event="run.advanced") as draft:
        draft.move_run(RunState.COMPILING_CONTEXT)
        draft.move_run(RunState.CALLING_MODEL, turn=1)
        turn: Turn = _turn(run, draft.now)
        draft.add(turn)
    with locked_run(run.pk, actor="worker:test", event="run.advanced") as draft:
        draft.move_run(RunState.DISPATCHING_TOOLS)
        action, attempt = _start(draft, sent_ago, fields)
    KeyOwner.objects.create(
        tenant=action.tenant,
        tool=action.tool,
        intent_key=action.intent_key,
        generation=0,
        action=action,
        fingerprint=action.fingerprint,
        created_at=action.created_at,
    )
    made = Unknown(Run.objects.get(pk=run.pk), action, attempt)
    if outcome is not None or lost or state is not A.RUNNING:
        _settle(made, state, outcome, lost=lost)
    return made.reload()


def _start(
    draft: Draft, sent_ago: timedelta, fields: dict[str, Any]
) -> tuple[ActionJournal, Attempt]:
    intent = canonical.sha256_hex(str(uuid4()))
    sent_at = draft.now - sent_ago
    values = {
        "effect": "WRITE",
        "state": A.READY,
        "intent_key": intent,
        "fingerprint": canonical.sha256_hex(intent),
        "generation": 0,
        "idempotency_key": canonical.idempotency_key(intent_key=intent, generation=0),
        "first_sent_at": sent_at,
    }
    action = new_action(draft.run, **{**values, **fields})
    draft.add_action(action)
    draft.move_action(action, A.RUNNING)
    attempt = Attempt(
        id=new_id(),
        run_id=draft.run.pk,
        turn=1,
        action=action,
        kind=AttemptKind.TOOL,
        n=1,
        fence=draft.run.fence,
        worker=uuid4(),
        idempotency_key=action.idempotency_key,
        fingerprint=action.fingerprint,
        input_revision=draft.run.revision,
        send_by=sent_at + timedelta(seconds=5),
        started_at=sent_at,
    )
    draft.add(attempt)
    return action, attempt


def _settle(made: Unknown, state: ActionState, outcome: str | None, *, lost: bool) -> None:
    """What the attempt came to, and where that left the action and its run."""
    with locked_run(made.run.pk, actor="worker:test", event="run.advanced") as draft:
        action, attempt = made.action, made.attempt
        action.refresh_from_db()
        if outcome is not None:
            word = "read_timeout" if outcome == "AMBIGUOUS" else ""
            draft.set_row(attempt, outcome=outcome, ended_at=draft.now, error_class=word)
        elif lost:
            draft.set_row(attempt, lost_at=draft.now)
        later = draft.now + timedelta(hours=1)
        if state is A.PENDING:
            draft.move_action(action, A.PENDING, next_probe_at=later)
        elif state is not A.RUNNING:
            draft.move_action(action, A.UNKNOWN, error_class="read_timeout", next_probe_at=later)
        if state is A.NEEDS_HUMAN:
            draft.move_action(action, state, reason="ATTEMPTS_USED", next_probe_at=None)
        if state is not A.RUNNING:
            draft.move_run(RunState.RECONCILING, wake_at=later)


def late_result(attempt: Attempt, outcome: AttemptOutcome) -> None:
    """What a worker that lost its lease records after all."""
    lost = Lease(run_id=attempt.run_id, worker=attempt.worker, token=uuid4(), fence=0)
    with transaction.atomic():
        run, now = lock_run(attempt.run_id)
        result = Result(attempt_id=attempt.pk, outcome=outcome)
        commits._truth_alone(run, now, lost, [result], late=True)
