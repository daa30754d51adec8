"""What a request may say of a run's time and its place, and what a retry takes over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import current_app
from django.conf import settings

from agentcore.budgets import Budget
from runs import agents, dispatch, sweeps, worker
from runs.agents import agent
from runs.api import auth
from runs.models import Run
from runs.selectors import database_clock
from tests.api import check
from tests.factories import force_state
from tests.runs.api_support import AGENT, Api, assert_problem

pytestmark = pytest.mark.django_db(transaction=True)


def _post(api: Api, **more: Any) -> Any:
    return api.post("/runs", {"agent": AGENT, "input": {"order_id": "A"}, **more})


def _row(body: dict[str, Any]) -> Run:
    return Run.objects.get(id=body["id"].removeprefix("run_"))


def _span(run: Run) -> timedelta:
    return run.deadline_at - run.created_at


def test_the_check_of_the_api_has_every_scope() -> None:
    assert set(auth.SCOPES) <= set(check.SCOPES)


# --- ttl_seconds ------------------------------------------------------------------------------


def test_the_time_to_live_is_the_deadline_counted_from_the_request(api: Api) -> None:
    assert _span(_row(_post(api).json())) == timedelta(minutes=10)
    assert _span(_row(_post(api, ttl_seconds=600).json())) == timedelta(minutes=10)
    assert _span(_row(_post(api, ttl_seconds=90).json())) == timedelta(seconds=90)


def test_of_two_deadlines_the_earlier_one_counts(api: Api) -> None:
    at = (database_clock() + timedelta(minutes=5)).isoformat()
    first = _row(_post(api, ttl_seconds=60, budget={"deadline_at": at}).json())
    second = _row(_post(api, ttl_seconds=540, budget={"deadline_at": at}).json())
    assert _span(first) == timedelta(seconds=60)
    assert second.deadline_at.isoformat() == at


@pytest.mark.parametrize("value", [601, 0, -5, 1.5, "60", True])
def test_a_time_to_live_may_only_lower(api: Api, value: Any) -> None:
    problem = assert_problem(_post(api, ttl_seconds=value), 422, "invalid_input")
    assert [error["pointer"] for error in problem["errors"]] == ["/ttl_seconds"]
    assert not Run.objects.exists()


def test_a_run_that_would_begin_after_it_is_refused(api: Api) -> None:
    late = (database_clock() + timedelta(minutes=2)).isoformat()
    problem = assert_problem(_post(api, ttl_seconds=60, start_at=late), 422, "invalid_input")
    assert problem["errors"][0]["pointer"] == "/start_at"


# --- priority ---------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    """The session's broker with no message in it."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    prefix = os.environ["AGENTCORE_BROKER_PREFIX"]

    def clear() -> None:
        dispatch.drain()
        keys = list(client.scan_iter(f"{prefix}*"))
        if keys:
            client.delete(*keys)

    clear()
    dispatch._paused_until = 0.0
    yield client
    clear()
    client.close()
    worker.stop()
    worker._current = None


def _taken() -> list[UUID]:
    """The runs of the messages in the order in which a worker is given them."""
    dispatch.drain()
    found = []
    with current_app.connection_for_read() as conn, conn.channel() as channel:
        while (message := channel.basic_get("compile", no_ack=True)) is not None:
            found.append(UUID(message.decode()[0][0][0]))
    return found


@pytest.mark.usefixtures("broker")
def test_new_runs_begin_by_priority_after_runs_that_have_begun(api: Api) -> None:
    made = {word: _post(api, priority=word).json() for word in ("low", "normal", "high")}
    made["unsaid"] = _post(api).json()
    assert [body["priority"] for body in made.values()] == ["low", "normal", "high", "normal"]
    begun = _row(_post(api, priority="low").json())
    force_state(begun, state="COMPILING_CONTEXT")
    assert _taken()[:3] == [_row(made[word]).id for word in ("high", "normal", "unsaid")]
    for word in ("low", "normal", "high"):
        dispatch.hint_on_commit(_row(made[word]))
    dispatch.hint_on_commit(begun)
    order = [begun, *(_row(made[word]) for word in ("high", "normal", "low"))]
    assert _taken() == [run.id for run in order]


@pytest.mark.usefixtures("broker")
def test_the_sweep_keeps_the_order(api: Api) -> None:
    made = [_row(_post(api, priority=word).json()) for word in ("low", "normal", "high")]
    _taken()
    for run in made:
        force_state(run, hinted_at=None)
    assert sweeps.sweep_once().hinted == 3
    assert _taken() == [run.id for run in reversed(made)]


def test_another_word_is_no_priority(api: Api) -> None:
    problem = assert_problem(_post(api, priority="urgent"), 422, "invalid_input")
    assert problem["errors"][0]["pointer"] == "/priority"


# --- what a retry takes over ------------------------------------------------------------------


def _retried(api: Api, body: dict[str, Any], **columns: Any) -> dict[str, Any]:
    run = _row(body)
    force_state(
        run, state="FAILED", stop_reason="MODEL_ERROR", ended_at=database_clock(), **columns
    )
    answer = api.post(f"/runs/{body['id']}/retry")
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def _declare(**limits: Any) -> None:
    """The agent as a new release declares it."""
    agents._AGENTS.pop("api_newer", None)
    wall = timedelta(minutes=limits.pop("minutes", 9))
    budget = Budget(**{"turns": 6, "actions": 4, "tokens": 50_000, **limits}, wall=wall)
    agent(name="api_newer", version="1", model="m", instructions="A", tools=[], budget=budget)


def test_a_retry_has_the_lowered_limits_the_priority_and_stays_dry(api: Api) -> None:
    budget = {"max_turns": 3, "max_actions": 2, "max_tokens": 9000}
    more = {"budget": budget, "ttl_seconds": 120, "priority": "low", "dry_run": True}
    first = _post(api, **more).json()
    again = _retried(api, first)
    limits = again["budget"]["limits"]
    assert {name: limits[name] for name in budget} == budget
    assert (again["priority"], again["dry_run"]) == ("low", True)
    assert _span(_row(again)) == timedelta(seconds=120)


def test_what_was_not_lowered_is_that_of_the_agent_now(api: Api) -> None:
    _declare()
    first = _post(api, agent="api_newer", budget={"max_turns": 5}).json()
    _declare(turns=4, actions=9, tokens=70_000, minutes=5)
    again = _retried(api, first, max_actions=90)  # a resume had raised it
    limits = again["budget"]["limits"]
    assert (limits["max_turns"], limits["max_actions"], limits["max_tokens"]) == (4, 9, 70_000)
    assert _span(_row(again)) == timedelta(minutes=5)
    assert (again["priority"], again["dry_run"]) == ("normal", False)
