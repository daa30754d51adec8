"""Starting and reading runs over the API."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from runs import services
from runs.access_models import IdempotencyRecord
from runs.models import AgentVersion, Event, Run
from runs.selectors import database_clock
from tests.runs.api_support import (
    AGENT,
    ALL_SCOPES,
    Api,
    assert_problem,
    body_for,
    declare_agent,
    make_token,
)
from tests.runs.rows import make_action, make_approval, make_attempt, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Api:
    declare_agent()
    return Api(make_token())


@pytest.mark.requirement("R1")
def test_a_started_run_is_answered_whole(api: Api) -> None:
    trace = uuid4().hex
    response = api.post_run(
        body_for(metadata={"order": "77"}, dedupe_key="order-77"),
        traceparent=f"00-{trace}-00f067aa0ba902b7-01",
    )
    assert response.status_code == 201
    run = response.json()
    row = Run.objects.get()
    assert run["id"] == f"run_{row.id.hex}"
    assert response["Location"] == f"/api/v1/runs/{run['id']}"
    assert "Idempotency-Replayed" not in response
    moment = row.created_at.isoformat().replace("+00:00", "Z")
    assert run == {
        "id": run["id"],
        "object": "run",
        "status": "queued",
        "status_reason": None,
        "agent": AGENT,
        "agent_version": "1",
        "input": {"order_id": "A-1", "amount": "0.00", "note": None, "weight": None},
        "output": None,
        "required_action": None,
        "incomplete_details": None,
        "error": None,
        "usage": {
            "input_tokens": 0,
            "cached_tokens": 0,
            "output_tokens": 0,
            "reasoning_tokens": 0,
        },
        "budget": {
            "limits": {
                "max_turns": 6,
                "max_actions": 4,
                "max_tokens": None,
                "max_cost": None,
                "deadline_at": run["deadline_at"],
            },
            "used": {"turns": 0, "actions": 0, "tokens": 0, "cost": "0.000000 USD"},
        },
        "turns": 0,
        "actions_summary": {},
        "requester": "token:desk",
        "on_behalf_of": None,
        "session": None,
        "retry_of": None,
        "parent": None,
        "children": [],
        "dedupe_key": "order-77",
        "priority": "normal",
        "dry_run": False,
        "business_outcome": None,
        "metadata": {"order": "77"},
        "revision": 1,
        "created_at": moment,
        "started_at": None,
        "ended_at": None,
        "deadline_at": row.deadline_at.isoformat().replace("+00:00", "Z"),
        "trace_id": trace,
        "links": {"self": response["Location"], "events": f"{response['Location']}/events"},
    }
    assert row.scopes == list(ALL_SCOPES)
    got = api.get(f"/runs/{run['id']}")
    assert (got.status_code, got["ETag"]) == (200, '"rev-1"')
    assert got.json() == run


@pytest.mark.requirement("R65")
def test_a_repeated_post_is_answered_from_the_record(api: Api) -> None:
    first = api.post_run(key="order-1")
    Run.objects.update(metadata={"changed": "since"})
    quoted = api.post_run(key='"order-1"')
    assert (first.status_code, quoted.status_code) == (201, 201)
    assert quoted["Idempotency-Replayed"] == "true"
    assert quoted["Location"] == first["Location"]
    assert quoted.json() == first.json()
    reordered = json.dumps(dict(reversed(body_for().items())), indent=3)
    assert api.post_raw(reordered, **{"Idempotency-Key": "order-1"}).json() == first.json()
    assert Run.objects.count() == IdempotencyRecord.objects.count() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"input": {"order_id": "A-2"}},
        {"input": {"order_id": "A-1", "weight": 1.5}},
        {"metadata": {"a": "b"}},
    ],
)
def test_a_key_with_another_body_is_refused(api: Api, other: dict[str, Any]) -> None:
    api.post_run(key="k")
    assert_problem(api.post_run(body_for(**other), key="k"), 422, "idempotency_key_reused")
    assert Run.objects.count() == 1


def test_fractions_count_in_the_comparison(api: Api) -> None:
    body = body_for(input={"order_id": "A-1", "weight": 1.5})
    assert api.post_run(body, key="k").status_code == 201
    assert api.post_run(body, key="k")["Idempotency-Replayed"] == "true"
    body["input"]["weight"] = 1.25
    assert_problem(api.post_run(body, key="k"), 422, "idempotency_key_reused")


def test_an_open_dedupe_key_names_its_run(api: Api) -> None:
    first = api.post_run(body_for(dedupe_key="o-1")).json()
    problem = assert_problem(api.post_run(body_for(dedupe_key="o-1")), 409, "dedupe_open_run")
    assert problem["run"] == first["id"]
    assert Run.objects.count() == IdempotencyRecord.objects.count() == 1


@pytest.mark.requirement("R99")
def test_another_tenant_sees_and_moves_nothing(api: Api) -> None:
    run = api.post_run(key="k").json()
    stranger = Api(make_token(tenant="other"))
    for path in (f"/runs/{run['id']}", f"/runs/{run['id']}/events"):
        problem = assert_problem(stranger.get(path), 404, "not_found")
        unknown = f"run_{uuid4().hex}"
        missing = stranger.get(path.replace(run["id"], unknown)).json()
        assert problem["detail"] == missing["detail"]
    assert stranger.get("/runs").json()["data"] == []
    assert stranger.get("/runs", after=run["id"]).json()["data"] == []
    own = stranger.post_run(key="k")
    assert own.status_code == 201
    assert "Idempotency-Replayed" not in own
    assert own.json()["id"] != run["id"]


def test_runs_are_paged_newest_first_without_gap_or_repeat(api: Api) -> None:
    made = [api.post_run().json()["id"] for _ in range(5)]
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = api.get("/runs", **query).json()
        ids = [run["id"] for run in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == ("list", ids[0], ids[-1])
        seen += ids
        if not page["has_more"]:
            break
        assert len(ids) == 2
        api.post_run()  # a newer run moves no page
        query["after"] = page["last_id"]
    assert seen == made[::-1]
    empty = api.get("/runs", after=made[0]).json()
    assert empty == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.requirement("R89")
def test_events_are_paged_oldest_first_without_gap(api: Api) -> None:
    run = Run.objects.get(id=api.post_run().json()["id"].removeprefix("run_"))
    _add_events(run, 4)
    path = f"/runs/run_{run.id.hex}/events"
    seqs: list[int] = []
    query: dict[str, str] = {"limit": "2"}
    for more in (True, True, False):
        page = api.get(path, **query).json()
        assert page["has_more"] is more
        seqs += [event["seq"] for event in page["data"]]
        query["after"] = page["last_id"]
    assert seqs == [1, 2, 3, 4, 5]
    other = api.post_run().json()["id"]
    assert_problem(api.get(f"/runs/{other}/events", **query), 422, "invalid_input")


def _add_events(run: Run, count: int) -> None:
    for seq in range(2, 2 + count):
        Event.objects.create(
            run=run,
            seq=seq,
            type="run.advanced",
            actor="worker:w1",
            revision_before=seq - 1,
            revision_after=seq,
            data={"transitions": []},
            txn=uuid4(),
            hash="0" * 64,
            created_at=database_clock(),
        )


@pytest.mark.requirement("R9")
def test_an_event_says_who_moved_what_and_between_which_revisions(api: Api) -> None:
    run = api.post_run().json()
    (event,) = api.get(f"/runs/{run['id']}/events").json()["data"]
    assert event["id"] == f"evt_{run['id'].removeprefix('run_')}_1"
    assert (event["object"], event["run"], event["type"]) == ("event", run["id"], "run.created")
    assert event["actor"] == {"type": "token", "id": "desk"}
    assert (event["revision_before"], event["revision_after"]) == (0, 1)
    (move,) = event["data"]["transitions"]
    assert (move["object"], move["id"]) == ("run", run["id"])
    assert (move["from"], move["to"], move["cause"]) == (None, "QUEUED", "requested")


def test_a_waiting_run_says_what_it_waits_for(api: Api) -> None:
    run = make_run("WAITING_APPROVAL", tenant="default")
    approval = make_approval(run_id=run.id, tenant="default")
    make_action(run, "AWAITING_APPROVAL", approval=approval, idempotency_key=None)
    done = make_action(run, "SUCCEEDED", ordinal=1)
    usage = {"input_tokens": 7, "cached_tokens": 1, "output_tokens": 2, "reasoning_tokens": 0}
    for n in (1, 2):
        make_attempt(done, action_id=None, kind="MODEL", n=n, usage=usage)
    body = api.get(f"/runs/run_{run.id.hex}").json()
    assert body["status"] == "requires_action"
    assert body["required_action"] == {
        "type": "approval",
        "ids": [f"appr_{approval.id.hex}"],
        "expires_at": approval.expires_at.isoformat().replace("+00:00", "Z"),
    }
    assert body["actions_summary"] == {"awaiting_approval": 1, "succeeded": 1}
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (14, 4)


@pytest.mark.requirement("R4")
def test_a_run_that_ended_badly_says_why(api: Api) -> None:
    failed = make_run("FAILED", tenant="default", stop_reason="MODEL_ERROR", reason="model: 401")
    body = api.get(f"/runs/run_{failed.id.hex}").json()
    assert (body["status"], body["status_reason"]) == ("failed", "model: 401")
    assert body["error"] == {"code": "model_error", "layer": "model", "message": "model: 401"}
    assert body["incomplete_details"] is None
    late = make_run("INCOMPLETE", tenant="default", stop_reason="DEADLINE")
    body = api.get(f"/runs/run_{late.id.hex}").json()
    assert (body["status"], body["error"]) == ("incomplete", None)
    assert body["incomplete_details"] == {"reason": "deadline"}


def test_the_number_of_queries_of_a_list_does_not_grow(
    api: Api, django_assert_max_num_queries: Any
) -> None:
    for _ in range(6):
        api.post_run()
    with django_assert_max_num_queries(5):
        assert len(api.get("/runs").json()["data"]) == 6


def test_only_one_version_of_an_unchanged_agent_is_stored(api: Api) -> None:
    api.post_run()
    api.post_run()
    assert AgentVersion.objects.count() == 1


def test_a_defect_is_a_problem_without_details_and_is_logged(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(services, "start_run", broken)
    problem = assert_problem(api.post_run(), 500, "internal_error")
    assert problem["request_id"] in problem["detail"]
    assert "secret" not in str(problem)
    assert "secret detail" in caplog.text
