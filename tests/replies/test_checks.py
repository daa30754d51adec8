"""Checks that cannot be made for a while, and checks that meddle."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.guardrails import Proposed
from agentcore.lifecycle import RunState
from runs import services
from runs.models import Attempt
from tests.replies.desk import Desk, said
from tests.replies.test_completion import CLAIM, rail, refund
from tests.replies.tools_of_the_desk import MADE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.requirement("R76")
def test_a_system_of_record_that_is_away_waits_for_a_person_as_often_as_it_takes(
    desk: Desk,
) -> None:
    """Three tries, then an operator; each time he lets the run go on it tries anew."""
    away = [True]

    def asked(*_: Any) -> bool:
        if away[0]:
            raise ConnectionError("the books are away")
        return bool(MADE)

    desk.tools["refund_order"].postcondition(asked)
    desk.script(refund(), said(CLAIM))
    run = desk.start()
    for checks in (3, 6):
        desk.drive(run)
        assert run.state == RunState.SUSPENDED
        assert run.reason.endswith(f"the system of record did not answer {checks} times")
        assert Attempt.objects.filter(run=run, kind="POSTCONDITION").count() == checks
        away[0] = checks == 3
        services.resume_run(run_id=run.id, actor="user:grace")
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert len(MADE) == 1


@pytest.mark.requirement("R41", "R111")
def test_a_guardrail_that_changes_what_it_is_shown_changes_nothing(desk: Desk) -> None:
    """Asked again at the start, after the approval: what runs is what was approved."""

    def masks(proposed: Proposed) -> str:
        proposed.arguments["amount_cents"] = 9_999
        proposed.run_input.clear()
        return ""

    desk.script(refund(), said("That is all."))
    run = desk.start(guardrails=rail("action", masks))
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    (action,) = desk.actions(run)
    assert (action.state, (action.arguments or {})["amount_cents"]) == ("SUCCEEDED", 500)
    assert [made["amount_cents"] for made in MADE] == [500]
