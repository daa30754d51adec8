"""One business intent, one owner, one effect: taking keys, giving them back, losing the race."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agentcore.values import Natural
from config.embedded import Stack
from runs import journal
from runs.fleet_models import KeyOwner
from runs.transitions import locked_run
from tests.runs.acting import (
    TO_THE_TURN,
    Downstream,
    action,
    actions,
    decide,
    go,
    incidents,
    later,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tests.world import ROOT, World, open_world, wait_for
from tools import Approval


def _told(run: UUID, ordinal: int = 0) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(action(run, ordinal).observation or "")
    return told


@pytest.mark.requirement("R50", "R54")
def test_the_same_intent_in_one_scope_has_one_effect(shop: Downstream) -> None:
    """Twice in one reply, and again by another run with the same business key."""
    pay = write_tool(shop)
    first = propose_run((pay, {"what": "a"}), (pay, {"what": "a"}), dedupe_key="order-1")
    go(first, inline=TO_THE_TURN)
    assert states(first) == ["SUCCEEDED", "VOIDED"]
    _end(first)
    again = propose_run((pay, {"what": "a"}), dedupe_key="order-1")
    go(again, inline=TO_THE_TURN)

    assert len(shop.effects) == 1
    assert (states(again), action(again).same_as_id) == (["VOIDED"], action(first).id)
    for told in (_told(first, 1), _told(again)):
        assert told["status"] == "already_done"
        assert told["data"]["result"] == action(first).result
        assert told["data"]["at"] == action(first).ended_at.isoformat()  # type: ignore[union-attr]


def _end(run: UUID) -> None:
    from runs import services

    services.cancel_run(run_id=run, actor="user:1")
    assert state_of(run) == "CANCELLED"


def test_another_scope_is_another_intent(shop: Downstream) -> None:
    pay = write_tool(shop)
    for fields in ({}, {}, {"dedupe_key": "order-1"}, {"tenant": "other"}):
        run = propose_run((pay, {"what": "a"}), **fields)
        go(run)
        assert states(run) == ["SUCCEEDED"]
    assert len(shop.effects) == 4
    assert len({ctx.idempotency_key for ctx in shop.sent}) == 4


@pytest.mark.requirement("R50", "R54")
def test_the_model_is_told_that_the_earlier_attempt_is_being_checked(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    pay = write_tool(shop, scope="tenant")
    first = propose_run((pay, {"what": "a"}))
    go(first)
    second = propose_run((pay, {"what": "a"}))
    go(second, inline=TO_THE_TURN)
    assert (states(first), states(second)) == (["UNKNOWN"], ["VOIDED"])
    assert _told(second)["status"] == "being_checked"
    assert len(shop.sent) == 1


@pytest.mark.requirement("R51")
def test_the_same_intent_with_other_arguments_is_refused_with_an_incident(shop: Downstream) -> None:
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a", "amount": 1}), (pay, {"what": "a", "amount": 2}))
    go(run, inline=TO_THE_TURN)
    assert states(run) == ["SUCCEEDED", "DENIED"]
    assert (action(run, 1).reason, incidents(run)) == ("KEY_CONFLICT", ["KEY_CONFLICT"])
    assert len(shop.sent) == 1


def test_nobody_is_asked_about_a_duplicate(shop: Downstream) -> None:
    pay = write_tool(
        shop, scope="tenant", approval=Approval.when(lambda _, p: p.amount > 5, role="boss")
    )
    go(propose_run((pay, {"what": "a", "amount": 1})))
    run = propose_run((pay, {"what": "a", "amount": 9}))
    go(run)
    assert (states(run), action(run).reason) == (["DENIED"], "KEY_CONFLICT")


# --- giving back -------------------------------------------------------------------------------


def _generations(run: UUID) -> list[int | None]:
    return [row.generation for row in actions(run)]


def test_a_proven_failure_gives_the_key_back(shop: Downstream) -> None:
    shop.behaves = ["refused"]
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a"}), (pay, {"what": "a"}))
    go(run)
    assert (states(run), _generations(run)) == (["FAILED", "SUCCEEDED"], [0, 1])
    keys = [ctx.idempotency_key for ctx in shop.sent]
    assert len(set(keys)) == 2, "a downstream may have stored the refusal under the first key"


def test_an_absolute_write_may_be_done_again(shop: Downstream) -> None:
    put = write_tool(shop, contract=Natural())
    run = propose_run((put, {"what": "a"}), (put, {"what": "b"}), (put, {"what": "a"}))
    go(run)
    assert states(run) == ["SUCCEEDED"] * 3
    assert _generations(run) == [0, 0, 1]


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_later_write_on_the_resource_ends_the_guard_of_a_repeatable_one(
    shop: Downstream, repeatable: bool
) -> None:
    """OPEN, CLOSED, OPEN. Of a write that pays, the write beside it is no reason to pay again."""
    put = write_tool(shop, repeatable=repeatable, resource=lambda *_: "door:1")
    run = propose_run((put, {"what": "a"}), (put, {"what": "b"}), (put, {"what": "a"}))
    go(run)
    assert states(run)[:2] == ["SUCCEEDED"] * 2
    assert states(run)[2] == ("SUCCEEDED" if repeatable else "VOIDED")
    assert len(shop.effects) == (3 if repeatable else 2)


def test_a_later_write_of_another_run_ends_it_too(shop: Downstream) -> None:
    put = write_tool(shop, repeatable=True, scope="tenant", resource=lambda *_: "door:1")
    for what in ("a", "b", "a"):
        run = propose_run((put, {"what": what}))
        go(run)
        assert states(run) == ["SUCCEEDED"]
    assert action(run).generation == 1


def test_the_horizon_ends_the_guard(shop: Downstream) -> None:
    remind = write_tool(shop, scope="tenant", horizon=timedelta(days=30))
    first = propose_run((remind, {"what": "a"}))
    go(first)
    for days, expected in ((29, "VOIDED"), (2, "SUCCEEDED"), (0, "VOIDED")):
        with unguarded():
            row = action(first)
            at = row.ended_at - timedelta(days=days) if row.ended_at else None
            type(row).objects.filter(pk=row.pk).update(ended_at=at)
        run = propose_run((remind, {"what": "a"}))
        go(run)
        assert states(run) == [expected]
    assert len(shop.effects) == 2


@pytest.mark.parametrize("ended", ["UNKNOWN", "ABANDONED"])
def test_what_is_not_known_keeps_the_key_for_ever(shop: Downstream, ended: str) -> None:
    shop.behaves = ["dropped"]
    remind = write_tool(shop, scope="tenant", horizon=timedelta(days=30), repeatable=True)
    first = propose_run((remind, {"what": "a"}))
    go(first)
    if ended == "ABANDONED":
        with locked_run(first, actor="user:1", event="action.reconciled") as draft:
            row = action(first)
            journal.needs_human(draft, row, reason="TEST", detail="")
            draft.move_action(row, "ABANDONED")  # type: ignore[arg-type]
    later(first, seconds=0)
    run = propose_run((remind, {"what": "a"}))
    go(run, inline=TO_THE_TURN)
    assert (states(first), states(run)) == ([ended], ["VOIDED"])
    expected = "outcome_unknown" if ended == "ABANDONED" else "being_checked"
    assert _told(run)["status"] == expected
    assert KeyOwner.objects.get(action=action(first)).released_at is None


# --- a repeat that a person allows ---------------------------------------------------------------


@pytest.mark.requirement("R46")
def test_a_repeatable_write_is_done_again_when_a_person_allows_exactly_that(
    shop: Downstream,
) -> None:
    send = write_tool(shop, repeatable=True, scope="tenant")
    first = propose_run((send, {"what": "a"}))
    go(first)
    run = propose_run((send, {"what": "a"}))
    go(run)
    row = action(run)
    assert (row.state, state_of(run)) == ("AWAITING_APPROVAL", "WAITING_APPROVAL")
    assert row.approval is not None
    assert row.approval.impact["repeat"]["action"] == str(action(first).id)
    assert len(shop.effects) == 1

    decide(run)
    go(run)
    assert (states(run), _generations(run)) == (["SUCCEEDED"], [1])
    assert len(shop.effects) == 2


def test_an_approval_of_one_repeat_is_no_approval_of_the_next(shop: Downstream) -> None:
    send = write_tool(shop, repeatable=True, scope="tenant")
    go(propose_run((send, {"what": "a"})))
    one, two = propose_run((send, {"what": "a"})), propose_run((send, {"what": "a"}))
    go(one)
    go(two)
    decide(one)
    decide(two)
    go(one)
    go(two)
    assert (states(one), states(two)) == (["SUCCEEDED"], ["AWAITING_APPROVAL"])
    assert len(shop.effects) == 2


def test_the_approval_of_a_write_names_the_repeat_it_would_be(shop: Downstream) -> None:
    send = write_tool(shop, repeatable=True, scope="tenant", approval=Approval.always(role="boss"))
    first = propose_run((send, {"what": "a"}))
    go(first)
    decide(first)
    go(first)
    run = propose_run((send, {"what": "a"}))
    go(run)
    approval = action(run).approval
    assert approval is not None
    assert approval.impact["repeat"]["action"] == str(action(first).id)
    decide(run)
    go(run)
    assert (states(run), len(shop.effects)) == (["SUCCEEDED"], 2)


# --- the race ----------------------------------------------------------------------------------


def test_of_two_starts_at_once_one_takes_the_key(shop: Downstream) -> None:
    """Both have looked and found the intent free; the database lets one of them have it."""
    pay = write_tool(shop, scope="tenant")
    runs = [propose_run((pay, {"what": "a"})) for _ in range(4)]
    start = threading.Barrier(len(runs), timeout=20)

    def drive_one(run: UUID) -> None:
        from django.db import connection

        start.wait()
        try:
            go(run)
        finally:
            connection.close()

    threads = [threading.Thread(target=drive_one, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = sorted(state for run in runs for state in states(run))
    assert ended == ["SUCCEEDED", "VOIDED", "VOIDED", "VOIDED"]
    assert len(shop.sent) == len(shop.effects) == 1


TOOLS = '''
import os
from datetime import timedelta

from tools import Effect, Key, ToolContext, tool


@tool(
    effect=Effect.WRITE,
    contract=Key(retention=timedelta(days=1)),
    identity=("shelf",),
    scope="tenant",
    resource=lambda _, p: f"shelf:{p.shelf}",
)
def store(ctx: ToolContext, shelf: str) -> str:
    """Put a thing on a shelf.

    Args:
        shelf: the shelf.
    """
    with open(os.environ["SHELVES"], "a") as books:
        books.write(f"{shelf} {ctx.idempotency_key}\\n")
    return shelf
'''
AGENTS = """
from runs.agents import agent

agent(name="storekeeper", version="1", instructions="Store things.", tools=["shelves.store"])
"""


@pytest.fixture
def storehouse(stack: Stack, tmp_path: Path) -> Iterator[World]:
    app = tmp_path / "shelves"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "agent_tools.py").write_text(TOOLS)
    (app / "agents.py").write_text(AGENTS)
    env = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "SHELVES": str(tmp_path / "books")}
    with open_world(stack, tmp_path / "world", apps=["shelves"], **env) as world:
        world.start_web()
        for name in ("w1", "w2"):
            world.start_worker(name, wait=False)
        yield world


@pytest.mark.requirement("R50", "R54")
def test_two_runs_with_one_intent_on_real_workers_have_one_effect(
    storehouse: World, tmp_path: Path
) -> None:
    pairs = 6
    runs: list[str] = []
    for n in range(pairs):
        body = {"script": [[{"tool": "shelves__store", "arguments": {"shelf": f"s{n}"}}], ["ok"]]}
        for twin in "xy":
            made = storehouse.client.start_run(
                agent="storekeeper", run_input=body, key=f"{n}{twin}"
            )
            runs.append(str(made["id"]))
    ended = [storehouse.finish(run, seconds=60)["status"] for run in runs]
    assert ended == ["completed"] * len(runs)
    wait_for((tmp_path / "books").exists, seconds=5)
    lines = (tmp_path / "books").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == [f"s{n}" for n in range(pairs)]
    found = sorted(state for run in runs for _, state in storehouse.states(run))
    assert found == ["SUCCEEDED"] * pairs + ["VOIDED"] * pairs
