"""Editing, claiming and escalating a question over the API."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import ActionJournal
from tests.factories import TENANT, Waiting, make_waiting
from tests.runs.api_support import ALL_SCOPES, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def _path(waiting: Waiting, rest: str) -> str:
    return f"/approvals/appr_{waiting.approval.id.hex}/{rest}"


def _edit(api: Api, waiting: Waiting, arguments: Any, **more: Any) -> Any:
    said = {
        "decision": "edit",
        "params_hash": waiting.approval.params_hash,
        "arguments": arguments,
        "reason": "half of it was kept",
    }
    key = more.pop("key", "")
    return api.post(_path(waiting, "decisions"), {**said, **more}, key=key)


@pytest.mark.requirement("R46")
def test_an_edit_puts_a_new_action_in_the_place_of_the_old(api: Api) -> None:
    waiting = make_waiting()
    answer = _edit(api, waiting, {"amount": "40.00 EUR"}, key="k")
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["approval_state"], body["action_state"]) == ("voided", "voided")
    edited = ActionJournal.objects.get(id=body["edited_action"].removeprefix("act_"))
    assert (edited.edit, edited.edited_by) == (1, "token:ops")
    assert edited.arguments["amount"] == "40.00 EUR"
    assert edited.arguments["order_id"] == waiting.action.arguments["order_id"]
    again = _edit(api, waiting, {"amount": "40.00 EUR"}, key="k")
    assert (again.json(), again["Idempotency-Replayed"]) == (body, "true")
    assert ActionJournal.objects.count() == 2


def test_an_edit_that_the_tool_does_not_take_names_the_argument(api: Api) -> None:
    waiting = make_waiting()
    wrong = assert_problem(_edit(api, waiting, {"amount": "much"}), 422, "invalid_arguments")
    assert "/arguments/amount" in [error["pointer"] for error in wrong["errors"]]
    same = {"amount": waiting.action.arguments["amount"]}
    problem = assert_problem(_edit(api, waiting, same), 422, "invalid_input")
    assert problem["errors"][0]["code"] == "nothing_changed"
    for missing in (None, {}):
        assert_problem(_edit(api, waiting, missing), 422, "invalid_input")
    scopes = [scope for scope in ALL_SCOPES if scope != "approvals:edit"]
    less = Api(make_token(name="less", tenant=TENANT, scopes=scopes))
    assert_problem(_edit(less, waiting, {"amount": "40.00 EUR"}), 403, "role_missing")
    assert ActionJournal.objects.count() == 1


def test_a_claim_is_seen_renewed_and_given_back(api: Api) -> None:
    waiting = make_waiting()
    other = Api(make_token(name="other", tenant=TENANT))
    mine = api.send("POST", _path(waiting, "claim"))
    assert (mine.status_code, mine.json()["by"]) == (200, "token:ops")
    shown = other.get(f"/approvals/appr_{waiting.approval.id.hex}").json()
    assert (shown["claimed_by"], shown["claimed_until"]) == ("token:ops", mine.json()["until"])
    problem = assert_problem(other.send("POST", _path(waiting, "claim")), 409, "already_claimed")
    assert "token:ops" in problem["detail"]
    assert api.send("POST", _path(waiting, "claim")).json()["until"] > mine.json()["until"]
    assert api.send("DELETE", _path(waiting, "claim")).status_code == 204
    assert other.send("POST", _path(waiting, "claim")).status_code == 200


def test_an_escalation_asks_a_higher_group_once(api: Api) -> None:
    waiting = make_waiting()
    asked = {"params_hash": waiting.approval.params_hash, "reason": "above my limit"}
    made = api.post(_path(waiting, "escalate"), asked, key="k")
    assert made.status_code == 201, made.content
    body = made.json()
    new = api.get(f"/approvals/{body['approval']}").json()
    assert (new["supersedes"], new["role"], new["state"]) == (
        f"appr_{waiting.approval.id.hex}",
        body["role"],
        "pending",
    )
    assert api.post(_path(waiting, "escalate"), asked, key="k").json() == body
    assert waiting.reload().approval.state == "VOIDED"
    none = {**asked, "role": "nobody"}
    refused = api.post(f"/approvals/{body['approval']}/escalate", none)
    assert refused.status_code in (409, 422)
