"""The rules about what people and downstreams may say, without a database or a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentcore.lifecycle import ACTION_OPEN, ACTION_TERMINAL, ActionState, action_pairs
from agentcore.reconciling import (
    Ground,
    Heard,
    Send,
    Word,
    absence_refusal,
    hear,
    in_flight,
    resend_refusal,
    settled_at,
)
from agentcore.values import Key, Natural, NoContract, OutcomeKind, Query

A = ActionState
NOW = datetime(2030, 1, 2, 12, 0, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


def sent(ago: timedelta = timedelta(hours=1), **facts: Any) -> Send:
    at = NOW - ago
    ended = {"outcome": OutcomeKind.AMBIGUOUS, "ended_at": at + 10 * SECOND}
    return Send(started_at=at, send_by=at + 5 * SECOND, **{**ended, **facts})


def lost(ago: timedelta = timedelta(hours=1)) -> Send:
    return sent(ago, outcome=None, ended_at=None, lost=True)


def flying(ago: timedelta = SECOND) -> Send:
    return sent(ago, outcome=None, ended_at=None)


@pytest.mark.parametrize(
    ("send", "flies"),
    [
        (sent(), False),
        (flying(DAY), True),
        (lost(5 * SECOND), True),
        (lost(6 * SECOND), False),
    ],
)
def test_what_may_still_arrive(send: Send, flies: bool) -> None:
    """A lost process sends until its time is over, a living one until its result is recorded."""
    assert in_flight([sent(), send], now=NOW) is flies


@pytest.mark.parametrize(
    ("sends", "contract", "expected"),
    [
        ([], Key(DAY), None),
        ([sent(ago=20 * SECOND)], Key(DAY), NOW - 10 * SECOND),
        ([sent(ago=20 * SECOND)], Query(settle=DAY), NOW - 10 * SECOND + DAY),
        ([lost(ago=20 * SECOND)], Key(DAY), NOW - 15 * SECOND + 7 * SECOND),
        ([lost(ago=20 * SECOND), sent(ago=DAY)], None, NOW - 8 * SECOND),
    ],
)
def test_from_when_absence_counts(sends: list[Send], contract: Any, expected: Any) -> None:
    assert settled_at(sends=sends, contract=contract, timeout=7.0) == expected


@pytest.mark.parametrize("ground", list(Ground))
def test_nobody_says_absent_while_a_request_flies(ground: Ground) -> None:
    for send in (flying(), lost(ago=SECOND)):
        said = absence_refusal(ground=ground, sends=[send], contract=None, timeout=1.0, now=NOW)
        assert "on its way" in said


def test_only_absence_waits_for_the_settle_window() -> None:
    facts: dict[str, Any] = {
        "sends": [sent()],
        "contract": Query(settle=DAY),
        "timeout": 1.0,
        "now": NOW,
    }
    assert "settle window" in absence_refusal(ground=Ground.ABSENT_AFTER_SETTLING, **facts)
    assert absence_refusal(ground=Ground.DOWNSTREAM_REFUSED, **facts) == ""
    later = {**facts, "now": NOW + DAY}
    assert absence_refusal(ground=Ground.ABSENT_AFTER_SETTLING, **later) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"contract": Natural(), "first_sent_at": None}, ""),
        ({"contract": Query(settle=DAY)}, ""),
        ({"contract": NoContract()}, "one attempt ever"),
        ({"contract": None}, "not registered"),
        ({"stopping": True}, "stopping"),
        ({"sends": [flying()]}, "on its way"),
        ({"first_sent_at": NOW - DAY + timedelta(minutes=1)}, "forgotten our key"),
        ({"first_sent_at": None}, "forgotten our key"),
    ],
)
def test_when_the_same_key_may_be_sent_again(changed: dict[str, Any], why: str) -> None:
    facts: dict[str, Any] = {
        "contract": Key(DAY),
        "first_sent_at": NOW - timedelta(hours=1),
        "sends": [sent()],
        "stopping": False,
        "now": NOW,
    }
    said = resend_refusal(**{**facts, **changed})
    assert (why in said) if why else said == ""


def heard(state: ActionState, word: Word, **changed: Any) -> Heard:
    facts: dict[str, Any] = {
        "reference": "",
        "known_reference": "",
        "conflict": False,
        "sends": [sent()],
        "fenced": True,
        "heard_at": NOW - SECOND,
        "now": NOW,
    }
    return hear(state=state, word=word, **{**facts, **changed})


@pytest.mark.parametrize("state", sorted(ACTION_OPEN))
def test_the_final_word_on_an_open_write(state: ActionState) -> None:
    assert heard(state, Word.SUCCEEDED) is Heard.SUCCEED
    assert heard(state, Word.SUCCEEDED, sends=[flying()]) is Heard.SUCCEED
    assert heard(state, Word.FAILED) is Heard.FAIL
    assert heard(state, Word.FAILED, sends=[flying()]) is Heard.WAIT
    assert heard(state, Word.SUCCEEDED, conflict=True) is Heard.EVIDENCE


@pytest.mark.parametrize("fenced", [True, False])
def test_not_done_frees_the_key_only_when_nothing_can_arrive(fenced: bool) -> None:
    one = {"sends": [lost()], "fenced": fenced}
    assert heard(A.UNKNOWN, Word.FAILED, **one) is Heard.FAIL, "its one request has arrived"
    two = {"sends": [sent(), lost()], "fenced": fenced}
    expected = Heard.FAIL if fenced else Heard.EVIDENCE
    assert heard(A.UNKNOWN, Word.FAILED, **two) is expected
    after = {"sends": [sent(ago=SECOND / 2)], "fenced": fenced}
    assert heard(A.UNKNOWN, Word.FAILED, **after) is Heard.EVIDENCE, "a later send"


@pytest.mark.parametrize(
    ("state", "word", "other", "expected"),
    [
        (A.SUCCEEDED, Word.SUCCEEDED, False, Heard.EVIDENCE),
        (A.SUCCEEDED, Word.SUCCEEDED, True, Heard.CONTRADICTION),
        (A.SUCCEEDED, Word.PENDING, False, Heard.EVIDENCE),
        (A.SUCCEEDED, Word.FAILED, False, Heard.CONTRADICTION),
        (A.FAILED, Word.FAILED, False, Heard.EVIDENCE),
        (A.FAILED, Word.PENDING, False, Heard.CONTRADICTION),
        (A.ABANDONED, Word.PENDING, False, Heard.EVIDENCE),
        (A.UNKNOWN, Word.SUCCEEDED, True, Heard.CONFLICT),
        (A.NEEDS_HUMAN, Word.SUCCEEDED, True, Heard.EVIDENCE),
        (A.UNKNOWN, Word.FAILED, True, Heard.EVIDENCE),
        (A.UNKNOWN, Word.PENDING, False, Heard.PEND),
        (A.RUNNING, Word.PENDING, False, Heard.EVIDENCE),
    ],
)
def test_what_else_a_word_leads_to(
    state: ActionState, word: Word, other: bool, expected: Heard
) -> None:
    references = {"reference": "rf_2", "known_reference": "rf_1"} if other else {}
    assert heard(state, word, **references) is expected


@pytest.mark.parametrize("state", sorted(ACTION_TERMINAL - {A.SUCCEEDED}))
def test_done_against_any_other_end_is_a_contradiction(state: ActionState) -> None:
    assert heard(state, Word.SUCCEEDED) is Heard.CONTRADICTION


def test_every_move_of_a_word_is_in_the_table() -> None:
    ends = {Heard.SUCCEED: A.SUCCEEDED, Heard.FAIL: A.FAILED, Heard.PEND: A.PENDING}
    for state in ACTION_OPEN:
        for word in Word:
            after = ends.get(heard(state, word))
            assert after is None or (state, after) in action_pairs()
        if heard(state, Word.SUCCEEDED, reference="b", known_reference="a") is Heard.CONFLICT:
            assert (state, A.NEEDS_HUMAN) in action_pairs()
