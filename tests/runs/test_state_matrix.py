"""Every pair of states in Python: accepted with its cause, or refused."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise, product
from typing import Any

import pytest

from agentcore import lifecycle
from agentcore.lifecycle import (
    ACTION_OPEN,
    ACTION_TERMINAL,
    ACTION_UNDECIDED,
    APPROVAL_TERMINAL,
    RUN_LIVE,
    RUN_TERMINAL,
    ActionState,
    ApprovalState,
    IllegalTransition,
    RunState,
)

MACHINES: list[Any] = [
    pytest.param(RunState, lifecycle.RUN_MOVES, lifecycle.check_run_move, id="run"),
    pytest.param(ActionState, lifecycle.ACTION_MOVES, lifecycle.check_action_move, id="action"),
    pytest.param(
        ApprovalState, lifecycle.APPROVAL_MOVES, lifecycle.check_approval_move, id="approval"
    ),
]


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(("states", "moves", "check"), MACHINES)
def test_every_pair_is_accepted_with_its_cause_or_refused(
    states: type[StrEnum],
    moves: dict[tuple[StrEnum, StrEnum], str],
    check: Callable[[Any, Any], str],
) -> None:
    accepted = {}
    for source, target in product(states, states):
        if (source, target) in moves:
            accepted[source, target] = check(source, target)
        else:
            with pytest.raises(IllegalTransition, match=f"{source} -> {target}"):
                check(source, target)
    assert accepted == moves
    assert all(cause.strip() for cause in accepted.values())


@pytest.mark.requirement("R3")
def test_nothing_leaves_a_terminal_state() -> None:
    leaving = [
        pair
        for moves, terminal in (
            (lifecycle.run_pairs(), RUN_TERMINAL),
            (lifecycle.action_pairs(), ACTION_TERMINAL),
            (lifecycle.approval_pairs(), APPROVAL_TERMINAL),
        )
        for pair in moves
        if pair[0] in terminal
    ]
    assert leaving == []


def test_every_live_state_can_reach_an_end() -> None:
    for states, moves, terminal in (
        (RunState, lifecycle.RUN_MOVES, RUN_TERMINAL),
        (ActionState, lifecycle.ACTION_MOVES, ACTION_TERMINAL),
        (ApprovalState, lifecycle.APPROVAL_MOVES, APPROVAL_TERMINAL),
    ):
        reaching = set(terminal)
        for _ in states:
            reaching |= {old for old, new in moves if new in reaching}
        assert reaching == set(states)


@pytest.mark.parametrize(
    ("paths", "moves"),
    [
        pytest.param(lifecycle.RUN_PATHS, lifecycle.RUN_MOVES, id="run"),
        pytest.param(lifecycle.ACTION_PATHS, lifecycle.ACTION_MOVES, id="action"),
    ],
)
def test_every_path_is_a_chain_of_legal_moves(paths: Any, moves: Any) -> None:
    broken = [(path, pair) for path in paths for pair in pairwise(path) if pair not in moves]
    assert broken == []


def test_states_are_sorted_into_open_undecided_and_terminal() -> None:
    assert set(ActionState) == ACTION_OPEN | ACTION_UNDECIDED | ACTION_TERMINAL
    assert not ACTION_OPEN & ACTION_UNDECIDED
    assert not ACTION_TERMINAL & (ACTION_OPEN | ACTION_UNDECIDED)
    assert set(RunState) == RUN_LIVE | RUN_TERMINAL


# From the design, by hand: what must never appear in the tables.
FORBIDDEN_ACTION = [
    ("UNKNOWN", "READY"),
    ("UNKNOWN", "VOIDED"),
    ("RUNNING", "READY"),
    ("PENDING", "RUNNING"),
    ("PROPOSED", "SUCCEEDED"),
    ("AWAITING_APPROVAL", "RUNNING"),
]
FORBIDDEN_RUN = [
    ("CANCELLING", "COMPLETED"),
    ("CANCELLING", "FAILED"),
    ("CANCELLING", "SUSPENDED"),
    ("RECONCILING", "COMPLETED"),
    ("WAITING_APPROVAL", "COMPLETED"),
    ("QUEUED", "COMPLETED"),
]


def test_the_moves_that_the_design_forbids_are_not_even_composite() -> None:
    assert not lifecycle.action_pairs() & set(FORBIDDEN_ACTION)
    assert not lifecycle.run_pairs() & set(FORBIDDEN_RUN)


@pytest.mark.requirement("R48")
def test_an_action_has_the_states_that_the_journal_must_tell_apart() -> None:
    needed = {"PROPOSED", "AWAITING_APPROVAL", "RUNNING", "SUCCEEDED", "FAILED", "UNKNOWN"}
    assert needed <= set(ActionState)
