"""A person settles a write of unknown fate: what a verdict needs, moves and leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from agentcore.lifecycle import ActionState
from agentcore.reconciling import Ground, Verdict
from runs.approving import Decider
from runs.models import Event, Incident, KeyOwner
from runs.reconcile_models import Reconciliation
from runs.reconciliations import PERMISSION
from runs.selectors import database_clock
from runs.services import record_verdict
from runs.verdict_errors import VerdictError
from tests.factories import make_run
from tests.unknown import GRACE, Unknown, make_sent

pytestmark = pytest.mark.django_db

A, V = ActionState, Verdict
EVIDENCE = "Seen in the payment dashboard at 14:02: refund rf_1, settled."
FACTS: dict[Verdict, dict[str, Any]] = {
    V.EFFECT_EXISTS: {"downstream_ref": "rf_1"},
    V.EFFECT_DOES_NOT_EXIST: {"ground": Ground.KEY_CLOSED},
    V.STILL_UNKNOWN: {"next_probe_in": timedelta(hours=1)},
    V.ABANDON: {},
    V.RESEND_SAME_KEY: {},
}


def say(made: Unknown, verdict: Verdict, person: Decider = GRACE, **changed: Any) -> Any:
    facts = {
        "action_id": made.action.pk,
        "action_revision": made.action.revision,
        "verdict": verdict,
        "person": person,
        "evidence_text": EVIDENCE,
        **FACTS[verdict],
    }
    return record_verdict(**{**facts, **changed})


def refused(made: Unknown, verdict: Verdict, code: str, **changed: Any) -> VerdictError:
    """The verdict is refused with this code, and nothing was written."""
    before = (made.action.revision, made.run.revision, Event.objects.count())
    with pytest.raises(VerdictError) as caught:
        say(made, verdict, **changed)
    assert caught.value.code == code, caught.value.message
    made.reload()
    assert (made.action.revision, made.run.revision, Event.objects.count()) == before
    assert not Reconciliation.objects.exists()
    return caught.value


def key_is_free(made: Unknown) -> bool:
    return KeyOwner.objects.get(action=made.action).released_at is not None


def moves_of(event: Event) -> list[tuple[str | None, str]]:
    return [(m["from"], m["to"]) for m in event.data["transitions"] if m["object"] == "action"]


@pytest.mark.requirement("R52", "R107", "R108")
@pytest.mark.parametrize("state", [A.UNKNOWN, A.NEEDS_HUMAN])
@pytest.mark.parametrize(
    ("verdict", "after", "free"),
    [
        (V.EFFECT_EXISTS, A.SUCCEEDED, False),
        (V.EFFECT_DOES_NOT_EXIST, A.FAILED, True),
        (V.ABANDON, A.ABANDONED, False),
        (V.STILL_UNKNOWN, A.UNKNOWN, False),
        (V.RESEND_SAME_KEY, A.NEEDS_HUMAN, False),
    ],
)
def test_a_verdict_moves_the_action_and_leaves_one_row_and_one_event(
    state: ActionState, verdict: Verdict, after: ActionState, free: bool
) -> None:
    made = make_sent(state)
    events, revision = Event.objects.count(), made.action.revision
    recorded = say(made, verdict)
    made.reload()
    assert (made.action.state, recorded.action_state) == (after, after)
    assert made.action.revision == recorded.action_revision == revision + 1
    assert key_is_free(made) is free
    row = Reconciliation.objects.get()
    assert (row.person, row.verdict, row.evidence) == ("user:grace", verdict, EVIDENCE)
    assert (row.from_state, row.to_state, row.action_revision) == (state, after, revision)
    event = Event.objects.latest("id")
    assert Event.objects.count() == events + 1
    assert (event.type, event.actor) == ("action.reconciled", "user:grace")
    assert event.data["reconciliation"] == str(row.pk)
    assert event.data["evidence"] == EVIDENCE
    assert made.run.wake_at == row.created_at <= database_clock()
    if state is A.UNKNOWN and verdict is not V.STILL_UNKNOWN:
        assert moves_of(event)[0] == (A.UNKNOWN, A.NEEDS_HUMAN)


def test_the_run_goes_on_with_the_result_that_was_given() -> None:
    made = make_sent()
    say(made, V.EFFECT_EXISTS, result={"refund_id": "rf_1", "amount": "80.00 EUR"})
    made.reload()
    assert made.action.result == {"refund_id": "rf_1", "amount": "80.00 EUR"}
    assert (made.action.downstream_ref, made.action.next_probe_at) == ("rf_1", None)


def test_without_a_result_the_reference_is_the_result() -> None:
    made = make_sent()
    say(made, V.EFFECT_EXISTS)
    assert made.reload().action.result == {"downstream_reference": "rf_1"}


def test_still_unknown_says_when_to_ask_again() -> None:
    made = make_sent(A.NEEDS_HUMAN)
    say(made, V.STILL_UNKNOWN)
    row = Reconciliation.objects.get()
    assert row.next_probe_at == row.created_at + timedelta(hours=1)
    assert made.reload().action.next_probe_at == row.next_probe_at


@pytest.mark.parametrize(
    ("verdict", "changed", "code"),
    [
        (V.ABANDON, {"evidence_text": " \n"}, "evidence_required"),
        (V.ABANDON, {"evidence_text": "x" * 4001}, "evidence_too_long"),
        (V.ABANDON, {"evidence_link": "javascript:alert(1)"}, "evidence_link_invalid"),
        (V.EFFECT_EXISTS, {"downstream_ref": " "}, "reference_required"),
        (V.EFFECT_EXISTS, {"result": object()}, "result_unusable"),
        (V.EFFECT_DOES_NOT_EXIST, {"ground": None}, "ground_required"),
        (V.STILL_UNKNOWN, {"next_probe_in": None}, "next_probe_required"),
        (V.STILL_UNKNOWN, {"next_probe_in": timedelta(days=31)}, "next_probe_required"),
    ],
)
def test_what_a_verdict_needs(verdict: Verdict, changed: dict[str, Any], code: str) -> None:
    assert refused(make_sent(), verdict, code, **changed).status == 400


@pytest.mark.requirement("R108")
@pytest.mark.parametrize(
    ("person", "code"),
    [
        (Decider(name="user:grace"), "not_permitted"),
        (Decider(name="token:desk", permissions=frozenset({PERMISSION}), is_agent=True), "self"),
        (Decider(name="user:Ada", permissions=frozenset({PERMISSION})), "self"),
        (Decider(name="ada", is_superuser=True), "self"),
        (Decider(name="user:customer-7", is_superuser=True), "self"),
    ],
)
def test_who_may_not(person: Decider, code: str) -> None:
    made = make_sent(run=make_run(principal="user:ada", on_behalf_of="customer-7"))
    full = "self_reconciliation" if code == "self" else code
    assert refused(made, V.ABANDON, full, person=person).status == 403


def test_a_superuser_may() -> None:
    say(make_sent(), V.ABANDON, Decider(name="user:root", is_superuser=True))
    assert Reconciliation.objects.get().person == "user:root"


@pytest.mark.requirement("R65")
def test_the_first_verdict_wins_and_the_other_is_told() -> None:
    made = make_sent()
    say(made, V.EFFECT_EXISTS)
    with pytest.raises(VerdictError) as caught:
        say(made, V.EFFECT_DOES_NOT_EXIST, Decider(name="user:heidi", is_superuser=True))
    assert (caught.value.code, caught.value.status) == ("action_not_unknown", 409)
    assert "succeeded" in caught.value.message
    assert "user:grace said: effect exists" in caught.value.message
    assert Reconciliation.objects.count() == 1
    assert not key_is_free(made)


def test_a_double_click_is_counted_once() -> None:
    made = make_sent()
    first, second = say(made, V.EFFECT_EXISTS), say(made, V.EFFECT_EXISTS)
    assert (first.already, second.already) == (False, True)
    assert second.reconciliation_id == first.reconciliation_id
    assert Reconciliation.objects.count() == 1


def test_a_verdict_on_what_has_changed_since_is_refused() -> None:
    made = make_sent(A.NEEDS_HUMAN)
    say(made, V.STILL_UNKNOWN)
    with pytest.raises(VerdictError) as caught:
        say(made, V.ABANDON)
    assert caught.value.code == "action_changed"
    assert "user:grace said: still unknown" in caught.value.message
    assert made.reload().action.state == A.UNKNOWN


@pytest.mark.parametrize("state", [A.RUNNING, A.PENDING])
def test_only_an_unknown_action_takes_a_verdict(state: ActionState) -> None:
    made = make_sent(state, outcome="PENDING" if state is A.PENDING else None)
    refused(made, V.EFFECT_EXISTS, "action_not_unknown")


@pytest.mark.requirement("R49")
def test_what_may_still_arrive_cannot_be_said_not_to_exist() -> None:
    """A lost process may send until its time is over, and a reply may take its time after it."""
    just_now = make_sent(outcome=None, lost=True, sent_ago=timedelta(0))
    refused(just_now, V.EFFECT_DOES_NOT_EXIST, "too_early")
    ago = timedelta(seconds=8)  # may not send any more; could be answered for two seconds more
    made = make_sent(outcome=None, lost=True, sent_ago=ago)
    absent = {"ground": Ground.ABSENT_AFTER_SETTLING}
    refused(made, V.EFFECT_DOES_NOT_EXIST, "too_early", **absent)
    say(made, V.EFFECT_DOES_NOT_EXIST, ground=Ground.DOWNSTREAM_REFUSED)
    assert made.reload().action.state == A.FAILED


def test_verdicts_are_append_only_in_the_database() -> None:
    say(make_sent(), V.ABANDON)
    for sql in ("UPDATE runs_reconciliation SET person = 'x'", "DELETE FROM runs_reconciliation"):
        with (
            pytest.raises(IntegrityError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
    assert Incident.objects.count() == 0
