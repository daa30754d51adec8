"""Pause, resume, retry and bulk operations."""

from __future__ import annotations

from typing import Any

import pytest

from runs import bulk, chores
from runs.models import Event, Run
from runs.rest_models import BulkItem, BulkOperation
from runs.selectors import database_clock
from tests.api.support import work_on
from tests.api.test_cancel import _hold
from tests.factories import TENANT, force_state, make_run, make_waiting
from tests.runs.api_support import AGENT, ALL_SCOPES, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def _path(run: Run) -> str:
    return f"/runs/run_{run.id.hex}"


def _state(run: Run) -> str:
    run.refresh_from_db()
    return str(run.state)


def test_a_run_is_paused_and_goes_on_where_it_was(api: Api) -> None:
    waiting = make_waiting()
    answer = api.post(f"{_path(waiting.run)}/pause", {"reason": "check the customer"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["required_action"]["type"]) == ("requires_action", "operator")
    assert body["status_reason"] == "check the customer"
    assert (_state(waiting.run), waiting.run.resume_to) == ("SUSPENDED", "WAITING_APPROVAL")
    again = api.post(f"{_path(waiting.run)}/pause")
    assert again.json()["revision"] == body["revision"]
    resumed = api.post(f"{_path(waiting.run)}/resume", {"budget": {"max_turns": 40}}).json()
    assert (resumed["status"], resumed["budget"]["limits"]["max_turns"]) == ("requires_action", 40)
    assert _state(waiting.run) == "WAITING_APPROVAL"
    assert waiting.run.wake_at <= database_clock()
    assert_problem(api.post(f"{_path(waiting.run)}/resume"), 409, "run_not_paused")
    types = list(Event.objects.filter(run=waiting.run).order_by("seq").values_list("type", "actor"))
    assert types[-2:] == [("run.paused", "token:ops"), ("run.resumed", "token:ops")]


def test_a_run_that_is_worked_on_pauses_at_its_next_step(api: Api) -> None:
    run = make_run(tenant=TENANT)
    _hold(run)
    assert api.post(f"{_path(run)}/pause").json()["status"] == "queued"
    assert _state(run) == "QUEUED"
    assert run.pause_asked_by == "token:ops"
    force_state(run, lease_worker=None, claim_token=None, call_deadline_at=None)
    work_on(run)
    assert (_state(run), run.resume_to, run.pause_asked_by) == ("SUSPENDED", "QUEUED", "")
    api.post(f"{_path(run)}/resume")
    assert _state(run) == "QUEUED"


def test_a_wish_to_pause_can_be_taken_back(api: Api) -> None:
    run = make_run(tenant=TENANT)
    _hold(run)
    api.post(f"{_path(run)}/pause")
    assert api.post(f"{_path(run)}/resume").status_code == 200
    run.refresh_from_db()
    assert run.pause_asked_by == ""


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_what_has_ended_or_stops_is_refused(api: Api, verb: str) -> None:
    run = make_run(tenant=TENANT)
    _hold(run)
    api.post(f"{_path(run)}/cancel")
    assert_problem(api.post(f"{_path(run)}/{verb}"), 409, "run_not_waiting")
    ended = make_run(tenant=TENANT)
    api.post(f"{_path(ended)}/cancel")
    assert_problem(api.post(f"{_path(ended)}/{verb}"), 409, "run_terminal")
    answer = api.post(f"{_path(ended)}/{verb}", **{"If-Match": '"rev-1"'})
    assert_problem(answer, 412, "revision_mismatch")


# --- retry -------------------------------------------------------------------------------


def _failed(api: Api, **fields: Any) -> Run:
    body = {"agent": AGENT, "input": {"order_id": "A"}, **fields}
    run = Run.objects.get(id=api.post("/runs", body).json()["id"].removeprefix("run_"))
    force_state(run, state="FAILED", stop_reason="MODEL_ERROR", ended_at=database_clock())
    return run


@pytest.mark.requirement("R54")
def test_a_retry_is_a_new_run_in_the_same_scope_of_intents(api: Api) -> None:
    first = _failed(api, metadata={"order": "1"})
    answer = api.post(f"{_path(first)}/retry", key="k")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["retry_of"], body["metadata"]) == (f"run_{first.id.hex}", {"order": "1"})
    assert answer["Location"] == f"/api/v1/runs/{body['id']}"
    assert api.post(f"{_path(first)}/retry", key="k").json() == body
    busy = assert_problem(api.post(f"{_path(first)}/retry"), 409, "run_not_retryable")
    assert busy["run"] == body["id"]
    second = Run.objects.get(id=body["id"].removeprefix("run_"))
    assert_problem(api.post(f"{_path(second)}/retry"), 409, "run_not_retryable")
    force_state(second, state="INCOMPLETE", stop_reason="BUDGET", ended_at=database_clock())
    third = api.post(f"{_path(second)}/retry").json()
    assert third["retry_of"] == f"run_{first.id.hex}"


# --- bulk --------------------------------------------------------------------------------


def _make(api: Api, **body: Any) -> dict[str, Any]:
    asked = {"verb": "cancel", "filter": {"status": ["queued"]}, "dry_run": False, **body}
    answer = api.post("/bulk_operations", asked)
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def _start(api: Api, made: dict[str, Any], **body: Any) -> Any:
    asked = {"confirm_token": made["confirm_token"], "confirm_count": made["total"], **body}
    return api.post(f"/bulk_operations/{made['id']}/start", asked)


def test_the_runs_are_frozen_when_it_is_made(api: Api) -> None:
    runs = [make_run(tenant=TENANT) for _ in range(3)]
    make_run(tenant="other")
    made = _make(api, reason="wrong price list")
    assert [item["run"] for item in made["items"]] == [f"run_{run.id.hex}" for run in runs]
    later = make_run(tenant=TENANT)
    api.post(f"{_path(runs[0])}/cancel")
    assert chores.do_once().bulk == 0
    assert _start(api, made).json()["status"] == "running"
    chores.do_once()
    done = api.get(f"/bulk_operations/{made['id']}").json()
    assert (done["status"], done["done"], done["refused"]) == ("completed", 3, 0)
    assert [_state(run) for run in runs] == ["CANCELLED"] * 3
    assert runs[1].reason == "wrong price list"
    assert _state(later) == "QUEUED"
    assert done["confirm_token"] is None


def test_a_dry_run_shows_and_never_starts(api: Api) -> None:
    run = make_run(tenant=TENANT)
    made = _make(api, dry_run=True)
    assert (made["status"], made["total"], made["confirm_token"]) == ("preview", 1, None)
    refused = _start(api, made, confirm_token="x")
    assert_problem(refused, 409, "bulk_not_ready")
    chores.do_once()
    assert _state(run) == "QUEUED"


def test_it_starts_only_with_its_token_and_count_in_time_and_once(api: Api) -> None:
    make_run(tenant=TENANT)
    made = _make(api)
    for wrong in ({"confirm_token": "x"}, {"confirm_count": 2}):
        assert_problem(_start(api, made, **wrong), 422, "invalid_input")
    BulkOperation.objects.update(expires_at=database_clock())
    assert_problem(_start(api, made), 409, "bulk_not_ready")
    BulkOperation.objects.update(expires_at=database_clock() + bulk.CONFIRM_WITHIN)
    assert _start(api, made).status_code == 202
    assert_problem(_start(api, made), 409, "bulk_not_ready")


def test_an_abort_takes_hold_before_the_next_run(api: Api) -> None:
    runs = [make_run(tenant=TENANT) for _ in range(3)]
    made = _make(api)
    _start(api, made)
    assert bulk.run_due_bulk(limit=1) == 1
    aborted = api.post(f"/bulk_operations/{made['id']}/abort").json()
    assert (aborted["status"], aborted["done"]) == ("aborted", 1)
    chores.do_once()
    assert [_state(run) for run in runs] == ["CANCELLED", "QUEUED", "QUEUED"]


def test_a_refusal_is_noted_and_the_rest_goes_on(api: Api) -> None:
    paused, other = make_run(tenant=TENANT), make_run(tenant=TENANT)
    api.post(f"{_path(paused)}/pause")
    made = _make(api, verb="resume", filter={"status": ["queued", "requires_action"]})
    _start(api, made)
    chores.do_once()
    outcomes = dict(BulkItem.objects.values_list("run_id", "code"))
    assert outcomes == {paused.id: "", other.id: "run_not_paused"}


def test_it_needs_a_filter_and_the_scope_of_the_verb(api: Api) -> None:
    body = {"verb": "cancel", "filter": {}}
    assert_problem(api.post("/bulk_operations", body), 422, "invalid_input")
    scopes = [scope for scope in ALL_SCOPES if scope != "runs:operate"]
    less = Api(make_token(name="less", tenant=TENANT, scopes=scopes))
    body = {"verb": "pause", "filter": {"status": ["queued"]}}
    assert_problem(less.post("/bulk_operations", body), 403, "scope_missing")
