"""Agents that call agents, on real processes: each child a run of its own, with its own steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from config.embedded import Stack
from tests.world import SCOPES, World, open_world, uuid_of, wait_for

MORE = ("runs:operate", "actions:read", "approvals:read")


@pytest.fixture(scope="module")
def desks(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    apps = ("examples.refund_desk", "tests.faults.front_desk")
    folder = tmp_path_factory.mktemp("desks")
    with open_world(stack, folder, apps=apps, scopes=(*SCOPES, *MORE)) as world:
        world.start_worker()
        world.start_web()
        yield world


def ask(order: str, amount: str = "20.00 EUR", message: str = "arrived broken") -> dict[str, Any]:
    """A call of the refund desk."""
    arguments = {"order_id": order, "message": message, "amount": amount}
    return {"tool": "agents__refund_desk", "arguments": arguments}


def start(world: World, order: str, *turns: list[Any], agent: str = "front_desk") -> str:
    """A run of a front desk whose model says `turns`."""
    body = {"order_id": order, "message": json.dumps({"script": turns})}
    run = world.client.start_run(agent=agent, run_input=body, key=f"child-{order}")
    return str(run["id"])


def children(world: World, run_id: str, count: int = 1) -> list[dict[str, Any]]:
    """The children of a run, once there are so many."""

    def look() -> list[dict[str, Any]]:
        found = world.client._send("GET", f"/runs?parent={run_id}")["data"][::-1]
        return list(found) if len(found) >= count else []

    return wait_for(look, seconds=20, what="the children")


def command(world: World, run_id: str, word: str) -> None:
    """Cancel, pause or resume a run."""
    key = {"Idempotency-Key": f"{word}-{run_id}"}
    world.client._send("POST", f"/runs/{run_id}/{word}", {"reason": "asked to"}, key)


def results(world: World, run_id: str) -> list[dict[str, Any]]:
    """What the calls of other agents came to."""
    query = (
        "SELECT result FROM runs_actionjournal WHERE run_id = %s AND contract = 'CHILD'"
        " ORDER BY turn, ordinal"
    )
    return [row[0] for row in world.query(query, uuid_of(run_id))]


@pytest.mark.requirement("R81")
def test_a_child_asks_a_person_and_its_parent_waits_for_it(desks: World) -> None:
    run_id = start(desks, "ORD-1004", [ask("ORD-1004", "80.00 EUR")], ["done"])
    (child,) = children(desks, run_id)
    assert desks.waiting(child["id"])["parent"] == run_id
    parent = desks.client.run(run_id)
    assert (parent["status"], parent["children"]) == ("in_progress", [child["id"]])
    (approval,) = desks.approvals(child["id"])
    desks.decide(approval, "APPROVE", "checked")
    run = desks.finish(run_id)
    assert (run["status"], run["business_outcome"]) == ("completed", "effect_made")
    ended = desks.client.run(child["id"])
    assert (ended["status"], ended["agent"]) == ("completed", "refund_desk")
    (result,) = results(desks, run_id)
    (effect,) = result["effects"]
    assert (result["run"], effect["run"]) == (child["id"], child["id"])
    assert [row["amount"] for row in desks.refunds("ORD-1004")] == ["80.00"]
    assert run["budget"]["used"]["tokens"] >= ended["budget"]["used"]["tokens"] > 0


@pytest.mark.requirement("R82")
def test_a_child_that_repeats_its_parents_refund_makes_no_second_one(desks: World) -> None:
    refund = {
        "tool": "refund_desk__submit_refund",
        "arguments": {"order_id": "ORD-1001", "amount": "20.00 EUR", "reason": "damaged"},
    }
    run_id = start(desks, "ORD-1001", [refund], [ask("ORD-1001")], ["done"])
    assert desks.finish(run_id)["status"] == "completed"
    (child,) = children(desks, run_id)
    assert desks.states(child["id"])[-1] == ("refund_desk.submit_refund", "VOIDED")
    assert len(desks.refunds("ORD-1001")) == 1


def test_a_child_that_does_not_finish_is_told_as_it_is(desks: World) -> None:
    refuses = json.dumps({"script": [[{"refusal": "I will not do that."}]]})
    run_id = start(desks, "ORD-1002", [ask("ORD-1002", message=refuses)], ["done"])
    assert desks.finish(run_id)["status"] == "completed"
    (result,) = results(desks, run_id)
    assert (result["status"], result["stop_reason"]) == ("incomplete", "REFUSED")
    assert (result["effects"], desks.refunds("ORD-1002")) == ([], [])


def test_a_cancelled_parent_cancels_its_child_first(desks: World) -> None:
    run_id = start(desks, "ORD-4005", [ask("ORD-4005", "80.00 EUR")], ["done"])
    (child,) = children(desks, run_id)
    desks.waiting(child["id"])
    command(desks, run_id, "cancel")
    assert desks.finish(run_id)["status"] == "cancelled"
    below = desks.client.run(child["id"])
    assert below["status"] == "cancelled"
    assert below["ended_at"] < desks.client.run(run_id)["ended_at"]
    assert desks.approvals(child["id"]) == []
    assert desks.refunds("ORD-4005") == []


@pytest.mark.requirement("R69")
def test_a_slice_is_kept_and_the_rest_comes_back(desks: World) -> None:
    run_id = start(desks, "ORD-2001", [ask("ORD-2001")], ["done"], agent="hasty_desk")
    run = desks.finish(run_id)
    (child,) = children(desks, run_id)
    assert (run["status"], child["status"]) == ("completed", "incomplete")
    assert child["budget"]["limits"]["max_turns"] == 1
    (result,) = results(desks, run_id)
    assert (result["status"], result["stop_reason"]) == ("incomplete", "BUDGET")
    assert run["budget"]["used"]["turns"] == 2 + 1


@pytest.mark.requirement("R67", "R82")
def test_no_more_agents_are_started_than_the_budget_says(desks: World) -> None:
    three = [ask("ORD-2002"), ask("ORD-2003"), ask("ORD-2004")]
    run_id = start(desks, "ORD-2002", three, ["done"], agent="hasty_desk")
    run = desks.finish(run_id)
    assert (run["status"], run["incomplete_details"]["reason"]) == ("incomplete", "max_handoffs")
    assert run["children"] == []
    assert [state for _, state in desks.states(run_id)] == ["VOIDED"] * 3


@pytest.mark.requirement("R69")
def test_two_children_at_once_do_not_overspend_and_a_pause_forgets_nothing(desks: World) -> None:
    both = [ask("ORD-3001", "80.00 EUR"), ask("ORD-3002", "80.00 EUR")]
    run_id = start(desks, "ORD-3001", both, ["done"])
    first, second = children(desks, run_id, 2)
    for child in (first, second):
        desks.waiting(child["id"])
    limits = [row["budget"]["limits"] for row in (first, second)]
    parent = desks.client.run(run_id)["budget"]
    assert parent["used"]["turns"] == 1 + sum(limit["max_turns"] for limit in limits) < 12
    assert parent["used"]["tokens"] + sum(limit["max_tokens"] for limit in limits) <= 400_000
    command(desks, run_id, "pause")
    for child in (first, second):
        (approval,) = desks.approvals(child["id"])
        desks.decide(approval, "APPROVE", "checked")
        assert desks.finish(child["id"])["status"] == "completed"
    paused = desks.client.run(run_id)
    assert paused["status"] == "requires_action"
    command(desks, run_id, "resume")
    run = desks.finish(run_id)
    assert run["status"] == "completed"
    used = [desks.client.run(row["id"])["budget"]["used"]["tokens"] for row in (first, second)]
    assert run["budget"]["used"]["tokens"] >= sum(used) + parent["used"]["tokens"]
    ((held,),) = desks.query("SELECT tokens_held FROM runs_run WHERE id = %s", uuid_of(run_id))
    assert held == 0
