"""Termination conditions: each alone, combined, and with a memory of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.lifecycle import StopReason
from agentcore.progress import FlipFlop, NoNewFact, NoProgress, SameCall, SameError
from agentcore.termination import (
    Call,
    Condition,
    Deadline,
    Hard,
    MaxActions,
    MaxCost,
    MaxFailures,
    MaxInvalidCalls,
    MaxTokens,
    MaxToolCalls,
    MaxTurns,
    Step,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def steps(*turns: list[Call], **fields: Any) -> list[Step]:
    return [Step(turn=n, calls=tuple(calls), **fields) for n, calls in enumerate(turns, 1)]


def read(name: str = "a", seen: str = "", **fields: Any) -> Call:
    return Call(tool="desk.read", params=name, observed=seen or f"seen {name}", **fields)


def write(name: str, **fields: Any) -> Call:
    values = {"write": True, "effective": True, "observed": f"done {name}"}
    return Call(tool="desk.write", params=name, **{**values, **fields})


def stopped_at(condition: Condition, turns: list[Step]) -> int | None:
    """The turn after which the condition stops, None when it never does."""
    return next((step.turn for step in turns if condition.feed(step)), None)


def new(count: int) -> list[list[Call]]:
    return [[read(str(n))] for n in range(count)]


@pytest.mark.requirement("R67", "R74")
@pytest.mark.parametrize(
    ("condition", "turns", "at"),
    [
        (MaxTurns(3), steps(*new(5)), 3),
        (MaxTurns(6), steps(*new(5)), None),
        (MaxActions(2), steps([read("a"), read("b")], [read("c")]), 2),
        (MaxActions(3), steps([read("a"), read("b")], [read("c")]), None),
        (MaxFailures(1), steps([read(error="x")], [read(error="y")]), 2),
        (MaxFailures(2), steps([read(error="x")], [read(error="y")]), None),
        (MaxToolCalls("desk.read", 1), steps([read("a")], [write("w")], [read("b")]), 3),
        (MaxToolCalls("desk.other", 0), steps([read("a")]), None),
        (MaxInvalidCalls(2), steps([read(invalid=True)], [read()], [read(invalid=True)]), None),
        (MaxInvalidCalls(2), steps([read(invalid=True)], [read(invalid=True)]), 2),
        (MaxTokens(100), [Step(1, tokens=99), Step(2, tokens=100)], 2),
        (MaxCost(100), [Step(1, cost=99), Step(2, cost=100)], 2),
        (Deadline(NOW), [Step(1, at=NOW - timedelta(seconds=1)), Step(2, at=NOW)], 2),
    ],
)
def test_a_hard_limit_alone(condition: Condition, turns: list[Step], at: int | None) -> None:
    assert stopped_at(condition, turns) == at


def test_an_invalid_call_is_the_models_failure_and_the_others_are_a_budget() -> None:
    broken = MaxInvalidCalls(1).run(steps([read(invalid=True)]))
    assert broken is not None
    assert broken.reason is StopReason.MODEL_ERROR
    spent = MaxTurns(1).run(steps([read()]))
    assert spent is not None
    assert spent.reason is StopReason.BUDGET
    assert spent.detail == "1 turns used, 1 are allowed"


@pytest.mark.requirement("R74")
def test_or_stops_with_the_first_and_and_with_the_last() -> None:
    turns = steps(*new(6))
    assert stopped_at(MaxTurns(2) | MaxTurns(4), turns) == 2
    assert stopped_at(MaxTurns(2) & MaxTurns(4), turns) == 4
    assert stopped_at((MaxTurns(2) | MaxTurns(5)) & MaxTurns(3), turns) == 3
    both = (MaxTurns(2) & MaxActions(2)).run(turns)
    assert both is not None
    assert both.detail == "2 turns used, 2 are allowed; 3 actions proposed, 2 are allowed"


@pytest.mark.requirement("R74")
def test_a_condition_remembers_that_it_stopped() -> None:
    condition = SameError(2) & MaxTurns(4)
    turns = steps([read(error="x")], [read(error="x")], [read()], [read()])
    assert [bool(condition.feed(step)) for step in turns] == [False, False, False, True]
    assert condition.stopped is not None


@pytest.mark.requirement("R72")
@pytest.mark.parametrize(
    ("turns", "at"),
    [
        (steps([read()], [read()], [read()]), 3),
        (steps([read()], [read("b")], [read()], [read("c")], [read()]), 5),
        (steps([read()], [read()], [write("w")], [read()], [read()]), None),
        (steps([write("w")], [read()], [write("w")], [read("b")], [write("w")]), 5),
        (steps([read(), read()], [read(), read()]), None),
        (steps([read(seen="1")], [read(seen="2")], [read(seen="3")]), 3),
        (steps(*[[read(polling=True)]] * 9), None),
    ],
    ids=[
        "in_a_row",
        "between_others",
        "after_an_effect",
        "a_write",
        "one_turn",
        "another_answer",
        "polling",
    ],
)
def test_the_same_call_may_be_repeated_twice(turns: list[Step], at: int | None) -> None:
    assert stopped_at(SameCall(2), turns) == at


@pytest.mark.requirement("R72")
@pytest.mark.parametrize(
    ("turns", "at"),
    [
        (steps([read("a")], [read("b")], [read("a")], [read("b")]), 4),
        (steps([write("on")], [write("off")], [write("on")], [write("off")]), 4),
        (steps([read("a")], [read("b", "1")], [read("a")], [read("b", "2")]), None),
        (steps([read("a")], [read("b")], [read("c")], [read("a")], [read("b")]), None),
        (steps([read("a")], [read("a")], [read("a")], [read("a")]), None),
        (steps(*[[read("a", polling=True)], [read("b")]] * 3), None),
    ],
)
def test_back_and_forth(turns: list[Step], at: int | None) -> None:
    assert stopped_at(FlipFlop(), turns) == at


@pytest.mark.requirement("R72")
def test_the_same_error_whatever_the_arguments() -> None:
    turns = steps([read("a", error="E")], [read("b", error="E")], [read("c", error="E")])
    assert stopped_at(SameError(3), turns) == 3
    waiting = steps(*[[read(str(n), error="transient:timeout", retryable=True)] for n in range(9)])
    assert stopped_at(SameError(3), waiting) is None
    healed = steps([read(error="E")], [read(error="E")], [read()], [read(error="E")])
    assert stopped_at(SameError(3), healed) is None


@pytest.mark.requirement("R72", "R73")
def test_turns_without_a_new_fact() -> None:
    known = [read(str(n), "the same") for n in range(4)]
    assert stopped_at(NoNewFact(3), steps(*[[call] for call in known])) == 4
    assert stopped_at(NoNewFact(3), steps([], [], [])) == 3
    assert stopped_at(NoNewFact(3), steps(*[[call, write("w")] for call in known])) is None
    assert stopped_at(NoNewFact(3), steps(*[[read("p", "p", polling=True)]] * 9)) is None
    failing = steps(*[[read(str(n), error="E")] for n in range(3)])
    assert stopped_at(NoNewFact(3), failing) == 3


def test_work_that_goes_on_is_never_cut() -> None:
    turns = steps(*new(60))
    assert NoProgress().condition().run(turns) is None
    assert Hard(turns=61, actions=60).condition().run(turns) is None


CALLS = st.builds(
    Call,
    tool=st.sampled_from(["a", "b"]),
    params=st.sampled_from(["1", "2"]),
    observed=st.sampled_from(["x", "y"]),
    error=st.sampled_from(["", "E"]),
    write=st.booleans(),
    effective=st.booleans(),
    polling=st.booleans(),
)


@pytest.mark.requirement("R74")
@given(st.lists(st.lists(CALLS, max_size=2), max_size=12))
def test_shown_again_from_the_beginning_it_says_the_same(turns: list[list[Call]]) -> None:
    def condition() -> Condition:
        return NoProgress().condition() | (MaxTurns(9) & MaxFailures(2))

    shown = steps(*turns)
    one = condition()
    for step in shown:
        one.feed(step)
    assert one.stopped == condition().run(shown)


@given(st.lists(st.lists(CALLS, max_size=2), max_size=12))
def test_polling_counts_nowhere(turns: list[list[Call]]) -> None:
    from dataclasses import replace

    polled = [[replace(call, polling=True) for call in calls] or [read()] for calls in turns]
    quiet = [calls for calls in polled if all(call.polling for call in calls)]
    assert NoProgress().condition().run(steps(*quiet)) is None
