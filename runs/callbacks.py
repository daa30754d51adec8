"""A downstream's own word on an effect: stored once, then matched to the action it speaks of.

Reached as `runs.services.receive_callback`. The word is stored in a transaction of its own, so that
it is never lost; what follows from it is decided under the run's lock. What cannot be matched yet,
or speaks while a request is still on its way, stays parked: `settle_parked` tries again in each
sweep.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from agentcore import failpoints
from agentcore.callbacks import CallbackBody
from agentcore.canonical import clean_text
from agentcore.ids import new_id
from agentcore.lifecycle import RUN_TERMINAL, ActionState
from agentcore.reconciling import Heard, Word, hear
from agentcore.values import AttemptOutcome, Json, OutcomeKind
from runs import journal, outcomes
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal, Incident
from runs.reconcile_models import Callback
from runs.refusals import Refused
from runs.selectors import database_clock
from runs.sends import stored_sends
from runs.transitions import Draft, StaleDraft, locked_run
from tools import registry

log = logging.getLogger(__name__)

A = ActionState
PARKED_FOR = timedelta(days=7)
"""How long a callback waits for an action with its key or reference."""
PARKED = "PARKED"
UNMATCHED = "UNMATCHED"
A_PASS = 100
"""Parked callbacks that one sweep looks at."""


@dataclass(frozen=True, slots=True)
class Received:
    """What a callback came to: a word of `Heard`, UNMATCHED, or PARKED while it waits."""

    callback_id: UUID
    did: str
    repeated: bool


def receive_callback(
    *, source: str, event_id: str, body: CallbackBody, body_sha256: str, sent_at: datetime
) -> Received:
    """Store the word of an authenticated source once, and act on it.

    The same event again changes nothing and gets the same answer. Raises `Refused`
    (callback_id_reused) when the source used the id for another body.
    """
    stored, repeated = _store(source, event_id, body, body_sha256, sent_at)
    if repeated and stored.body_sha256 != body_sha256:
        raise Refused(
            code="callback_id_reused",
            detail="This webhook-id was used for another body. Send each event with its own id.",
        )
    did = stored.did or settle(callback_id=stored.pk)
    return Received(callback_id=stored.pk, did=did, repeated=repeated)


def settle(*, callback_id: UUID) -> str:
    """Act on a stored callback if it can be matched now; what it came to, or PARKED."""
    callback = Callback.objects.get(pk=callback_id)
    action = None if callback.did else _action_of(callback)
    if action is None:
        return callback.did or PARKED
    actor = f"callback:{callback.source}"
    with locked_run(action.run_id, actor=actor, event="", point="callback.settle") as draft:
        callback = Callback.objects.select_for_update().get(pk=callback_id)
        did = callback.did or _hear(draft, callback, action.pk)
    if not draft.is_empty and draft.run.state not in RUN_TERMINAL:
        hint_on_commit(draft.run)
    return did


def settle_parked() -> int:
    """Try the parked callbacks that have an action now, and give up the oldest; how many ended.

    Called by every sweep; two at a time do no harm.
    """
    _give_up()
    ended = 0
    for callback_id in _matched_now():
        try:
            ended += settle(callback_id=callback_id) != PARKED
        except Exception:
            log.exception("callback %s could not be settled; a later pass tries again", callback_id)
    return ended


# --- storing and matching -------------------------------------------------------------------------


def _store(
    source: str, event_id: str, body: CallbackBody, body_sha256: str, sent_at: datetime
) -> tuple[Callback, bool]:
    """The stored row, and whether it was there before. One row a source and event, ever."""
    row = Callback(
        id=new_id(),
        source=source,
        event_id=event_id,
        body_sha256=body_sha256,
        word=body.word,
        idempotency_key=body.data.idempotency_key,
        reference=body.data.reference,
        result=body.data.result,
        detail=clean_text(body.data.detail),
        sent_at=sent_at,
        created_at=database_clock(),
    )
    with transaction.atomic(durable=True):
        Callback.objects.bulk_create([row], ignore_conflicts=True)
        stored = Callback.objects.get(source=source, event_id=event_id)
        failpoints.hit("callback.store.before_commit")
    failpoints.hit("callback.store.after_commit")
    return stored, stored.pk != row.pk


def _action_of(callback: Callback) -> ActionJournal | None:
    """The one write the callback speaks of; a reference that fits several fits none."""
    rows = ActionJournal.objects.filter(idempotency_key=callback.idempotency_key)
    if not callback.idempotency_key:
        rows = ActionJournal.objects.filter(downstream_ref=callback.reference)
    source = settings.AGENTCORE_OPTIONS.callbacks.get(callback.source)
    found = [row for row in rows[:50] if source is not None and source.speaks_of(row.tool)]
    return found[0] if len(found) == 1 else None


def _matched_now() -> list[UUID]:
    same_key = Q(idempotency_key=OuterRef("idempotency_key"))
    same_reference = Q(downstream_ref=OuterRef("reference"))
    # In any order, so that those that cannot be settled yet do not keep back the others.
    parked = Callback.objects.filter(settled_at=None).order_by("?")
    by_key = parked.exclude(idempotency_key="").filter(
        Exists(ActionJournal.objects.filter(same_key))
    )
    by_reference = parked.filter(idempotency_key="").filter(
        Exists(ActionJournal.objects.filter(same_reference))
    )
    ids = [*by_key.values_list("id", flat=True)[:A_PASS]]
    return [*ids, *by_reference.values_list("id", flat=True)[:A_PASS]]


def _give_up() -> None:
    now = database_clock()
    old = Callback.objects.filter(settled_at=None, created_at__lt=now - PARKED_FOR)
    if given_up := old.update(did=UNMATCHED, settled_at=now):
        log.warning("%d callbacks spoke of no action of ours within %s", given_up, PARKED_FOR)


# --- under the run's lock -------------------------------------------------------------------------


def _hear(draft: Draft, callback: Callback, action_id: UUID) -> str:
    """Draft what the callback leads to, and its name; one that must wait leaves the draft empty."""
    action = ActionJournal.objects.select_for_update(no_key=True).get(pk=action_id)
    spec = registry.get(action.tool)
    heard = hear(
        state=ActionState(action.state),
        word=Word(callback.word),
        reference=callback.reference,
        known_reference=action.downstream_ref,
        conflict=action.state == A.NEEDS_HUMAN and action.reason == journal.CONFLICT,
        sends=stored_sends(action),
        fenced=spec is not None and spec.fenced_sends,
        heard_at=callback.created_at,
        now=draft.now,
    )
    if heard is Heard.WAIT:
        return PARKED
    draft.event = "action.reconciled" if heard in _MOVES else "callback.recorded"
    _MOVES.get(heard, _keep)(draft, action, callback)
    if heard is Heard.CONTRADICTION:
        draft.add(_incident(draft, action, callback, kind="CONTRADICTION"))
    outcomes.hear_result(
        draft,
        action=action,
        word=Word(callback.word),
        heard=heard,
        by=outcomes.Said(
            actor=f"callback:{callback.source}",
            source=f"callback:{callback.source}:{callback.event_id}"[:200],
            detail=callback.detail,
        ),
    )
    draft.also(partial(_mark, callback.pk, action.pk, heard, draft.now))
    draft.set_run(wake_at=draft.now)
    draft.note(
        callback=str(callback.pk),
        source=callback.source,
        event_id=callback.event_id,
        action=str(action.pk),
        word=callback.word,
        reference=callback.reference,
        did=heard,
    )
    return heard


def _mark(callback_id: UUID, action_id: UUID, did: str, now: datetime) -> None:
    """Settle the callback's row, once. Raises `StaleDraft` when another one did."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_callback SET did = %s, settled_at = %s, action_id = %s"
            " WHERE id = %s AND settled_at IS NULL",
            [did, now, action_id, callback_id],
        )
        if cursor.rowcount != 1:
            raise StaleDraft(f"callback {callback_id} was settled by another process")


def _succeed(draft: Draft, action: ActionJournal, callback: Callback) -> None:
    outcome = AttemptOutcome(
        OutcomeKind.SUCCESS, _result_of(callback), reference=callback.reference
    )
    journal.succeed_action(draft, action, outcome=outcome)


def _result_of(callback: Callback) -> Json:
    """What the model is shown: the downstream's result, else that it confirmed the effect."""
    if callback.result is not None:
        return callback.result
    return {"confirmed_by": callback.source, "downstream_reference": callback.reference}


def _fail(draft: Draft, action: ActionJournal, callback: Callback) -> None:
    detail = callback.detail or f"the downstream {callback.source} says that it did not happen"
    journal.fail_action(draft, action, error_class="downstream_failed", detail=detail)


def _pend(draft: Draft, action: ActionJournal, callback: Callback) -> None:
    latest = draft.now + settings.AGENTCORE_OPTIONS.reconcile_max_age
    draft.move_action(
        action,
        A.PENDING,
        downstream_ref=callback.reference or action.downstream_ref,
        next_probe_at=action.next_probe_at or latest,
    )


def _conflict(draft: Draft, action: ActionJournal, callback: Callback) -> None:
    if action.state == A.RUNNING:
        draft.move_action(action, A.UNKNOWN)
    detail = (
        f"the downstream {callback.source} reports the effect {callback.reference}, "
        f"we know of {action.downstream_ref}"
    )
    draft.add(_incident(draft, action, callback, kind=journal.CONFLICT))
    journal.needs_human(draft, action, reason=journal.CONFLICT, detail=detail)


def _keep(draft: Draft, action: ActionJournal, callback: Callback) -> None:
    """Evidence: the row and the event are all."""


_MOVES: dict[Heard, Any] = {
    Heard.SUCCEED: _succeed,
    Heard.FAIL: _fail,
    Heard.PEND: _pend,
    Heard.CONFLICT: _conflict,
}


def _incident(draft: Draft, action: ActionJournal, callback: Callback, *, kind: str) -> Incident:
    words = f"the action is {action.state}, {callback.source} says {callback.word}"
    return Incident(
        run_id=action.run_id,
        action=action,
        kind=kind,
        detail=f"{words} with reference {callback.reference or 'none'} ({callback.event_id})",
        created_at=draft.now,
    )
