"""A tool that changed while a run was open: nothing of it runs, and what was sent is not re-sent.

A release that raises the `version` of a tool says that its meaning changed. Whatever an action of
the old version waits for, it is not moved over silently: it stops, and somebody decides anew.
"""

from __future__ import annotations

import pytest

from agentcore.reconciling import Verdict
from approvals.models import Approval
from runs import services
from runs.verdict_errors import VerdictError
from tests.factories import decider
from tests.runs.acting import (
    Downstream,
    action,
    go,
    later,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.unknown import GRACE
from tools import Approval as Asks


def _release(shop: Downstream, **options: object) -> None:
    """The next version of the tool is installed; the run goes on with the one it was given."""
    write_tool(shop, version="2", **options)  # type: ignore[arg-type]


@pytest.mark.requirement("R64")
def test_an_approval_of_the_old_version_starts_nothing(shop: Downstream) -> None:
    asks = Asks.always(role="boss")
    run = propose_run((write_tool(shop, approval=asks), {"what": "a"}))
    go(run)
    (approval,) = Approval.objects.filter(run_id=run)
    _release(shop, approval=asks)
    services.decide_approval(
        approval_id=approval.id,
        params_hash=approval.params_hash,
        decision="APPROVE",
        decider=decider("user:boss", roles=frozenset({"boss"})),
    )
    go(run)

    assert (states(run), action(run).reason) == (["DENIED"], "TOOL_CHANGED")
    approval.refresh_from_db()
    assert approval.state == "VOIDED", "who approves the new version is asked anew"
    assert shop.sent == []
    assert state_of(run) == "OBSERVING", "the model may propose it again"


@pytest.mark.requirement("R64")
def test_a_write_of_unknown_fate_is_not_sent_again_by_the_new_version(shop: Downstream) -> None:
    """Nobody knows whether the new code makes the same bytes: a person decides."""
    shop.behaves = ["dropped"]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    _release(shop)
    later(run, minutes=5)

    row = action(run)
    assert (row.state, row.reason) == ("NEEDS_HUMAN", "TOOL_CHANGED")
    assert len(shop.sent) == 1
    assert state_of(run) == "RECONCILING"
    with pytest.raises(VerdictError) as refused:
        services.record_verdict(
            action_id=row.id,
            action_revision=row.revision,
            verdict=Verdict.RESEND_SAME_KEY,
            person=GRACE,
            evidence_text="not there",
        )
    assert refused.value.code == "resend_refused"


@pytest.mark.requirement("R64")
def test_a_retry_of_the_old_version_is_not_made_by_the_new_one(shop: Downstream) -> None:
    """It was provably not sent, so it ends as FAILED and the intent is free."""
    shop.behaves = ["not_sent"]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    assert states(run) == ["RUNNING"]
    _release(shop)
    later(run, minutes=1)
    assert states(run) == ["FAILED"]
    assert len(shop.sent) == 1
    assert shop.effects == []
