from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.lifecycle import ActionState
from agentcore.values import (
    Absent,
    Conflict,
    Effect,
    Found,
    Inconclusive,
    Key,
    Natural,
    NoContract,
    NotDone,
    OutcomeKind,
    Pending,
    Query,
)
from agentcore.verdicts import (
    PROBE_WAITS,
    RETENTION_MARGIN,
    Escalate,
    Fail,
    OpenWrite,
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
QUERY = Query(settle=timedelta(seconds=30))
CONTRACTS = [KEY, Natural(), QUERY, NoContract(), None]
MINUTE = timedelta(minutes=1)


def resolve(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "contract": KEY,
        "verdict": Absent(),
        "first_sent_at": SENT,
        "idle_at": SENT,
        "unsettled_since": SENT,
        "max_age": timedelta(days=3),
        "now": SENT + 5 * MINUTE,
        "sends": 1,
        "max_sends": 3,
        "probes": 1,
    }
    return resolve_probe(OpenWrite(**{**values, **changes}))


def settled(**changes: Any) -> Any:
    """A `Query` write of a fenced tool, found absent twice after its window."""
    absent = (SENT + MINUTE, SENT + 2 * MINUTE)
    return resolve(**{"contract": QUERY, "fenced": True, "absent_at": absent, **changes})


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("state", [S.UNKNOWN, S.PENDING])
@pytest.mark.parametrize("held", [{}, {"stopping": True}, {"suspended": True}])
def test_the_downstreams_word_settles_it_whatever_the_contract(
    contract: Any, state: ActionState, held: Any
) -> None:
    late = {"contract": contract, "state": state, "now": SENT + timedelta(days=400), **held}
    found = Found({"id": "rf_1"}, "rf_1")
    assert resolve(verdict=found, sends=9, probes=40, **late) == Succeed({"id": "rf_1"}, "rf_1")
    other = Found({"id": "rf_1"}, fingerprint_matches=False)
    assert resolve(verdict=other, **late) == Escalate("conflict")
    assert resolve(verdict=Conflict("more"), **late) == Escalate("conflict")
    assert resolve(verdict=NotDone("no"), **late) == Fail("not_done_downstream", "no")


def test_a_final_no_waits_while_something_of_ours_may_be_under_way() -> None:
    early = {"verdict": NotDone("no"), "idle_at": SENT + 10 * MINUTE}
    assert resolve(**early) == Wait(5.0)
    assert isinstance(resolve(**early, now=SENT + 10 * MINUTE), Fail)


@pytest.mark.parametrize("verdict", [Absent(), None])
def test_a_key_is_sent_again_inside_its_retention(verdict: Any) -> None:
    assert resolve(verdict=verdict) == Resend()


@pytest.mark.parametrize("verdict", [Absent(), None])
def test_the_retention_counts_from_the_first_send_less_a_margin(verdict: Any) -> None:
    edge = SENT + KEY.retention - RETENTION_MARGIN
    just_before = resolve(verdict=verdict, now=edge - timedelta(microseconds=1))
    assert just_before == Resend()
    after = resolve(verdict=verdict, now=edge)
    assert after == Escalate("retention_over") if verdict is None else isinstance(after, Wait)
    assert resolve(verdict=verdict, first_sent_at=None) == Escalate("first_send_unknown")


def test_after_its_retention_a_key_write_is_one_that_can_only_be_looked_up() -> None:
    at = SENT + KEY.retention
    absent = (at, at + MINUTE)
    later = {"now": at + 2 * MINUTE, "absent_at": absent}
    assert resolve(**later) == Escalate("absent_not_fenced")
    assert resolve(**later, fenced=True) == Resend()
    assert resolve(**later, fenced=True, sends=3) == Escalate("attempts_used")
    assert isinstance(resolve(**{**later, "absent_at": absent[:1]}, fenced=True), Wait)


@pytest.mark.parametrize("contract", [KEY, Natural()])
@pytest.mark.parametrize(("sends", "expected"), [(2, Resend()), (3, Escalate("attempts_used"))])
def test_attempts_are_limited(contract: Any, sends: int, expected: Any) -> None:
    assert resolve(contract=contract, sends=sends) == expected


def test_a_query_gets_one_new_attempt() -> None:
    assert settled() == Resend()
    assert settled(sends=2, max_sends=9) == Escalate("attempts_used")


@pytest.mark.parametrize("contract", [KEY, Natural()])
def test_a_stopping_run_sends_nothing_again(contract: Any) -> None:
    """And an absence that no window bounds is no proof: a person says so, not the run."""
    assert resolve(contract=contract, stopping=True) == Escalate("stopping_absent")
    without = resolve(contract=contract, stopping=True, verdict=None)
    assert without == Escalate("stopping_without_probe")
    assert resolve(contract=contract, stopping=True, verdict=Inconclusive()) == Wait(5.0)


def test_a_stopping_run_ends_in_failed_only_by_proven_absence() -> None:
    assert isinstance(settled(stopping=True), Fail)
    assert settled(stopping=True, fenced=False) == Escalate("absent_not_fenced")
    assert isinstance(settled(stopping=True, absent_at=(SENT + MINUTE,)), Wait)
    assert isinstance(settled(stopping=True, absent_at=(SENT, SENT + MINUTE)), Wait)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_suspended_run_only_looks(contract: Any) -> None:
    assert resolve(contract=contract, suspended=True) == Wait(5.0)
    assert settled(suspended=True, contract=contract) == Wait(5.0)


@pytest.mark.requirement("R116")
def test_a_refusal_after_an_ambiguous_send_stops_the_sending() -> None:
    assert resolve(last_refused=True) == Escalate("refused_after_ambiguous")
    natural = resolve(contract=Natural(), verdict=None, last_refused=True)
    assert natural == Escalate("precondition_failed")
    assert isinstance(settled(last_refused=True, sends=2), Fail)


@pytest.mark.parametrize(("contract", "reason"), [(NoContract(), "none_contract"), (None, "no")])
def test_without_a_contract_a_person_decides(contract: Any, reason: str) -> None:
    reason = "no_contract" if contract is None else reason
    assert resolve(contract=contract) == Escalate(f"{reason}_absent")
    assert resolve(contract=contract, verdict=None) == Escalate(f"{reason}_without_probe")


@pytest.mark.parametrize("verdict", [Pending("settling"), Inconclusive("no reply")])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_an_open_answer_waits_longer_each_time(verdict: Any, contract: Any) -> None:
    waits = [resolve(verdict=verdict, contract=contract, probes=n) for n in range(8)]
    assert waits == [Wait(s) for s in (5.0, *PROBE_WAITS, 3600.0, 3600.0)]
    assert resolve(verdict=verdict, contract=contract, probes=9, waits=(1.0, 2.0)) == Wait(2.0)


def test_absent_is_no_answer_about_what_was_accepted() -> None:
    assert resolve(state=S.PENDING) == Wait(5.0)
    assert settled(state=S.PENDING, stopping=True) == Wait(5.0)


VERDICTS = st.sampled_from([Absent(), Inconclusive(), Pending(), None])
TIMES = st.integers(0, 300).map(lambda s: SENT + timedelta(seconds=s))


FACTS = st.fixed_dictionaries(
    {
        "contract": st.sampled_from(CONTRACTS),
        "verdict": VERDICTS,
        "absent_at": st.lists(TIMES, max_size=6).map(sorted),
        "state": st.sampled_from([S.UNKNOWN, S.PENDING]),
        "fenced": st.booleans(),
        "stopping": st.booleans(),
        "last_refused": st.booleans(),
    }
)


@pytest.mark.requirement("R49")
@given(FACTS, st.integers(0, 10**6))
def test_age_never_fails_a_write_and_nothing_is_sent_that_must_not_be(
    facts: dict[str, Any], age: int
) -> None:
    said = resolve(**facts, now=SENT + timedelta(seconds=300 + age))
    contract, absent = facts["contract"], facts["absent_at"]
    if isinstance(said, Fail):
        assert (facts["state"], facts["fenced"]) == (S.UNKNOWN, True)
        assert isinstance(facts["verdict"], Absent)
        settle = contract.settle if isinstance(contract, Query) else contract.retention
        counted = [at for at in absent if at >= SENT + settle]
        assert max(counted) - min(counted) >= min(settle, MINUTE)
    if isinstance(said, Resend):
        assert (facts["state"], facts["stopping"]) == (S.UNKNOWN, False)
        assert isinstance(contract, Key | Natural) or facts["fenced"]
    if age >= timedelta(days=3).total_seconds():
        assert said == Escalate("too_old")
