from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.lifecycle import ActionState
from agentcore.values import (
    Absent,
    Effect,
    Found,
    Inconclusive,
    Key,
    Natural,
    NoContract,
    OutcomeKind,
    Pending,
    Query,
)
from agentcore.verdicts import (
    PROBE_WAITS,
    RETENTION_MARGIN,
    Escalate,
    Resend,
    Succeed,
    Wait,
    join_attempts,
    resolve_probe,
)

O = OutcomeKind  # noqa: E741
S = ActionState
OUTCOMES = st.lists(st.sampled_from([*OutcomeKind, None]), min_size=1, max_size=6)
WRITES = st.sampled_from([Effect.WRITE, Effect.WRITE_IRREVERSIBLE])


@pytest.mark.parametrize(
    ("outcomes", "write", "read"),
    [
        ([O.SUCCESS], S.SUCCEEDED, S.SUCCEEDED),
        ([O.AMBIGUOUS, O.SUCCESS], S.SUCCEEDED, S.SUCCEEDED),
        ([O.SUCCESS, O.REFUSED], S.SUCCEEDED, S.SUCCEEDED),
        ([None, O.SUCCESS], S.SUCCEEDED, S.SUCCEEDED),
        ([O.PENDING], S.PENDING, S.FAILED),
        ([O.AMBIGUOUS, O.PENDING], S.PENDING, S.FAILED),
        ([O.NO_EFFECT], S.FAILED, S.FAILED),
        ([O.NO_EFFECT, O.REFUSED], S.FAILED, S.FAILED),
        ([O.REFUSED], S.FAILED, S.FAILED),
        ([O.AMBIGUOUS], S.UNKNOWN, S.FAILED),
        ([None], S.UNKNOWN, S.FAILED),
        ([O.AMBIGUOUS, O.REFUSED], S.UNKNOWN, S.FAILED),
        ([O.AMBIGUOUS, O.NO_EFFECT], S.UNKNOWN, S.FAILED),
        ([O.NO_EFFECT, None], S.UNKNOWN, S.FAILED),
    ],
)
def test_join(outcomes: Any, write: ActionState, read: ActionState) -> None:
    assert join_attempts(effect=Effect.WRITE, outcomes=outcomes) is write
    assert join_attempts(effect=Effect.WRITE_IRREVERSIBLE, outcomes=outcomes) is write
    assert join_attempts(effect=Effect.READ, outcomes=outcomes) is read


@pytest.mark.requirement("R116")
@given(WRITES, OUTCOMES)
def test_a_failed_write_has_no_attempt_that_may_have_worked(effect: Effect, outcomes: Any) -> None:
    if join_attempts(effect=effect, outcomes=outcomes) is S.FAILED:
        assert set(outcomes) <= {O.NO_EFFECT, O.REFUSED}


@given(st.sampled_from(Effect), OUTCOMES, st.randoms())
def test_the_join_does_not_depend_on_the_order(effect: Effect, outcomes: Any, random: Any) -> None:
    shuffled = random.sample(outcomes, len(outcomes))
    joined = join_attempts(effect=effect, outcomes=outcomes)
    assert join_attempts(effect=effect, outcomes=shuffled) is joined
    assert (joined is S.SUCCEEDED) == (O.SUCCESS in outcomes)


@given(OUTCOMES)
def test_a_read_is_never_left_open(outcomes: Any) -> None:
    assert join_attempts(effect=Effect.READ, outcomes=outcomes) in (S.SUCCEEDED, S.FAILED)


def test_no_attempts_no_outcome() -> None:
    with pytest.raises(ValueError, match="without attempts"):
        join_attempts(effect=Effect.WRITE, outcomes=[])


SENT = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key(retention=timedelta(days=1))


def resolve(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "contract": KEY,
        "verdict": Absent(),
        "first_sent_at": SENT,
        "now": SENT + timedelta(minutes=5),
        "attempts": 1,
        "max_attempts": 3,
        "stopping": False,
        "probes": 1,
    }
    return resolve_probe(**{**values, **changes})


CONTRACTS = [KEY, Natural(), Query(timedelta(seconds=5)), NoContract(), None]


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("stopping", [True, False])
def test_found_settles_it_whatever_the_contract(contract: Any, stopping: bool) -> None:
    late = SENT + timedelta(days=400)
    found = Found({"id": "rf_1"}, "rf_1")
    settled = resolve(
        contract=contract, verdict=found, stopping=stopping, now=late, attempts=9, probes=40
    )
    assert settled == Succeed({"id": "rf_1"}, "rf_1")
    conflict = Found({"id": "rf_1"}, fingerprint_matches=False)
    assert resolve(contract=contract, verdict=conflict, stopping=stopping) == Escalate("conflict")


@pytest.mark.parametrize("verdict", [Absent(), None])
def test_a_key_is_sent_again_inside_its_retention(verdict: Any) -> None:
    assert resolve(verdict=verdict) == Resend()


@pytest.mark.parametrize("verdict", [Absent(), None])
def test_the_retention_counts_from_the_first_send_less_a_margin(verdict: Any) -> None:
    edge = SENT + KEY.retention - RETENTION_MARGIN
    just_before = resolve(verdict=verdict, now=edge - timedelta(microseconds=1))
    assert just_before == Resend()
    assert resolve(verdict=verdict, now=edge) == Escalate("retention_over")
    short = Key(retention=timedelta(seconds=30))
    assert resolve(verdict=verdict, contract=short, now=SENT) == Escalate("retention_over")
    assert resolve(verdict=verdict, first_sent_at=None) == Escalate("first_send_unknown")


@pytest.mark.parametrize(("attempts", "expected"), [(2, Resend()), (3, Escalate("attempts_used"))])
def test_attempts_are_limited(attempts: int, expected: Any) -> None:
    assert resolve(attempts=attempts) == expected


def test_a_stopping_run_sends_nothing_again() -> None:
    assert resolve(stopping=True) == Escalate("stopping_absent")
    assert resolve(stopping=True, verdict=None) == Escalate("stopping_without_probe")
    assert resolve(stopping=True, verdict=Inconclusive()) == Wait(5.0)


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        (Natural(), "natural_contract"),
        (Query(timedelta(seconds=5)), "query_contract"),
        (NoContract(), "none_contract"),
        (None, "no_contract"),
    ],
)
def test_without_a_key_a_person_decides(contract: Any, reason: str) -> None:
    assert resolve(contract=contract) == Escalate(f"{reason}_absent")
    assert resolve(contract=contract, verdict=None) == Escalate(f"{reason}_without_probe")


@pytest.mark.parametrize("verdict", [Pending("settling"), Inconclusive("no reply")])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_an_open_answer_waits_longer_each_time(verdict: Any, contract: Any) -> None:
    waits = [resolve(verdict=verdict, contract=contract, probes=n) for n in range(8)]
    assert waits == [Wait(s) for s in (5.0, *PROBE_WAITS, 3600.0, 3600.0)]
