"""What was approved is what runs: in time by the database clock, and with the same arguments."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from approvals import selectors
from approvals.errors import DecisionError
from approvals.models import Approval
from runs import services
from runs.models import ActionJournal, Run
from tests.factories import real_decider
from tests.runs.acting import (
    Downstream,
    action,
    go,
    incidents,
    pass_time,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tools import Approval as Asks


def _asked(shop: Downstream, *whats: str) -> tuple[UUID, list[Approval]]:
    pay = write_tool(shop, approval=Asks.always(role="boss", ttl=timedelta(hours=1)))
    run = propose_run(*((pay, {"what": what}) for what in whats))
    go(run)
    assert state_of(run) == "WAITING_APPROVAL"
    return run, list(Approval.objects.filter(run_id=run).order_by("id"))


def _approve(approval: Approval) -> None:
    services.decide_approval(
        approval_id=approval.id,
        params_hash=approval.params_hash,
        decision="APPROVE",
        decider=real_decider("user:boss", roles=("boss",)),
    )


@pytest.mark.requirement("R42")
def test_a_question_nobody_answers_takes_its_action_along(shop: Downstream) -> None:
    run, (first, second) = _asked(shop, "a", "b")
    pass_time(run, hours=2)
    for approval in (first, second):
        with pytest.raises(DecisionError):
            _approve(approval)
    go(run)

    assert states(run) == ["EXPIRED", "EXPIRED"]
    assert state_of(run) == "OBSERVING", "the run goes on, and its model is told"
    assert shop.sent == []
    left = Approval.objects.filter(run_id=run).values_list("state", flat=True)
    assert set(left) == {"EXPIRED"}


@pytest.mark.requirement("R43")
def test_what_was_approved_in_time_is_not_started_after_it(shop: Downstream) -> None:
    """Approved in the last second, driven after it: a person is asked anew, and not for ever."""
    run, (approval,) = _asked(shop, "a")
    for asked_again in (1, 2):
        _approve(approval)
        assert action(run).state == "READY"
        pass_time(run, hours=2)
        go(run)
        assert (state_of(run), states(run)) == ("WAITING_APPROVAL", ["AWAITING_APPROVAL"])
        approval = Approval.objects.get(run_id=run, state="PENDING")
        assert approval.renewal == asked_again
    _approve(approval)
    pass_time(run, hours=2)
    go(run)

    row = action(run)
    assert (row.state, row.reason) == ("EXPIRED", "APPROVAL_EXPIRED")
    assert shop.sent == []
    assert selectors.find(approval_id=approval.id).state == "EXPIRED"  # type: ignore[union-attr]


# --- below the hash ------------------------------------------------------------------------------


def _tamper(run: UUID) -> None:
    """Somebody writes other arguments below the hash, past the triggers."""
    with unguarded():
        ActionJournal.objects.filter(run_id=run).update(arguments={"what": "a", "amount": 500})


@pytest.mark.requirement("R41")
def test_arguments_that_changed_after_the_approval_are_not_sent(shop: Downstream) -> None:
    run, (approval,) = _asked(shop, "a")
    _approve(approval)
    _tamper(run)
    go(run)

    row = action(run)
    assert (row.state, row.reason) == ("DENIED", "ARGUMENTS_CHANGED")
    assert incidents(run) == ["ARGUMENTS_CHANGED"]
    assert shop.sent == []
    assert selectors.find(approval_id=approval.id).state == "VOIDED"  # type: ignore[union-attr]
    assert state_of(run) == "OBSERVING", "the model is told"


@pytest.mark.requirement("R41")
def test_nor_are_they_sent_without_an_approval(shop: Downstream) -> None:
    """Also a write that nobody was asked about was judged with other arguments."""
    first, second = write_tool(shop), write_tool(shop, name="send")
    run = propose_run((first, {"what": "a"}), (second, {"what": "a"}))
    shop.during = lambda: _tamper(run)
    go(run)
    assert states(run) == ["SUCCEEDED", "DENIED"]
    assert len(shop.sent) == 1


@pytest.mark.requirement("R51")
def test_a_resend_has_the_bytes_of_the_first_send_or_is_not_made(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    assert states(run) == ["UNKNOWN"]
    _tamper(run)
    for _ in range(3):
        pass_time(run, minutes=10)
        go(run)

    assert len(shop.sent) == 1
    assert (state_of(run), states(run)) == ("RECONCILING", ["UNKNOWN"])
    assert "its arguments are not those of its first attempt" in Run.objects.get(pk=run).reason
