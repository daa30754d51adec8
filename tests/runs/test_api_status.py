"""The public status is one pure function over states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from agentcore.lifecycle import RUN_LIVE, RUN_TERMINAL, ActionState, RunState, StopReason
from runs.api.status import (
    ActionFact,
    RequiredAction,
    incomplete_reason,
    public_status,
    status_table,
)

RUN_ID = uuid4()
T0 = datetime(2030, 1, 1, tzinfo=UTC)


def _status(state: RunState, *actions: ActionFact, stop: StopReason | None = None):
    return public_status(run_id=RUN_ID, state=state, stop_reason=stop, actions=actions)


def test_every_state_has_a_row_in_the_table() -> None:
    assert {state for state, _ in status_table()} >= {str(state) for state in RunState}


@pytest.mark.requirement("R4")
@pytest.mark.parametrize("state", sorted(RUN_TERMINAL))
def test_a_terminal_state_is_its_own_public_word(state: RunState) -> None:
    held = ActionFact(id=uuid4(), state=ActionState.NEEDS_HUMAN)
    assert _status(state, held, stop=StopReason.CANCEL).status == state.lower()


def test_the_plain_states() -> None:
    assert _status(RunState.QUEUED).status == "queued"
    for state in (RunState.CALLING_MODEL, RunState.RETRY_WAIT, RunState.RECONCILING):
        assert _status(state).status == "in_progress"
        assert _status(state).required_action is None


def test_waiting_approval_names_the_approvals_and_the_first_expiry() -> None:
    asked = [
        ActionFact(uuid4(), ActionState.AWAITING_APPROVAL, uuid4(), T0 + timedelta(hours=hours))
        for hours in (4, 2)
    ]
    decided = ActionFact(uuid4(), ActionState.READY, uuid4(), T0)
    public = _status(RunState.WAITING_APPROVAL, *asked, decided)
    assert public.status == "requires_action"
    ids = tuple(action.approval_id for action in asked)
    assert public.required_action == RequiredAction("approval", ids, T0 + timedelta(hours=2))


def test_a_decided_run_asks_nobody_although_no_worker_has_moved_it() -> None:
    public = _status(RunState.WAITING_APPROVAL, ActionFact(uuid4(), ActionState.READY, uuid4(), T0))
    assert public.status == "in_progress"
    assert public.required_action is None


@pytest.mark.parametrize("state", sorted(RUN_LIVE - {RunState.CANCELLING}))
def test_an_action_that_needs_a_person_shows_in_every_live_state(state: RunState) -> None:
    held = ActionFact(id=uuid4(), state=ActionState.NEEDS_HUMAN)
    public = _status(state, held)
    assert public.status == "requires_action"
    assert public.required_action == RequiredAction("reconciliation", (held.id,))


def test_suspended_asks_an_operator() -> None:
    public = _status(RunState.SUSPENDED)
    assert public.status == "requires_action"
    assert public.required_action == RequiredAction("operator", (RUN_ID,))


@pytest.mark.requirement("R10")
def test_cancelling_follows_the_stop_reason_and_is_never_shown_as_cancelled() -> None:
    for state in RUN_LIVE:
        assert _status(state, stop=StopReason.CANCEL).status == "cancelling"
    held = ActionFact(id=uuid4(), state=ActionState.NEEDS_HUMAN)
    public = _status(RunState.CANCELLING, held, stop=StopReason.CANCEL)
    assert public.status == "cancelling"
    assert public.required_action == RequiredAction("reconciliation", (held.id,))


def test_incomplete_names_the_limit() -> None:
    def reason(stop: StopReason, turns: int = 1) -> str:
        return incomplete_reason(stop_reason=stop, turns=turns, max_turns=3)

    assert reason(StopReason.BUDGET, turns=3) == "max_turns"
    assert reason(StopReason.BUDGET) == "max_actions"
    assert reason(StopReason.DEADLINE) == "deadline"
    assert reason(StopReason.UNVERIFIED) == "postcondition_failed"
    assert reason(StopReason.CANCEL) == "cancel"
