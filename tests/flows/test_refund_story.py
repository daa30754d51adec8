"""The refund desk from REST to the payment ledger, on real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from config.embedded import Stack
from tests.world import World, get_json, open_world, uuid_of, wait_for

SUBMIT = "refund_desk__submit_refund"


@pytest.fixture(scope="module", params=["one worker", "a worker for each queue"])
def story(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Both ways of running: in place on one worker, and with links that travel."""
    with open_world(stack, tmp_path_factory.mktemp("story")) as world:
        if request.param == "one worker":
            world.start_worker()
        else:
            for queue in ("compile", "model", "tools", "observe"):
                world.start_worker(queue, queues=queue, wait=False)
        world.start_web()
        yield world


def _approve(world: World, run_id: str) -> str:
    """Approve through the admin's own form; the approval's id."""
    (approval,) = world.approvals(run_id)
    world.decide(approval, "APPROVE")
    return approval


@pytest.mark.requirement("R7", "R8", "R15", "R16", "R18", "R35", "R44")
def test_a_large_refund_waits_for_a_person_and_is_made_once(story: World) -> None:
    run_id = story.refund("ORD-1001", "80.00 EUR")

    run = story.waiting(run_id)
    assert run["required_action"]["type"] == "approval"
    assert story.refunds("ORD-1001") == []
    held = story.query("SELECT lease_worker FROM runs_run WHERE id = %s", uuid_of(run_id))
    assert held == [(None,)], "a waiting run holds no worker"
    calls_before = _model_calls(story)

    _approve(story, run_id)
    run = story.finish(run_id)

    assert run["status"] == "completed", run
    (refund,) = story.refunds("ORD-1001")
    assert refund["amount"] == "80.00"
    assert story.states(run_id) == [
        ("refund_desk.get_order", "SUCCEEDED"),
        ("refund_desk.get_policy", "SUCCEEDED"),
        ("refund_desk.submit_refund", "SUCCEEDED"),
    ]
    # The same saved action resumed: one more model call, for the answer, and no new user turn.
    assert _model_calls(story) == calls_before + 1
    seqs = story.event_seqs(run_id)
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_small_refund_asks_nobody(story: World) -> None:
    run_id = story.refund("ORD-1002", "20.00 EUR")

    assert story.finish(run_id)["status"] == "completed"
    assert len(story.refunds("ORD-1002")) == 1
    assert story.approvals(run_id, "PENDING") == []


@pytest.mark.requirement("R32", "R44")
def test_a_rejected_refund_is_answered_by_the_model_and_sends_nothing(story: World) -> None:
    run_id = story.refund("ORD-3003", "70.00 EUR")
    story.waiting(run_id)
    (approval,) = story.approvals(run_id)

    story.decide(approval, "REJECT", "the photo shows no damage")
    run = story.finish(run_id)

    assert run["status"] == "completed"
    assert story.refunds("ORD-3003") == []
    assert story.states(run_id)[-1] == ("refund_desk.submit_refund", "REJECTED")
    (told,) = story.query(
        "SELECT observation FROM runs_actionjournal WHERE run_id = %s AND state = 'REJECTED'",
        uuid_of(run_id),
    )
    assert "the photo shows no damage" in told[0]


@pytest.mark.requirement("R60", "R110")
def test_approvals_decided_while_a_call_is_in_flight_lose_nothing(story: World) -> None:
    """Each decision changes the revision under the worker; its late result is kept all the same."""
    script = [
        [
            _refund_call("ORD-2001", "60.00 EUR"),
            _refund_call("ORD-2002", "60.00 EUR"),
            _refund_call("ORD-2003", "20.00 EUR"),
        ],
        ["done"],
    ]
    story.fault(mode="delay", times=1, seconds=3, order_id="ORD-2003")
    run_id = _scripted(story, "ORD-2001", script)
    approvals = wait_for(
        lambda: found if len(found := story.approvals(run_id)) == 2 else None,
        seconds=20,
        what="two approvals",
    )
    wait_for(
        lambda: story.query(
            "SELECT 1 FROM runs_attempt t JOIN runs_actionjournal a ON a.id = t.action_id"
            " WHERE t.run_id = %s AND t.kind = 'TOOL' AND t.outcome IS NULL"
            " AND a.arguments->>'order_id' = 'ORD-2003'",
            uuid_of(run_id),
        ),
        seconds=20,
        what="the call in flight",
    )
    for approval in approvals:
        story.decide(approval, "APPROVE")

    run = story.finish(run_id)

    assert run["status"] == "completed", run
    assert [state for _, state in story.states(run_id)] == ["SUCCEEDED"] * 3
    for order in ("ORD-2001", "ORD-2002", "ORD-2003"):
        assert len(story.refunds(order)) == 1, order


@pytest.mark.requirement("R50")
def test_the_same_intent_under_a_new_call_id_has_one_effect(story: World) -> None:
    """The model proposes the same refund again in a later turn."""
    call = _refund_call("ORD-2010", "20.00 EUR")
    run_id = _scripted(story, "ORD-2010", [[call], [call], ["done"]])

    assert story.finish(run_id)["status"] == "completed"
    assert len(story.refunds("ORD-2010")) == 1
    assert [state for _, state in story.states(run_id)] == ["SUCCEEDED", "VOIDED"]
    rows = story.query(
        "SELECT observation FROM runs_actionjournal WHERE run_id = %s AND state = 'VOIDED'",
        uuid_of(run_id),
    )
    assert "already_done" in rows[0][0]


@pytest.mark.requirement("R28", "R13")
def test_an_unknown_tool_is_told_and_does_nothing(story: World) -> None:
    """Also a handoff, which is not supported yet, arrives here as a tool nobody knows."""
    script = [[{"tool": "transfer_to_billing", "arguments": {}}], ["sorry"]]
    run_id = _scripted(story, "ORD-2020", script)

    assert story.finish(run_id)["status"] == "completed"
    assert story.states(run_id) == [("transfer_to_billing", "DENIED")]


@pytest.mark.requirement("R30")
def test_rights_come_from_the_caller_not_from_the_model(story: World) -> None:
    """A token without the tool's scope: the refund is refused whatever the model says."""
    said = _token_without_refunds(story)
    client = type(story.client)(url=story.client._base.removesuffix("/api/v1"), token=said)
    run = client.start_run(
        agent="refund_desk",
        run_input={"order_id": "ORD-2030", "message": "x", "amount": "20.00 EUR"},
        key="no-scope",
    )
    done = client.follow(
        run["id"], until=lambda r: r["status"] == "completed", seconds=20, every=0.05
    )

    assert story.refunds("ORD-2030") == []
    assert story.states(done["id"])[-1] == ("refund_desk.submit_refund", "DENIED")


def _token_without_refunds(world: World) -> str:
    from tests.world import manage

    scopes = [part for s in ("runs:write", "runs:read") for part in ("--scope", s)]
    return manage(world, "token", "create", "reader", *scopes).strip().splitlines()[-1]


def _refund_call(order: str, amount: str) -> dict[str, Any]:
    return {
        "tool": SUBMIT,
        "arguments": {"order_id": order, "amount": amount, "reason": "damaged"},
    }


def _scripted(world: World, order: str, script: list[Any]) -> str:
    body = {"order_id": order, "message": json.dumps({"script": script})}
    return str(world.client.start_run(agent="refund_desk", run_input=body, key=order)["id"])


def _model_calls(world: World) -> int:
    return int(get_json(f"{world.model.url}/requests")["total"])
