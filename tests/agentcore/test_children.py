"""What a child is given and what it came to, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.children import (
    Powers,
    Share,
    Slice,
    TooLittle,
    deadline_of,
    effects_in,
    result_of,
    slice_of,
)
from agentcore.lifecycle import RunState
from agentcore.values import Effect

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEFT = Share(turns=9, actions=10, handoffs=4, tokens=9000, cost=900)
OWN = Share(turns=20, actions=20, handoffs=None, tokens=None, cost=None)


def _slice(**changes: Any) -> Slice | TooLittle:
    values: dict[str, Any] = {"left": LEFT, "own": OWN, "asked": Share(), "waiting": 1}
    return slice_of(**{**values, **changes})


def test_alone_it_gets_all_but_what_its_parent_needs_to_answer() -> None:
    assert _slice() == Slice(turns=8, actions=10, handoffs=3, tokens=4500, cost=450)


def test_several_get_even_parts() -> None:
    assert _slice(waiting=2) == Slice(turns=4, actions=5, handoffs=1, tokens=3000, cost=300)


def test_what_is_asked_for_is_given_as_far_as_it_goes() -> None:
    asked = Share(turns=3, actions=99, handoffs=0, tokens=2000, cost=1)
    assert _slice(asked=asked, waiting=5) == Slice(3, 10, 0, 2000, 1)


def test_the_budget_of_its_own_agent_is_a_limit_too() -> None:
    own = Share(turns=2, actions=1, handoffs=0, tokens=1500, cost=None)
    assert _slice(own=own) == Slice(2, 1, 0, 1500, 450)


def test_without_limits_there_is_none() -> None:
    left = Share(turns=5, actions=5)
    assert _slice(left=left) == Slice(4, 5, None, None, None)


@pytest.mark.parametrize(
    ("left", "word"),
    [
        (Share(turns=1, actions=5), "turns"),
        (Share(turns=5, actions=5, handoffs=0), "no further agent"),
        (Share(turns=5, actions=5, tokens=1999), "tokens"),
        (Share(turns=5, actions=5, cost=1), "micro-dollars"),
    ],
)
def test_too_little_is_said(left: Share, word: str) -> None:
    found = _slice(left=left)
    assert isinstance(found, TooLittle)
    assert word in found.detail


amounts = st.integers(0, 40)
limits = st.none() | amounts
shares = st.builds(
    Share,
    turns=amounts,
    actions=amounts,
    handoffs=limits,
    tokens=st.none() | st.integers(0, 90_000),
    cost=limits,
)
wishes = st.builds(
    Share, turns=limits, actions=limits, handoffs=limits, tokens=st.none() | amounts, cost=limits
)


@pytest.mark.requirement("R69")
@given(left=shares, own=shares, asked=wishes, count=st.integers(1, 5))
def test_children_together_never_have_more_than_is_left(
    left: Share, own: Share, asked: Share, count: int
) -> None:
    rest = {name: getattr(left, name) for name in Share.__slots__}
    for waiting in range(count, 0, -1):
        given_now = slice_of(left=Share(**rest), own=own, asked=asked, waiting=waiting)
        if isinstance(given_now, TooLittle):
            continue
        for name, amount in rest.items():
            taken = getattr(given_now, name) or 0
            if amount is not None:
                rest[name] = amount - taken - (name == "handoffs")
                assert rest[name] >= 0
        assert rest["turns"] >= 1, "a turn to say what came of it"


def test_powers_are_compared_with_what_was_handed_down() -> None:
    reads = Powers(frozenset({"a"}), Effect.READ)
    pays = Powers(frozenset({"a", "b"}), Effect.WRITE)
    assert reads.beyond(pays) == ""
    assert pays.beyond(reads) == "the scope b, the effect WRITE"
    assert (reads | pays) == pays
    final = Powers(frozenset(), Effect.WRITE_IRREVERSIBLE)
    assert final.beyond(pays) == "the effect WRITE_IRREVERSIBLE"


def test_its_time_ends_with_its_parents_at_the_latest() -> None:
    hour = timedelta(hours=1)
    assert deadline_of(parent=NOW + hour, now=NOW, wall=2 * hour) == NOW + hour
    assert deadline_of(parent=NOW + 2 * hour, now=NOW, wall=hour) == NOW + hour


def _result(state: RunState, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run": "run_1", "agent": "helper", "agent_version": "1", "output": "done",
        "stop_reason": None, "reason": "", "effects": (), "uncertain": (), "untrusted": False,
    }  # fmt: skip
    return result_of(state=state, **{**values, **changes})


def test_a_result_says_whose_it_is_and_never_that_nothing_happened_when_it_did() -> None:
    done = _result(RunState.COMPLETED)
    assert done == {
        "run": "run_1", "agent": "helper", "agent_version": "1", "status": "completed",
        "effects": [], "output": "done",
    }  # fmt: skip
    cut = _result(
        RunState.INCOMPLETE, stop_reason="DEADLINE", effects=({"tool": "pay"},), untrusted=True
    )
    assert "output" not in cut
    assert cut["stop_reason"] == "DEADLINE"
    assert "made all the same" in cut["warning"]
    assert cut["untrusted"] is True
    assert effects_in(cut) == [{"tool": "pay"}]
    assert effects_in(["no"]) == effects_in({"effects": "no"}) == []
