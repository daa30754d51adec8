"""Limits of calls at once and in a minute: which apply, and how long one waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.throttle import MINUTE, Bucket, Limit, Use, buckets, held
from config.options import OptionsError, load_options

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def names(*limits: Limit, tenant: str = "acme", downstream: str = "payments") -> dict[str, Any]:
    found = buckets(limits=limits, tenant=tenant, downstream=downstream)
    return {bucket.name: bucket.concurrent for bucket in found}


@pytest.mark.requirement("R75")
def test_a_call_is_counted_for_its_tenant_its_downstream_both_and_all() -> None:
    limits = (
        Limit(concurrent=100),
        Limit(tenant="*", concurrent=9),
        Limit(downstream="payments", concurrent=4),
        Limit(tenant="*", downstream="*", concurrent=2),
    )
    assert names(*limits) == {
        "all": 100,
        "payments": 4,
        "tenant acme": 9,
        "tenant acme payments": 2,
    }
    assert names(*limits, downstream="mail") == {
        "all": 100,
        "tenant acme": 9,
        "tenant acme mail": 2,
    }


@pytest.mark.requirement("R75")
def test_the_most_exact_limit_of_a_kind_counts() -> None:
    limits = (Limit(tenant="*", concurrent=1), Limit(tenant="acme", concurrent=50))
    assert names(*limits) == {"tenant acme": 50}
    assert names(*reversed(limits)) == {"tenant acme": 50}
    assert names(*limits, tenant="other") == {"tenant other": 1}
    assert names() == {}


@pytest.mark.parametrize(
    "values", [{}, {"concurrent": 0}, {"per_minute": -1}, {"tenant": "", "concurrent": 1}]
)
def test_a_limit_that_lets_nothing_through_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limits"):
        Limit(**values)


def test_limits_come_from_the_environment_too() -> None:
    text = '[{"tenant": "*", "downstream": "model:gpt-5.2", "per_minute": 60}]'
    options = load_options(values={}, environment={"AGENTCORE_LIMITS": text})
    assert options.limits == (Limit(tenant="*", downstream="model:gpt-5.2", per_minute=60),)
    with pytest.raises(OptionsError, match="AGENTCORE_LIMITS"):
        load_options(values={}, environment={"AGENTCORE_LIMITS": '[{"per_hour": 1}]'})


@pytest.mark.requirement("R75")
def test_a_full_bucket_says_why_and_until_when_at_the_latest() -> None:
    bucket = Bucket("payments", 2, None)
    full = Use(in_flight=2, first_end=NOW + 3 * SECOND)
    waits = held(bucket=bucket, use=full, calls=1, now=NOW)
    assert waits is not None
    assert waits.reason == "limit: payments: 2 at once"
    assert waits.until == NOW + 3 * SECOND, "the call of a process that died is over then"
    one = Use(in_flight=1, first_end=NOW + 3 * SECOND)
    assert held(bucket=bucket, use=one, calls=1, now=NOW) is None
    assert held(bucket=bucket, use=one, calls=2, now=NOW) is not None


@pytest.mark.requirement("R75")
def test_the_more_wait_the_later_one_looks_again_by_itself() -> None:
    bucket, until = Bucket("payments", 2, None), []
    for waiting in (0, 2, 100, 10_000):
        use = Use(in_flight=2, first_end=NOW + 600 * SECOND, waiting=waiting)
        waits = held(bucket=bucket, use=use, calls=1, now=NOW)
        assert waits is not None
        until.append((waits.until - NOW).total_seconds())
    assert until == [5, 10, 255, 300]


@pytest.mark.requirement("R75")
def test_runs_that_wait_for_a_rate_come_back_one_after_the_other() -> None:
    bucket = Bucket("payments", None, 2)
    taken = [NOW - 50 * SECOND, NOW - 20 * SECOND]
    until = []
    for waiting in range(5):
        use = Use(taken=2, waiting=waiting, turn=taken[waiting % 2])
        waits = held(bucket=bucket, use=use, calls=1, now=NOW)
        assert waits is not None
        until.append((waits.until - NOW).total_seconds())
    assert until == [10, 40, 70, 100, 130]


@pytest.mark.requirement("R75")
@given(
    st.integers(1, 5),
    st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=60),
)
def test_no_sixty_seconds_ever_have_more_than_the_rate(rate: int, gaps: list[float]) -> None:
    """Whoever asks and whenever: what was let through keeps to the rate in every window."""
    bucket, now = Bucket("x", None, rate), NOW
    taken: list[datetime] = []
    for gap in gaps:
        now += timedelta(seconds=gap)
        recent = sum(at > now - MINUTE for at in taken)
        if held(bucket=bucket, use=Use(taken=recent), calls=1, now=now) is None:
            taken.append(now)
    for at in taken:
        assert sum(at <= other < at + MINUTE for other in taken) <= rate
