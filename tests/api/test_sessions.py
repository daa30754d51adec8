"""Sessions: they group runs, and one run of them works at a time."""

from __future__ import annotations

from typing import Any

import pytest

from runs import sessions
from runs.models import Run
from runs.rest_models import Session
from runs.selectors import database_clock
from tests.factories import TENANT, force_state
from tests.runs.api_support import AGENT, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def _session(api: Api, **body: Any) -> str:
    answer = api.post("/sessions", body)
    assert answer.status_code == 201, answer.content
    found: str = answer.json()["id"]
    return found


def _start(api: Api, session: str, **more: Any) -> Any:
    body = {"agent": AGENT, "input": {"order_id": "A"}, "session": session, **more}
    return api.post("/runs", body)


def _row(run_id: str) -> Run:
    return Run.objects.get(id=run_id.removeprefix("run_"))


def _answer(run_id: str, text: str) -> None:
    force_state(_row(run_id), state="COMPLETED", output={"text": text}, ended_at=database_clock())


@pytest.mark.requirement("R83")
def test_a_session_groups_runs_and_shows_what_was_said(api: Api) -> None:
    session = _session(api, metadata={"case": "7"})
    asked = []
    for number in range(3):
        run_id = _start(api, session).json()["id"]
        asked.append(run_id)
        if number < 2:
            _answer(run_id, f"answer {number}")
    listed = api.get(f"/sessions/{session}/runs").json()["data"]
    assert [run["id"] for run in listed] == asked[::-1]
    assert {run["session"] for run in listed} == {session}
    items = api.get(f"/sessions/{session}/items").json()["data"]
    assert [(item["run"], item["role"]) for item in items] == [
        (asked[0], "user"),
        (asked[0], "assistant"),
        (asked[1], "user"),
        (asked[1], "assistant"),
        (asked[2], "user"),
    ]
    assert items[1]["content"] == {"text": "answer 0"}
    paged, after = [], {}
    while True:
        page = api.get(f"/sessions/{session}/items", limit="2", **after).json()
        paged += page["data"]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert paged == items
    assert api.get("/runs", session=session, status="completed").json()["data"] == listed[1:]
    assert api.get("/sessions").json()["data"][0]["metadata"] == {"case": "7"}


@pytest.mark.requirement("R1", "R83")
def test_a_second_run_is_refused_or_waits_for_the_first(api: Api) -> None:
    session = _session(api)
    first = _start(api, session).json()["id"]
    busy = assert_problem(_start(api, session), 409, "session_busy")
    assert busy["run"] == first
    waiting = _start(api, session, session_conflict="queue").json()["id"]
    third = _start(api, session, session_conflict="queue").json()["id"]
    assert _row(waiting).wake_at == _row(waiting).deadline_at
    assert sessions.wake_waiting() == 0
    api.post(f"/runs/{first}/cancel")
    assert _row(waiting).wake_at <= database_clock()
    assert _row(third).wake_at == _row(third).deadline_at
    api.post(f"/runs/{waiting}/cancel")
    assert _row(third).wake_at <= database_clock()


def test_the_sweep_wakes_what_the_end_of_a_run_did_not(api: Api) -> None:
    session = _session(api)
    first = _start(api, session).json()["id"]
    waiting = _start(api, session, session_conflict="queue").json()["id"]
    _answer(first, "past every door")
    assert sessions.wake_waiting() == 1
    assert _row(waiting).wake_at <= database_clock()
    assert sessions.wake_waiting() == 0


def test_a_session_may_be_for_one_agent(api: Api) -> None:
    session = _session(api, agent="refund_desk")
    assert_problem(_start(api, session), 422, "invalid_input")
    assert_problem(_start(api, "sess_" + "0" * 32), 422, "invalid_input")
    bound = Api(make_token(name="b", tenant=TENANT, agents=["refund_desk"]))
    assert_problem(bound.post("/sessions", {"agent": AGENT}), 403, "agent_forbidden")


def test_a_deleted_session_takes_no_run_and_keeps_those_it_has(api: Api) -> None:
    session = _session(api)
    run_id = _start(api, session).json()["id"]
    assert_problem(api.send("DELETE", f"/sessions/{session}"), 409, "session_busy")
    api.post(f"/runs/{run_id}/cancel")
    assert api.send("DELETE", f"/sessions/{session}").status_code == 204
    assert_problem(api.get(f"/sessions/{session}"), 404, "not_found")
    assert_problem(_start(api, session), 422, "invalid_input")
    assert api.get(f"/runs/{run_id}").json()["session"] == session
    assert Session.objects.count() == 1


def test_a_run_begins_at_its_time(api: Api) -> None:
    body = {"agent": AGENT, "input": {"order_id": "A"}, "start_at": "2999-01-01T00:00:00Z"}
    assert_problem(api.post("/runs", body), 422, "invalid_input")
    soon = database_clock().replace(microsecond=0)
    run_id = api.post("/runs", {**body, "start_at": soon.isoformat()}).json()["id"]
    assert _row(run_id).wake_at == _row(run_id).created_at
