"""Limits of one run: what a request may lower, how they are shown, and which one ended a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentcore.budgets import Budget
from runs.agents import agent
from runs.models import Run
from runs.selectors import database_clock
from tests.factories import force_state
from tests.runs.api_support import AGENT, Api, assert_problem

pytestmark = pytest.mark.django_db(transaction=True)
THRIFTY = "api_thrifty"


@pytest.fixture(autouse=True)
def _thrifty() -> None:
    budget = Budget(turns=6, actions=4, wall=timedelta(minutes=9), tokens=50_000, cost="0.50 USD")
    agent(name=THRIFTY, version="1", model="gpt-5-mini", instructions="A", tools=[], budget=budget)


def _post(api: Api, name: str, **budget: Any) -> Any:
    body = {"agent": name, "input": {"order_id": "A"}, "budget": budget}
    return api.post("/runs", body)


def test_a_request_may_lower_tokens_and_money(api: Api) -> None:
    lower = _post(api, THRIFTY, max_tokens=9000, max_cost="0.125 USD").json()
    limits = lower["budget"]["limits"]
    assert (limits["max_tokens"], limits["max_cost"]) == (9000, "0.125000 USD")
    assert lower["budget"]["used"] == {
        "turns": 0, "actions": 0, "tokens": 0, "cost": "0.000000 USD",
    }  # fmt: skip
    row = Run.objects.get(id=lower["id"].removeprefix("run_"))
    assert (row.max_tokens, row.max_cost) == (9000, 125_000)
    as_declared = _post(api, THRIFTY).json()["budget"]["limits"]
    assert (as_declared["max_tokens"], as_declared["max_cost"]) == (50_000, "0.500000 USD")
    without = _post(api, AGENT).json()["budget"]["limits"]
    assert (without["max_tokens"], without["max_cost"]) == (None, None)
    added = _post(api, AGENT, max_tokens=2000).json()["budget"]["limits"]
    assert added["max_tokens"] == 2000


@pytest.mark.parametrize(
    ("budget", "pointer"),
    [
        ({"max_tokens": 50_001}, "/budget/max_tokens"),
        ({"max_tokens": 999}, "/budget/max_tokens"),
        ({"max_cost": "0.500001 USD"}, "/budget/max_cost"),
        ({"max_cost": "0.5"}, "/budget/max_cost"),
        ({"max_cost": "0.50 EUR"}, "/budget/max_cost"),
    ],
)
def test_a_limit_that_rises_or_is_no_amount_is_refused(
    api: Api, budget: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(_post(api, THRIFTY, **budget), 422, "invalid_input")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert not Run.objects.exists()


def test_money_cannot_be_limited_where_the_model_has_no_price(api: Api) -> None:
    problem = assert_problem(_post(api, AGENT, max_cost="1 USD"), 422, "invalid_input")
    assert problem["errors"][0]["code"] == "no_price"


def test_a_resume_may_raise_them(api: Api) -> None:
    run = _post(api, THRIFTY).json()
    api.post(f"/runs/{run['id']}/pause")
    more = {"max_tokens": 90_000, "max_cost": "2 USD", "max_failures": 3}
    limits = api.post(f"/runs/{run['id']}/resume", {"budget": more}).json()["budget"]["limits"]
    assert (limits["max_tokens"], limits["max_cost"]) == (90_000, "2.000000 USD")
    assert Run.objects.get().max_failures == 3


@pytest.mark.parametrize(
    ("used", "word"),
    [
        ({"tokens_used": 49_000, "cost_used": 1000}, "budget_tokens"),
        ({"tokens_used": 9000, "cost_used": 490_000}, "budget_cost"),
        ({"turn": 6, "tokens_used": 9000}, "max_turns"),
        ({"actions_used": 5}, "max_actions"),
    ],
)
def test_an_incomplete_run_names_the_limit(api: Api, used: dict[str, int], word: str) -> None:
    found = _post(api, THRIFTY).json()
    row = Run.objects.get(id=found["id"].removeprefix("run_"))
    force_state(row, state="INCOMPLETE", stop_reason="BUDGET", ended_at=database_clock(), **used)
    body = api.get(f"/runs/{found['id']}").json()
    assert body["incomplete_details"] == {"reason": word}
