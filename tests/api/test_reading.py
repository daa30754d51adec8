"""Actions, agents, tools, the feed of events, filters and rate limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from agentcore.lifecycle import ActionState, RunState, StopReason
from runs.api.status import STATUSES, ActionFact, public_status
from runs.api.throttling import COUNTER
from runs.listing import status_is
from runs.models import Event, Run
from runs.selectors import database_clock
from tests.api.streaming import add_events
from tests.factories import TENANT, make_run, make_waiting
from tests.runs.api_support import AGENT, Api, assert_problem, make_token
from tests.runs.rows import make_action, make_attempt
from tests.runs.rows import make_run as make_row
from tools import registry

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_action_is_shown_with_its_attempts(api: Api) -> None:
    waiting = make_waiting()
    make_attempt(waiting.action, kind="PRECHECK")
    run_id, action_id = f"run_{waiting.run.id.hex}", f"act_{waiting.action.id.hex}"
    body = api.get(f"/actions/{action_id}").json()
    assert (body["state"], body["effect"], body["contract"]) == (
        "awaiting_approval",
        "write_irreversible",
        "key",
    )
    assert body["arguments"] == waiting.action.arguments
    assert body["approval"] == f"appr_{waiting.approval.id.hex}"
    (attempt,) = body["attempts"]
    assert (attempt["kind"], attempt["outcome"]) == ("precheck", "success")
    assert api.get(f"/runs/{run_id}/actions").json()["data"] == [body]
    for query, found in (
        ({"state": "awaiting_approval,ready"}, 1),
        ({"state": "failed"}, 0),
        ({"tool": "refund_desk.submit_refund"}, 1),
        ({"effect": "read"}, 0),
        ({"resource_key": "order:ORD-77"}, 1),
        ({"resource_key": "order:ORD-78"}, 0),
        ({"downstream_ref": "x"}, 0),
    ):
        assert len(api.get("/actions", **query).json()["data"]) == found, query


@pytest.mark.requirement("R93")
def test_what_a_tool_keeps_secret_is_not_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = registry.get("refund_desk.submit_refund")
    assert spec is not None
    hiding = replace(spec, redact=("amount",))
    monkeypatch.setattr(registry, "get", {spec.name: hiding}.get)
    waiting = make_waiting()
    for path in (
        f"/actions/act_{waiting.action.id.hex}",
        f"/approvals/appr_{waiting.approval.id.hex}",
    ):
        shown = api.get(path).json()["arguments"]
        assert (shown["amount"], shown["order_id"]) == ("[redacted]", "ORD-77")
    monkeypatch.setattr(registry, "get", lambda _: None)
    shown = api.get(f"/actions/act_{waiting.action.id.hex}").json()["arguments"]
    assert set(shown.values()) == {"[redacted]"}


def test_agents_and_their_versions(api: Api) -> None:
    api.post("/runs", {"agent": AGENT, "input": {"order_id": "A"}})
    names = [agent["name"] for agent in api.get("/agents").json()["data"]]
    assert names == sorted(names)
    assert {AGENT, "refund_desk"} <= set(names)
    desk = api.get(f"/agents/{AGENT}").json()
    assert desk["input_schema"]["required"] == ["order_id"]
    assert desk["limits"] == {"max_turns": 6, "max_actions": 4, "max_seconds": 600}
    (version,) = api.get(f"/agents/{AGENT}/versions").json()["data"]
    assert (version["version"], len(version["digest"])) == ("1", 64)
    assert_problem(api.get("/agents/nobody"), 404, "not_found")
    first = api.get("/agents", limit="1").json()
    assert first["has_more"]
    rest = api.get("/agents", after=first["last_id"], limit="100").json()["data"]
    assert [first["data"][0]["name"], *(agent["name"] for agent in rest)] == names


@pytest.mark.requirement("R58")
def test_tools_say_what_they_guarantee_and_who_is_asked(api: Api) -> None:
    refund = api.get("/tools/refund_desk.submit_refund").json()
    assert refund["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": True,
    }
    assert refund["guarantee"]["contract"] == "key"
    assert refund["guarantee"]["probe"]
    assert refund["policy"]["role"] == "agent_approver"
    assert refund["policy"]["scopes"] == ["refunds.write"]
    assert refund["parameters"]["properties"]["order_id"]
    read = api.get("/tools/refund_desk.get_order").json()
    assert read["annotations"]["readOnlyHint"]
    assert refund in api.get("/tools", limit="100").json()["data"]
    assert_problem(api.get("/tools/none.such"), 404, "not_found")


# --- the feed ------------------------------------------------------------------------------


def _feed(api: Api, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = api.get("/events", **query).json()
        found += page["data"]
        if not page["has_more"]:
            return found
        query["after"] = page["last_id"]


@pytest.mark.requirement("R89", "R99")
def test_the_feed_is_every_event_of_the_tenant_in_order(api: Api) -> None:
    runs = [make_run(tenant=TENANT) for _ in range(3)]
    make_run(tenant="other")
    for run in (*runs, *runs[::-1]):
        add_events(run)
    feed = _feed(api, limit="4")
    assert [(event["run"], event["seq"]) for event in feed] == [
        (f"run_{run_id.hex}", seq)
        for run_id, seq in Event.objects.filter(run__tenant=TENANT)
        .order_by("created_at", "id")
        .values_list("run_id", "seq")
    ]
    assert len(feed) == 9
    assert {event["type"] for event in _feed(api, type="run.created")} == {"run.created"}
    assert _feed(api, after=feed[-1]["id"]) == []
    bound = Api(make_token(name="bound", tenant=TENANT, agents=["nobody"]))
    assert _feed(bound) == []


@pytest.mark.requirement("R89")
def test_the_feed_waits_for_a_transaction_that_began_earlier(
    api: Api, process_env: dict[str, str]
) -> None:
    """An event that commits late must not appear before the end of a page that was given."""
    early, late = make_run(tenant=TENANT), make_run(tenant=TENANT)
    before = _feed(api)
    with psycopg.connect(process_env["DATABASE_URL"]) as conn:
        conn.execute("SELECT id FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [early.id])
        add_events(late)
        assert _feed(api, after=before[-1]["id"]) == []
        conn.rollback()
    add_events(early)
    follows = _feed(api, after=before[-1]["id"])
    assert [event["run"] for event in follows] == [f"run_{r.id.hex}" for r in (late, early)]


def test_a_cursor_that_is_too_old_or_unknown_is_gone(api: Api) -> None:
    run = make_run(tenant=TENANT)
    assert_problem(api.get("/events", after=f"evt_{run.id.hex}_9"), 410, "event_cursor_expired")
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE runs_event SET created_at = created_at - interval '31 days'")
        cursor.execute("SET session_replication_role = origin")
    assert_problem(api.get("/events", after=f"evt_{run.id.hex}_1"), 410, "event_cursor_expired")
    assert _feed(api) == []


# --- filters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [None, "CANCEL", "BUDGET"])
@pytest.mark.parametrize("action", [None, "AWAITING_APPROVAL", "NEEDS_HUMAN", "READY"])
def test_the_filter_by_status_says_what_the_run_says(stop: str | None, action: str | None) -> None:
    """The rule stands twice: for a row and for a query. They must not differ."""
    expected = {}
    for state in RunState:
        run = make_row(state, stop_reason=stop) if stop else make_row(state)
        facts = []
        if action and run.ended_at is None:
            row = make_action(run, action)
            facts = [ActionFact(row.id, ActionState(action), row.id if action[0] == "A" else None)]
        public = public_status(
            run_id=run.id,
            state=state,
            stop_reason=StopReason(run.stop_reason) if run.stop_reason else None,
            actions=facts,
        )
        expected[run.id] = public.status
    found = {
        run_id: status
        for status in STATUSES
        for run_id in Run.objects.filter(status_is(status)).values_list("id", flat=True)
    }
    assert found == expected


def test_the_other_filters(api: Api) -> None:
    first = make_run(tenant=TENANT, metadata={"order": "1", "shop": "a"}, dedupe_key="d1")
    waiting = make_waiting()
    ids = {first.id: f"run_{first.id.hex}", waiting.run.id: f"run_{waiting.run.id.hex}"}
    later = (database_clock() + timedelta(hours=1)).isoformat()

    def found(**query: str) -> list[str]:
        return [run["id"] for run in api.get("/runs", **query).json()["data"]]

    assert found(**{"metadata[order]": "1"}) == [ids[first.id]]
    assert found(**{"metadata[order]": "1", "metadata[shop]": "b"}) == []
    assert found(has="pending_approval") == [ids[waiting.run.id]]
    assert found(has="unknown") == []
    assert found(status="queued,requires_action") == [ids[waiting.run.id], ids[first.id]]
    assert found(dedupe_key="d1") == [ids[first.id]]
    assert found(agent="refund_desk,none") == [ids[waiting.run.id], ids[first.id]]
    assert found(created_at__gte=later) == []
    assert found(created_at__lt=later, limit="1") == [ids[waiting.run.id]]


def test_a_token_for_some_agents_sees_and_starts_no_others() -> None:
    waiting = make_waiting()
    bound = Api(make_token(name="bound", tenant=TENANT, agents=["refund_desk"]))
    other = Api(make_token(name="other", tenant=TENANT, agents=["another"]))
    paths = (
        f"/runs/run_{waiting.run.id.hex}",
        f"/actions/act_{waiting.action.id.hex}",
        f"/approvals/appr_{waiting.approval.id.hex}",
    )
    for path in paths:
        assert bound.get(path).status_code == 200
        assert_problem(other.get(path), 404, "not_found")
    for path in ("/runs", "/actions", "/approvals"):
        assert len(bound.get(path).json()["data"]) == 1
        assert other.get(path).json()["data"] == []
    body = {"agent": AGENT, "input": {"order_id": "A"}}
    assert_problem(bound.post("/runs", body), 403, "agent_forbidden")
    assert_problem(bound.get(f"/agents/{AGENT}"), 404, "not_found")
    assert [agent["name"] for agent in bound.get("/agents").json()["data"]] == ["refund_desk"]


# --- rate limits -----------------------------------------------------------------------------


def test_a_caller_that_asks_too_often_is_told_when_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = settings.AGENTCORE_OPTIONS.model_copy(
        update={"api_reads_a_minute": 3, "api_writes_a_minute": 1}
    )
    monkeypatch.setattr(settings, "AGENTCORE_OPTIONS", options)
    COUNTER.clear()
    api, other = Api(make_token(name="loop")), Api(make_token(name="calm"))
    for left in (2, 1, 0):
        answer = api.get("/runs")
        assert answer["RateLimit"].startswith(f'"reads";r={left};t=')
        assert answer["RateLimit-Policy"] == '"reads";q=3;w=60'
    refused = api.get("/runs")
    assert_problem(refused, 429, "rate_limited")
    assert 0 < int(refused["Retry-After"]) <= 61
    assert other.get("/runs").status_code == 200
    assert api.post_run().status_code == 201  # writes are counted apart
    assert_problem(api.post_run(), 429, "rate_limited")
    COUNTER.clear()
