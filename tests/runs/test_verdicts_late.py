"""What arrives after a verdict is never dropped: evidence when it agrees, an incident when not."""

from __future__ import annotations

from uuid import uuid4

import pytest

from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.reconciling import Verdict
from agentcore.values import AttemptKind, AttemptOutcome, OutcomeKind
from runs.models import Attempt, Event, Incident
from runs.services import receive_callback
from tests.runs.callback_support import body_of, sources
from tests.runs.test_verdicts_record import say
from tests.unknown import Unknown, late_result, make_sent

pytestmark = pytest.mark.django_db

A, V, K = ActionState, Verdict, OutcomeKind
DONE = AttemptOutcome(K.SUCCESS, {"refund_id": "rf_1"}, reference="rf_1")
OTHER = AttemptOutcome(K.SUCCESS, {"refund_id": "rf_2"}, reference="rf_2")
NOT_SENT = AttemptOutcome(K.NO_EFFECT, error_class="connection_refused")
ENDS = {
    V.EFFECT_EXISTS: A.SUCCEEDED,
    V.EFFECT_DOES_NOT_EXIST: A.FAILED,
    V.ABANDON: A.ABANDONED,
}


@pytest.mark.requirement("R36", "R110")
@pytest.mark.parametrize(
    ("verdict", "outcome", "incidents"),
    [
        (V.EFFECT_EXISTS, DONE, 0),
        (V.EFFECT_EXISTS, OTHER, 1),
        (V.EFFECT_EXISTS, NOT_SENT, 1),
        (V.EFFECT_DOES_NOT_EXIST, DONE, 1),
        (V.EFFECT_DOES_NOT_EXIST, NOT_SENT, 0),
        (V.ABANDON, DONE, 1),
    ],
)
def test_a_late_result(verdict: Verdict, outcome: AttemptOutcome, incidents: int) -> None:
    made = make_sent(outcome=None, lost=True)
    say(made, verdict)
    late_result(made.attempt, outcome)
    made.reload()
    assert made.action.state == ENDS[verdict], "a verdict is final"
    assert (made.attempt.outcome, made.attempt.late) == (outcome.kind, True)
    assert Incident.objects.filter(kind="CONTRADICTION").count() == incidents
    assert Event.objects.latest("id").data["transitions"][0]["to"] == outcome.kind


def probe_of(made: Unknown) -> Attempt:
    """A probe that was on its way when the verdict was given."""
    return Attempt.objects.create(
        id=new_id(),
        run_id=made.run.pk,
        turn=1,
        action=made.action,
        kind=AttemptKind.PROBE,
        n=1,
        fence=made.run.fence,
        worker=uuid4(),
        input_revision=made.run.revision,
        send_by=made.attempt.send_by,
        started_at=made.attempt.started_at,
    )


@pytest.mark.requirement("R36", "R110")
@pytest.mark.parametrize(
    ("verdict", "reference", "incidents"),
    [
        (V.EFFECT_EXISTS, "rf_1", 0),
        (V.EFFECT_EXISTS, "rf_2", 1),
        (V.EFFECT_DOES_NOT_EXIST, "rf_1", 1),
        (V.ABANDON, "rf_1", 1),
    ],
)
def test_the_answer_of_a_probe_that_was_on_its_way(
    verdict: Verdict, reference: str, incidents: int
) -> None:
    made = make_sent()
    probe = probe_of(made)
    say(made, verdict)
    found = {"verdict": "found", "reference": reference, "result": {}, "fingerprint_matches": True}
    late_result(probe, AttemptOutcome(K.SUCCESS, found))
    assert made.reload().action.state == ENDS[verdict]
    probe.refresh_from_db()
    assert probe.result == found
    assert Incident.objects.count() == incidents


@pytest.mark.requirement("R36", "R110")
@pytest.mark.parametrize(
    ("verdict", "word", "reference", "did"),
    [
        (V.EFFECT_EXISTS, "succeeded", "rf_1", "EVIDENCE"),
        (V.EFFECT_EXISTS, "succeeded", "rf_2", "CONTRADICTION"),
        (V.EFFECT_EXISTS, "failed", "", "CONTRADICTION"),
        (V.EFFECT_DOES_NOT_EXIST, "failed", "", "EVIDENCE"),
        (V.EFFECT_DOES_NOT_EXIST, "succeeded", "rf_1", "CONTRADICTION"),
        (V.EFFECT_DOES_NOT_EXIST, "pending", "", "CONTRADICTION"),
        (V.ABANDON, "succeeded", "rf_1", "CONTRADICTION"),
        (V.ABANDON, "failed", "", "EVIDENCE"),
    ],
)
def test_a_callback_after_the_verdict(
    verdict: Verdict, word: str, reference: str, did: str
) -> None:
    made = make_sent()
    say(made, verdict)
    with sources():
        received = receive_callback(**body_of(made, word, reference=reference))
    assert (received.did, made.reload().action.state) == (did, ENDS[verdict])
    assert Incident.objects.count() == (did == "CONTRADICTION")
    event = Event.objects.latest("id")
    assert (event.type, event.actor) == ("callback.recorded", "callback:payments")
