"""A downstream's own word: what it moves, when it must wait, and that it counts once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentcore.callbacks import CallbackSource
from agentcore.lifecycle import ActionState
from agentcore.values import AttemptOutcome, OutcomeKind
from runs import callbacks
from runs.models import Event, Incident, KeyOwner
from runs.reconcile_models import Callback
from runs.refusals import Refused
from runs.services import receive_callback
from runs.sweeps import sweep_once
from tests.factories import force_state
from tests.runs.callback_support import NEXT_SECRET, body_of, sources
from tests.unknown import Unknown, late_result, make_sent

pytestmark = pytest.mark.django_db

A = ActionState
REFUND = {"refund_id": "rf_1"}


@pytest.fixture(autouse=True)
def _payments() -> Iterator[None]:
    with sources():
        yield


def heard(made: Unknown | None, word: str = "succeeded", **data: Any) -> str:
    return receive_callback(**body_of(made, word, **data)).did


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("state", [A.RUNNING, A.UNKNOWN, A.PENDING, A.NEEDS_HUMAN])
@pytest.mark.parametrize(("word", "after"), [("succeeded", A.SUCCEEDED), ("failed", A.FAILED)])
def test_the_final_word_settles_an_open_write(
    state: ActionState, word: str, after: ActionState
) -> None:
    made = make_sent(state, outcome="PENDING" if state is A.PENDING else "AMBIGUOUS")
    did = heard(made, word, reference="rf_1", result=REFUND)
    made.reload()
    assert (did, made.action.state) == ("SUCCEED" if word == "succeeded" else "FAIL", after)
    if after is A.SUCCEEDED:
        assert (made.action.result, made.action.downstream_ref) == (REFUND, "rf_1")
    released = KeyOwner.objects.get(action=made.action).released_at
    assert (released is not None) is (after is A.FAILED)
    event = Event.objects.latest("id")
    assert (event.type, event.actor) == ("action.reconciled", "callback:payments")
    assert made.run.wake_at == event.created_at, "the run goes on at once"


def test_still_at_it_moves_only_what_is_unknown() -> None:
    unknown, person = make_sent(), make_sent(A.NEEDS_HUMAN)
    assert heard(unknown, "pending", reference="rf_9") == "PEND"
    assert heard(person, "pending") == "EVIDENCE"
    assert unknown.reload().action.state == A.PENDING
    assert unknown.action.downstream_ref == "rf_9"
    assert person.reload().action.state == A.NEEDS_HUMAN


@pytest.mark.requirement("R65")
def test_the_same_event_again_changes_nothing() -> None:
    made = make_sent()
    sent = body_of(made, reference="rf_1")
    first = receive_callback(**sent)
    made.reload()
    revision, events = made.run.revision, Event.objects.count()
    second = receive_callback(**sent)
    assert (first.repeated, second.repeated, second.did) == (False, True, "SUCCEED")
    assert second.callback_id == first.callback_id
    assert (made.reload().run.revision, Event.objects.count()) == (revision, events)
    with pytest.raises(Refused) as caught:
        receive_callback(**{**sent, "body_sha256": "another"})
    assert caught.value.code == "callback_id_reused"


@pytest.mark.requirement("R110")
@pytest.mark.parametrize(
    ("outcome", "incidents"),
    [
        (AttemptOutcome(OutcomeKind.SUCCESS, REFUND, reference="rf_1"), 0),
        (AttemptOutcome(OutcomeKind.AMBIGUOUS, error_class="read_timeout"), 0),
        (AttemptOutcome(OutcomeKind.SUCCESS, REFUND, reference="rf_2"), 1),
    ],
)
def test_done_before_the_reply(outcome: AttemptOutcome, incidents: int) -> None:
    """The request is still running when the downstream says that it is done."""
    made = make_sent(A.RUNNING, outcome=None, sent_ago=timedelta(0))
    assert heard(made, reference="rf_1", result=REFUND) == "SUCCEED"
    late_result(made.attempt, outcome)
    made.reload()
    assert (made.action.state, made.attempt.outcome) == (A.SUCCEEDED, outcome.kind)
    assert Incident.objects.count() == incidents


def test_not_done_waits_for_a_request_on_its_way() -> None:
    """FAILED frees the key: what was sent under it must have been answered, or be lost."""
    made = make_sent(A.RUNNING, outcome=None, sent_ago=timedelta(0))
    assert heard(made, "failed") == "PARKED"
    assert (callbacks.settle_parked(), made.reload().action.state) == (0, A.RUNNING)
    late_result(made.attempt, AttemptOutcome(OutcomeKind.AMBIGUOUS, error_class="read_timeout"))
    assert (callbacks.settle_parked(), made.reload().action.state) == (1, A.FAILED)
    assert Callback.objects.get().did == "FAIL"


def test_not_done_says_nothing_about_a_later_send() -> None:
    made = make_sent(A.RUNNING, outcome=None, sent_ago=timedelta(0))
    assert heard(made, "failed") == "PARKED"
    late_result(made.attempt, AttemptOutcome(OutcomeKind.AMBIGUOUS))
    later = Callback.objects.get().created_at + timedelta(seconds=1)
    force_state(made.attempt, started_at=later)
    assert (callbacks.settle_parked(), made.reload().action.state) == (1, A.UNKNOWN)
    assert Callback.objects.get().did == "EVIDENCE"


@pytest.mark.requirement("R110")
def test_before_anything_of_ours_can_be_seen() -> None:
    """A reference that we learn later, and a key whose start is not committed yet."""
    made = make_sent()
    key = made.action.idempotency_key
    force_state(made.action, idempotency_key=None, state="NEEDS_HUMAN")
    assert heard(None, idempotency_key=key, reference="rf_1") == "PARKED"
    assert heard(None, "pending", reference="rf_1") == "PARKED"
    assert callbacks.settle_parked() == 0
    force_state(made.action, idempotency_key=key, state="UNKNOWN", downstream_ref="rf_1")
    assert callbacks.settle_parked() == 2
    assert made.reload().action.state == A.SUCCEEDED


def test_what_was_stored_is_acted_on_after_a_crash() -> None:
    """The process dies between storing the word and acting on it."""
    made = make_sent()
    sent = body_of(made, reference="rf_1")
    callbacks._store(
        sent["source"], sent["event_id"], sent["body"], sent["body_sha256"], sent["sent_at"]
    )
    assert (callbacks.settle_parked(), made.reload().action.state) == (1, A.SUCCEEDED)


def test_what_fits_nothing_is_given_up_after_a_week() -> None:
    assert heard(None, idempotency_key="ac1_nobody") == "PARKED"
    row = Callback.objects.get()
    force_state(row, created_at=row.created_at - timedelta(days=7, seconds=1))
    callbacks.settle_parked()
    row.refresh_from_db()
    assert (row.did, row.action_id) == ("UNMATCHED", None)


def test_a_reference_that_fits_two_fits_none() -> None:
    for made in (make_sent(), make_sent()):
        force_state(made.action, downstream_ref="rf_1")
    assert heard(None, reference="rf_1") == "PARKED"


def test_a_source_speaks_only_of_its_own_tools() -> None:
    made = make_sent()
    mail = CallbackSource(secrets=(NEXT_SECRET,), tools=("mailer.*",))
    with sources(mail=mail):
        received = receive_callback(**{**body_of(made), "source": "mail"})
    assert (received.did, made.reload().action.state) == ("PARKED", A.UNKNOWN)


@pytest.mark.parametrize(
    ("state", "did", "after"),
    [
        (A.UNKNOWN, "CONFLICT", A.NEEDS_HUMAN),
        (A.RUNNING, "CONFLICT", A.NEEDS_HUMAN),
        (A.NEEDS_HUMAN, "EVIDENCE", A.NEEDS_HUMAN),
    ],
)
def test_another_reference_than_ours_is_for_a_person(
    state: ActionState, did: str, after: ActionState
) -> None:
    made = make_sent(state)
    force_state(made.action, downstream_ref="rf_1")
    assert heard(made, reference="rf_2") == did
    assert made.reload().action.state == after
    assert Incident.objects.filter(kind="CONFLICT").count() == (did == "CONFLICT")
    assert heard(made, "failed", reference="rf_2") == "EVIDENCE"


@pytest.mark.requirement("R51")
def test_a_key_that_holds_other_arguments_stays_with_the_person() -> None:
    made = make_sent(A.NEEDS_HUMAN)
    force_state(made.action, reason="CONFLICT")
    assert heard(made, reference="rf_1") == "EVIDENCE"
    assert made.reload().action.state == A.NEEDS_HUMAN


def test_every_sweep_tries_the_parked_ones() -> None:
    made = make_sent(A.RUNNING, outcome=None, sent_ago=timedelta(0))
    assert heard(made, "failed") == "PARKED"
    late_result(made.attempt, AttemptOutcome(OutcomeKind.AMBIGUOUS, error_class="read_timeout"))
    force_state(made.run, wake_at=made.run.wake_at + timedelta(hours=1))  # nothing else is due
    sweep_once()
    assert made.reload().action.state == A.FAILED
