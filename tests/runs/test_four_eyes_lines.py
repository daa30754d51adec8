"""Four eyes along a line: who edited before, and who asked for the run that is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.values import Preview
from approvals.errors import SelfApproval
from runs import retrying
from runs.models import Run
from runs.selectors import database_clock
from runs.services import decide_approval
from tests.factories import force_state, make_run, make_waiting, real_decider
from tests.runs.acting import Downstream, actions, go, write_tool
from tests.runs.test_approvals_people import approve, asked, edit, pending, person, refused
from tools import Approval as Asks

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_edited_before_another_editor_does_not_decide(shop: Downstream) -> None:
    pay = write_tool(
        shop,
        approval=Asks.always(role="agent_approver"),
        preview=lambda: Preview(summary="pay", version="7"),
    )
    run, row = asked(pay)
    edit(row, person("user:grace"), arguments={"amount": 6000})
    go(run)
    edit(pending(run), person("user:linus"), arguments={"amount": 6001})
    go(run)
    again = pending(run)
    for name in ("user:grace", "user:linus"):
        refused(SelfApproval, lambda name=name: approve(again, person(name)))
    approve(again, person("user:ada"))
    assert [row.state for row in actions(run)][-1] == "READY"


@pytest.mark.parametrize("who", ["principal", "on_behalf_of"])
def test_who_asked_for_a_run_does_not_decide_in_its_retry(who: str) -> None:
    first = make_run(**{who: "user:grace"})
    force_state(first, state="FAILED", stop_reason="MODEL_ERROR", ended_at=database_clock())
    asks = retrying.retry_request(first)
    second = make_run(
        principal="user:olga", retry_of_id=asks.retry_of, on_behalf_of=asks.on_behalf_of
    )
    waiting = make_waiting(run=Run.objects.get(pk=second.pk))
    values: dict[str, Any] = {
        "approval_id": waiting.approval.pk,
        "params_hash": waiting.approval.params_hash,
        "decision": "APPROVE",
    }
    refused(SelfApproval, lambda: decide_approval(decider=real_decider("user:grace"), **values))
    refused(SelfApproval, lambda: decide_approval(decider=real_decider("user:olga"), **values))
    assert decide_approval(decider=real_decider("user:ada"), **values).votes == 1
