"""Approvals and their decisions over REST: the same use case as the console's."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from runs.access_models import IdempotencyRecord
from runs.models import Event
from tests.factories import PRINCIPAL, TENANT, Waiting, force_state, make_user, make_waiting
from tests.runs.api_support import ALL_SCOPES, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def _path(waiting: Waiting) -> str:
    return f"/approvals/appr_{waiting.approval.id.hex}"


def _said(waiting: Waiting, decision: str = "approve", **more: Any) -> dict[str, Any]:
    return {"decision": decision, "params_hash": waiting.approval.params_hash, **more}


def test_an_approval_shows_what_would_run(api: Api) -> None:
    waiting = make_waiting()
    body = api.get(_path(waiting)).json()
    assert body["state"] == "pending"
    assert body["arguments"] == waiting.approval.arguments
    assert body["impact"]["summary"].startswith("Refund 80.00 EUR")
    assert body["allowed_decisions"] == ["approve", "reject", "respond", "edit"]
    assert (body["requester"], body["required_count"]) == (PRINCIPAL, 1)
    assert body["run"] == f"run_{waiting.run.id.hex}"
    listed = api.get("/approvals", state="pending", run=body["run"]).json()["data"]
    assert listed == [body]
    assert api.get("/approvals", state="rejected,expired").json()["data"] == []


@pytest.mark.requirement("R44", "R47")
def test_approving_makes_the_action_ready(api: Api) -> None:
    waiting = make_waiting()
    answer = api.post(f"{_path(waiting)}/decisions", _said(waiting, reason="checked"))
    assert answer.status_code == 201
    body = answer.json()
    assert (body["approval_state"], body["action_state"]) == ("approved", "ready")
    assert waiting.reload().action.state == "READY"
    (vote,) = api.get(_path(waiting)).json()["decisions"]
    assert (vote["by"], vote["decision"], vote["reason"]) == ("token:ops", "approve", "checked")
    assert Event.objects.filter(run=waiting.run, type="approval.decided").count() == 1


def test_rejecting_needs_a_reason(api: Api) -> None:
    waiting = make_waiting()
    path = f"{_path(waiting)}/decisions"
    problem = assert_problem(api.post(path, _said(waiting, "reject")), 422, "invalid_input")
    assert problem["errors"][0]["pointer"] == "/reason"
    assert api.post(path, _said(waiting, "reject", reason="too much")).status_code == 201
    assert waiting.reload().action.state == "REJECTED"


def test_a_person_answers_in_place_of_the_tool(api: Api) -> None:
    waiting = make_waiting()
    path = f"{_path(waiting)}/decisions"
    problem = assert_problem(api.post(path, _said(waiting, "respond")), 422, "invalid_input")
    assert problem["errors"][0]["pointer"] == "/message"
    said = _said(waiting, "respond", message="It was refunded by phone.")
    assert api.post(path, said).status_code == 201
    action = waiting.reload().action
    assert (action.state, action.reason) == ("REJECTED", "RESPONDED")
    assert action.detail == "It was refunded by phone."
    (vote,) = api.get(_path(waiting)).json()["decisions"]
    assert vote["decision"] == "respond"


@pytest.mark.requirement("R65")
def test_a_repeated_decision_is_replayed_by_key_and_answered_without_one(api: Api) -> None:
    waiting = make_waiting()
    path = f"{_path(waiting)}/decisions"
    first = api.post(path, _said(waiting), key="k")
    again = api.post(path, _said(waiting), key="k")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again["Idempotency-Replayed"] == "true"
    other = api.post(path, _said(waiting), key="k2")
    assert (other.status_code, other.json()["already"]) == (201, True)
    assert waiting.approval.votes.count() == 1
    assert_problem(api.post(path, _said(waiting, "reject", reason="no"), key="k3"), 409,
                   "approval_decided")  # fmt: skip


def test_each_refusal_has_its_code(api: Api) -> None:
    waiting = make_waiting()
    path = f"{_path(waiting)}/decisions"
    stale = {"decision": "approve", "params_hash": "0" * 64}
    assert_problem(api.post(path, stale), 409, "approval_stale")
    force_state(waiting.approval, expires_at=waiting.approval.created_at)
    assert_problem(api.post(path, _said(waiting)), 410, "approval_expired")
    stopping = make_waiting()
    force_state(stopping.run, stop_reason="CANCEL")
    path = f"{_path(stopping)}/decisions"
    assert_problem(api.post(path, _said(stopping)), 409, "run_not_waiting")
    assert not IdempotencyRecord.objects.exists()
    assert stopping.reload().action.state == "AWAITING_APPROVAL"


def test_who_asked_may_not_decide() -> None:
    waiting = make_waiting()
    asker = Api(make_token(name=PRINCIPAL.removeprefix("token:"), tenant=TENANT))
    path = f"{_path(waiting)}/decisions"
    assert_problem(asker.post(path, _said(waiting)), 403, "self_approval_forbidden")


def test_a_token_needs_the_role_that_the_policy_names() -> None:
    waiting = make_waiting(role="agent_approver")
    path = f"{_path(waiting)}/decisions"
    api = Api(make_token(name="a", tenant=TENANT))
    assert_problem(api.post(path, _said(waiting)), 403, "role_missing")
    scopes = [*ALL_SCOPES, "role:agent_approver"]
    api = Api(make_token(name="b", tenant=TENANT, scopes=scopes))
    assert api.post(path, _said(waiting)).status_code == 201


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"decision": "maybe"}, "/decision"),
        ({"params_hash": "x"}, "/params_hash"),
        ({"params_hash": None}, "/params_hash"),
        ({"by": "user:boss"}, "/by"),
        ({"reason": "r" * 2001}, "/reason"),
    ],
)
def test_a_bad_body_is_refused(api: Api, body: dict[str, Any], pointer: str) -> None:
    waiting = make_waiting()
    answer = api.post(f"{_path(waiting)}/decisions", {**_said(waiting), **body})
    assert pointer in [e["pointer"] for e in assert_problem(answer, 422, "invalid_input")["errors"]]


def _staff(user: User, *, csrf: bool = False) -> Api:
    api = Api("")
    api.client.handler.enforce_csrf_checks = csrf
    api.headers = {}
    api.client.force_login(user)
    return api


def test_a_reviewer_decides_with_the_session_of_the_admin() -> None:
    waiting = make_waiting(run=None, role="approvers")
    force_state(waiting.run, tenant="default")
    force_state(waiting.approval, tenant="default")
    force_state(waiting.action, tenant="default")
    path = f"{_path(waiting)}/decisions"
    outsider = _staff(make_user())
    assert_problem(outsider.post(path, _said(waiting)), 403, "role_missing")
    reviewer = _staff(make_user(groups=("approvers",)), csrf=True)
    problem = assert_problem(reviewer.post(path, _said(waiting)), 403, "scope_missing")
    assert "X-CSRFToken" in problem["detail"]
    assert not waiting.approval.votes.exists()
