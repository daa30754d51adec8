"""Budgets, completion and waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentcore.budgets import Budget
from agentcore.completion import Complete, Missing, NotMet, check
from agentcore.retries import backoff


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": 0},
        {"turns": 1.5},
        {"turns": True},
        {"turns": 10_001},
        {"actions": -1},
        {"wall": timedelta(0)},
        {"wall": 30},
        {"parallel": 0},
    ],
)
def test_an_impossible_budget_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget(**fields)
    assert Budget(actions=0).actions == 0


class Summary(BaseModel):
    refunded: bool
    order: str
    rate: float = 0.0


def judge(text: str, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "output_model": Summary,
        "open_actions": 0,
        "failed_postconditions": (),
    }
    return check(text=text, **{**values, **changes})


GOOD = '{"refunded": true, "order": "ord_1"}'


@pytest.mark.requirement("R76")
def test_a_fitting_answer_completes() -> None:
    expected = {"refunded": True, "order": "ord_1", "rate": 0.0}
    assert judge(GOOD) == Complete(expected)
    assert judge("Done.", output_model=None) == Complete({"text": "Done."})


@pytest.mark.requirement("R76")
@pytest.mark.parametrize(
    "text",
    [
        "Done! I refunded it.",
        '{"refunded": true}',
        '{"refunded": true, "order": ',
        "[]",
        "",
        '{"refunded": true, "order": "a\\u0000b"}',
        '{"refunded": true, "order": "a", "rate": 1e999}',
    ],
)
def test_another_answer_does_not(text: str) -> None:
    found = judge(text)
    assert isinstance(found, Missing)
    assert found.reason


def test_the_reason_names_the_field_and_not_the_value() -> None:
    found = judge('{"refunded": "s3cret"}')
    assert "order" in found.reason
    assert "refunded" in found.reason
    assert "s3cret" not in found.reason


@pytest.mark.requirement("R76")
def test_a_good_text_does_not_cover_open_or_unverified_work() -> None:
    assert isinstance(judge(GOOD, open_actions=1), Missing)
    found = judge(GOOD, failed_postconditions=("desk.refund",))
    assert found == NotMet("not verified: desk.refund")
    assert isinstance(judge("", output_model=None), Missing)


@given(st.integers(1, 10**6), st.floats(0, 1), st.none() | st.floats(0, 1000))
def test_waits_stay_in_bounds(n: int, jitter: float, at_least: float | None) -> None:
    wait = backoff(n=n, base=0.5, cap=60, jitter=jitter, at_least=at_least)
    assert wait >= max(0.25, at_least or 0)
    assert wait <= max(60, (at_least or 0) + 0.5)


def test_waits_double_up_to_the_cap_and_spread_with_the_jitter() -> None:
    waits = [backoff(n=n, base=1, cap=10, jitter=1) for n in range(1, 7)]
    assert waits == [1, 2, 4, 8, 10, 10]
    assert backoff(n=3, base=1, cap=10, jitter=0) == 2
    asked = {backoff(n=1, base=1, cap=10, jitter=j, at_least=120) for j in (0.1, 0.5, 0.9)}
    assert min(asked) >= 120
    assert len(asked) == 3  # runs told the same time do not come back together


@pytest.mark.parametrize("bad", [{"n": 0}, {"base": 0}, {"cap": 0.1}, {"jitter": 1.1}])
def test_a_senseless_wait_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="backoff"):
        backoff(**{"n": 1, "base": 1, "cap": 10, "jitter": 0, **bad})
