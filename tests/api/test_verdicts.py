"""Verdicts on writes whose fate is not known, and probes, over the API."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.lifecycle import ActionState
from runs.models import Event
from runs.reconcile_models import Reconciliation
from runs.selectors import database_clock
from tests.factories import TENANT, make_run
from tests.runs.api_support import ALL_SCOPES, Api, assert_problem, make_token
from tests.unknown import Unknown, make_sent

pytestmark = pytest.mark.django_db(transaction=True)

A = ActionState


@pytest.fixture
def made(db: None) -> Unknown:
    return make_sent(A.UNKNOWN, run=make_run(tenant=TENANT))


def _path(made: Unknown, rest: str = "reconciliations") -> str:
    return f"/actions/act_{made.action.id.hex}/{rest}"


def _say(api: Api, made: Unknown, verdict: str, **more: Any) -> Any:
    key = more.pop("key", "")
    asked = {"verdict": verdict, "revision": made.action.revision, "reason": "Seen.", **more}
    return api.post(_path(made), asked, key=key)


@pytest.mark.requirement("R52", "R107")
def test_a_verdict_is_recorded_once_and_listed(api: Api, made: Unknown) -> None:
    link = "https://pay.example/rf_1"
    answer = _say(
        api,
        made,
        "effect_exists",
        downstream_ref="rf_1",
        evidence=[link],
        result={"id": 1},
        key="k",
    )
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["object"], body["action_state"]) == ("verdict", "succeeded")
    assert (body["waits_for_second_person"], body["already"]) == (False, False)
    again = _say(
        api,
        made,
        "effect_exists",
        downstream_ref="rf_1",
        evidence=[link],
        result={"id": 1},
        key="k",
    )
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == body
    assert Reconciliation.objects.count() == 1
    (row,) = api.get(_path(made)).json()["data"]
    assert row["id"] == body["reconciliation"]
    assert (row["verdict"], row["by"], row["reason"]) == ("effect_exists", "token:ops", "Seen.")
    assert (row["evidence"], row["downstream_ref"]) == ([link], "rf_1")
    assert (row["from_state"], row["to_state"]) == ("unknown", "succeeded")
    made.reload()
    assert (made.action.state, made.action.result) == ("SUCCEEDED", {"id": 1})
    assert_problem(_say(api, made, "abandon"), 409, "action_not_unknown")


@pytest.mark.parametrize(
    ("verdict", "pointer"),
    [
        ("effect_exists", "/downstream_ref"),
        ("effect_does_not_exist", "/ground"),
        ("still_unknown", "/next_probe_in"),
    ],
)
def test_what_a_verdict_needs_is_named(api: Api, made: Unknown, verdict: str, pointer: str) -> None:
    problem = assert_problem(_say(api, made, verdict), 422, "invalid_input")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert not Reconciliation.objects.exists()


def test_the_revision_must_be_the_one_that_was_read(api: Api, made: Unknown) -> None:
    revision = made.action.revision + 1
    assert_problem(_say(api, made, "abandon", revision=revision), 409, "action_changed")
    assert made.reload().action.state == "UNKNOWN"


def test_who_asked_for_the_run_gives_no_verdict(made: Unknown) -> None:
    name = made.run.principal.removeprefix("token:").removeprefix("user:")
    own = Api(make_token(name=name, tenant=TENANT))
    assert_problem(_say(own, made, "abandon"), 403, "self_reconciliation_forbidden")


@pytest.mark.requirement("R108")
def test_a_resend_takes_two_tokens(api: Api, made: Unknown) -> None:
    first = _say(api, made, "resend_same_key")
    assert first.status_code == 201, first.content
    assert first.json()["waits_for_second_person"]
    made.reload()
    assert_problem(_say(api, made, "resend_same_key"), 409, "second_person_required")
    second = _say(Api(make_token(name="second", tenant=TENANT)), made, "resend_same_key")
    assert (second.status_code, second.json()["waits_for_second_person"]) == (201, False)
    rows = api.get(_path(made)).json()["data"]
    assert rows[1]["agrees_with"] == rows[0]["id"]


def test_still_unknown_says_when_to_ask_again(api: Api, made: Unknown) -> None:
    before = database_clock()
    assert _say(api, made, "still_unknown", next_probe_in=3600).status_code == 201
    made.reload()
    assert made.action.next_probe_at is not None
    assert 3500 < (made.action.next_probe_at - before).total_seconds() < 3700


# --- probes ------------------------------------------------------------------------------


def test_a_probe_is_due_at_once_also_for_who_gives_no_verdicts(made: Unknown) -> None:
    scopes = [scope for scope in ALL_SCOPES if scope != "reconciliations:decide"]
    asker = Api(make_token(name="asker", tenant=TENANT, scopes=scopes))
    answer = asker.post(_path(made, "probe"), {"reason": "the customer waits"})
    assert answer.status_code == 202, answer.content
    made.reload()
    assert answer.json()["action"] == f"act_{made.action.id.hex}"
    assert made.action.next_probe_at == made.run.wake_at
    assert made.run.wake_at <= database_clock()
    assert Event.objects.latest("id").type == "action.probe_asked"


def test_a_probe_is_refused_where_nothing_can_be_asked(api: Api, made: Unknown) -> None:
    gone = make_sent(A.UNKNOWN, run=make_run(tenant=TENANT), tool="nobody.asks")
    assert_problem(api.post(_path(gone, "probe")), 409, "no_probe")
    assert _say(api, made, "effect_exists", downstream_ref="r").status_code == 201
    assert_problem(api.post(_path(made, "probe")), 409, "action_not_unknown")
