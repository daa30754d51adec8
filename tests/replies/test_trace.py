"""The log of one run: every kind of thing that happens to it is a line with its place and time."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from agentcore.budgets import Budget
from agentcore.compaction import ContextPolicy
from agentcore.lifecycle import RunState
from runs import services
from runs.models import Run
from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.factories import real_decider
from tests.replies.desk import Desk, answer, said

pytestmark = pytest.mark.django_db(transaction=True)


def look(order: str) -> Answer:
    found = call("c1", "get_order", arguments=json.dumps({"order_id": order}))
    usage = {"input_tokens": 400, "output_tokens": 50}
    return answer(reply(message("I look. " * 200), found, usage=usage))


def refund(cents: int) -> Answer:
    arguments = {"order_id": "ord_1001", "amount_cents": cents, "reason": None}
    return answer(reply(call("c2", "refund_order", arguments=json.dumps(arguments))))


def approve(desk: Desk, run: Run) -> None:
    from approvals.models import Approval

    row = Approval.objects.get(run_id=run.id, state="PENDING")
    services.decide_approval(
        approval_id=row.id,
        decision="APPROVE",
        params_hash=row.params_hash,
        decider=real_decider(roles=("agent_approver",)),
    )
    desk.drive(run)


def lines(run: Run, kind: str) -> list[dict[str, Any]]:
    """The entries of one kind of object, in order."""
    return [
        entry
        for event in run.events.order_by("seq")
        for entry in event.data.get("transitions", [])
        if entry["object"] == kind
    ]


@pytest.mark.requirement("R92")
def test_every_kind_of_step_is_in_the_log_of_a_run(desk: Desk) -> None:
    """All that can happen; handoffs do not exist yet."""
    desk.script(*(look(f"ord_{n}") for n in range(4)), refund(2500), said("That is all."))
    run = desk.start(budget=Budget(tokens=90_000), context=ContextPolicy(window=2000, keep_last=1))
    desk.drive(run)
    assert run.state == RunState.WAITING_APPROVAL
    approve(desk, run)
    assert run.state == RunState.COMPLETED, run.reason
    log = list(run.events.order_by("seq"))

    moves = [(entry["from"], entry["to"]) for entry in lines(run, "run")]
    assert moves[0] == (None, "QUEUED")
    assert all(a[1] == b[0] for a, b in pairwise(moves)), "no move is missing"

    model = [entry["to"] for entry in lines(run, "attempt") if entry["kind"] == "MODEL"]
    assert model == ["STARTED", "SUCCESS"] * 6, "asked and answered"
    tools = [entry["to"] for entry in lines(run, "attempt") if entry["kind"] == "TOOL"]
    assert tools == ["STARTED", "SUCCESS"] * 5

    asked = [entry for entry in lines(run, "action") if entry["from"] is None]
    assert [entry["tool"] for entry in asked] == ["desk.get_order"] * 4 + ["desk.refund_order"]
    assert len([entry for entry in lines(run, "action") if entry["to"] == "SUCCEEDED"]) == 5

    said_by_policy = [(entry["tool"], entry["to"]) for entry in lines(run, "policy")]
    assert said_by_policy.count(("desk.get_order", "ALLOW")) == 8, "proposed, and at its start"
    assert said_by_policy.count(("desk.refund_order", "ASK")) >= 2
    assert all(entry["version"] and entry["cause"] for entry in lines(run, "policy"))

    assert [entry["to"] for entry in lines(run, "approval")][-1] == "CONSUMED"
    assert any("compacted_before" in event.data for event in log)
    assert log[-1].type == "run.completed"
    checkpoints = [(event.revision_before, event.revision_after) for event in log]
    assert all(after == before + 1 for before, after in checkpoints), "each is one saved state"


@pytest.mark.requirement("R92")
def test_the_budget_is_told_before_and_after_each_call(desk: Desk) -> None:
    desk.script(look("ord_1"), said("That is all."))
    run = desk.start(budget=Budget(tokens=90_000))
    desk.drive(run)
    log = list(run.events.order_by("seq"))
    reserved = [e.data["reserved"]["tokens_held"] for e in log if "reserved" in e.data]
    settled = [e.data["settled"] for e in log if "settled" in e.data]
    assert [pair[0] for pair in reserved] == [0, 0]
    assert all(after > 0 for _, after in reserved)
    assert settled[0]["tokens_used"] == [0, 450]
    assert [s["tokens_held"][1] for s in settled] == [0, 0]
    assert settled[1]["tokens_used"][1] == run.tokens_used
