from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest

from agentcore.lifecycle import (
    ACTION_MOVES,
    ACTION_OPEN,
    ACTION_PATHS,
    ACTION_TERMINAL,
    ACTION_UNDECIDED,
    APPROVAL_MOVES,
    APPROVAL_TERMINAL,
    RUN_LIVE,
    RUN_MOVES,
    RUN_PATHS,
    RUN_RESUMES,
    RUN_TERMINAL,
    RUN_UNLEASED,
    STEPS,
    ActionState,
    ApprovalState,
    IllegalTransition,
    RunState,
    action_pairs,
    approval_pairs,
    check_action_move,
    check_approval_move,
    check_run_move,
    run_pairs,
    step_of,
)

A, R, P = ActionState, RunState, ApprovalState
MACHINES: list[Any] = [
    (RunState, RUN_MOVES, RUN_TERMINAL, check_run_move),
    (ActionState, ACTION_MOVES, ACTION_TERMINAL, check_action_move),
    (ApprovalState, APPROVAL_MOVES, APPROVAL_TERMINAL, check_approval_move),
]


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(("states", "moves", "terminal", "check"), MACHINES)
def test_every_pair_is_legal_or_raises(states: Any, moves: Any, terminal: Any, check: Any) -> None:
    for pair in product(states, repeat=2):
        if pair in moves:
            assert check(*pair) == moves[pair] != ""
        else:
            with pytest.raises(IllegalTransition):
                check(*pair)


@pytest.mark.requirement("R3")
@pytest.mark.parametrize(("states", "moves", "terminal", "check"), MACHINES)
def test_nothing_leaves_a_terminal_state(
    states: Any, moves: Any, terminal: Any, check: Any
) -> None:
    left = {source for source, _ in moves}
    assert not left & terminal
    assert left == set(states) - terminal  # and nothing else is a dead end
    assert all(source is not target for source, target in moves)


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(("states", "moves", "terminal", "check"), MACHINES)
def test_every_state_is_reached_and_reaches_an_end(
    states: Any, moves: Any, terminal: Any, check: Any
) -> None:
    def closure(start: set[Any], edges: set[tuple[Any, Any]]) -> set[Any]:
        found = set(start)
        while more := {b for a, b in edges if a in found} - found:
            found |= more
        return found

    first = next(iter(states))
    assert closure({first}, set(moves)) == set(states)
    assert closure(set(terminal), {(b, a) for a, b in moves}) == set(states)


@pytest.mark.parametrize("path", RUN_PATHS)
def test_a_run_path_is_a_chain_of_legal_moves(path: tuple[RunState, ...]) -> None:
    assert len(path) > 2
    for source, target in pairwise(path):
        check_run_move(source, target)
    assert not set(path[:-1]) & RUN_TERMINAL


@pytest.mark.parametrize("path", ACTION_PATHS)
def test_an_action_path_is_a_chain_of_legal_moves(path: tuple[ActionState, ...]) -> None:
    for source, target in pairwise(path):
        check_action_move(source, target)


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (A.UNKNOWN, A.READY),
        (A.PROPOSED, A.RUNNING),
        (A.PROPOSED, A.SUCCEEDED),
        (A.AWAITING_APPROVAL, A.RUNNING),
        (A.REJECTED, A.READY),
        (A.EXPIRED, A.READY),
        (A.FAILED, A.NEEDS_HUMAN),
        (A.FAILED, A.RUNNING),
        (A.RUNNING, A.READY),
        (A.RUNNING, A.ABANDONED),
        (A.UNKNOWN, A.ABANDONED),
        (A.UNKNOWN, A.VOIDED),
        (A.PENDING, A.VOIDED),
        (A.PENDING, A.RUNNING),
        (A.NEEDS_HUMAN, A.READY),
    ],
)
def test_moves_that_would_lie_or_send_twice_are_absent(source: Any, target: Any) -> None:
    assert (source, target) not in ACTION_MOVES
    with pytest.raises(IllegalTransition):
        check_action_move(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *((R.CANCELLING, state) for state in R if state is not R.CANCELLED),
        (R.QUEUED, R.COMPLETED),
        (R.CALLING_MODEL, R.COMPLETED),
        (R.OBSERVING, R.COMPLETED),
        (R.RECONCILING, R.CALLING_MODEL),
        (R.RECONCILING, R.COMPILING_CONTEXT),
        (R.RECONCILING, R.COMPLETED),
        (R.WAITING_APPROVAL, R.CALLING_MODEL),
        (R.DISPATCHING_TOOLS, R.CALLING_MODEL),
        (R.SUSPENDED, R.SUSPENDED),
        (R.QUEUED, R.CANCELLED),
    ],
)
def test_run_moves_that_skip_a_guard_are_absent(source: RunState, target: RunState) -> None:
    assert (source, target) not in RUN_MOVES


def test_paths_that_skip_a_call_are_absent() -> None:
    """An outside call lies between these; no single UPDATE may write them."""
    assert (A.AWAITING_APPROVAL, A.RUNNING) not in action_pairs()
    assert (A.READY, A.SUCCEEDED) not in action_pairs()
    assert (A.PROPOSED, A.SUCCEEDED) not in action_pairs()
    assert (R.QUEUED, R.DISPATCHING_TOOLS) not in run_pairs()
    assert (R.QUEUED, R.COMPLETED) not in run_pairs()


def test_written_pairs_are_the_moves_and_the_ends_of_the_paths() -> None:
    assert set(RUN_MOVES) <= run_pairs()
    assert (R.DISPATCHING_TOOLS, R.CALLING_MODEL) in run_pairs()
    assert (A.PROPOSED, A.RUNNING) in action_pairs()
    assert approval_pairs() == frozenset(APPROVAL_MOVES)
    for source, _ in run_pairs():
        assert source not in RUN_TERMINAL


def test_states_are_sorted_into_kinds() -> None:
    assert set(A) == ACTION_TERMINAL | ACTION_OPEN | ACTION_UNDECIDED
    kinds = (ACTION_TERMINAL, ACTION_OPEN, ACTION_UNDECIDED)
    assert sum(map(len, kinds)) == len(A)
    assert set(R) == RUN_LIVE | RUN_TERMINAL
    assert {R.WAITING_APPROVAL, R.WAITING_CHILD, R.RETRY_WAIT} == RUN_LIVE & RUN_UNLEASED


def test_every_live_state_has_a_step() -> None:
    for state in RUN_LIVE - {R.RETRY_WAIT}:
        assert step_of(state) in STEPS
    assert step_of(R.RETRY_WAIT, R.CALLING_MODEL) == "model"
    assert step_of(R.RETRY_WAIT, R.VERIFYING) == "observe"
    assert step_of(R.QUEUED) == "compile"
    assert step_of(R.SUSPENDED, R.CALLING_MODEL) == "tools"
    for state in RUN_TERMINAL | {R.RETRY_WAIT}:
        with pytest.raises(KeyError):
            step_of(state)


def test_a_resumed_run_goes_back_only_to_where_work_is_due() -> None:
    for state in RUN_RESUMES:
        targets = {b for a, b in RUN_MOVES if a is state} - RUN_TERMINAL
        assert targets - {R.CANCELLING, R.SUSPENDED} <= RUN_LIVE - RUN_RESUMES
