"""Kill switches: nothing of what is off starts after the switch's commit, and it is told why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections, transaction

from approvals.errors import DecisionError, InvalidRule, NotPermitted, ReasonRequired
from runs import agents, chores
from runs.agents import agent
from runs.control_models import Switch, SwitchChange
from runs.models import Attempt, Run
from runs.refusals import Refused
from runs.selectors import database_clock
from runs.services import Caller, StartRun, start_run, switch_off, switch_on
from runs.switches import PAUSED, all_off, let_go
from tests.factories import decider, make_agent_version, real_decider
from tests.runs.acting import (
    Downstream,
    action,
    attempts,
    decide,
    go,
    later,
    propose_run,
    read_tool,
    state_of,
    states,
    write_tool,
)
from tools import Approval as Asks

CALLER = Caller(tenant="acme", principal="token:shop", scopes=())


@pytest.fixture(autouse=True)
def the_agent(shop: Downstream) -> Iterator[None]:
    """An agent `shop` of this test alone."""
    before = dict(agents._AGENTS)
    agents._AGENTS.clear()
    agent(name="shop", version="1", instructions="", tools=[])
    yield
    agents._AGENTS.clear()
    agents._AGENTS.update(before)
    agents.forget_frozen()


def off(kind: str = "TOOL", name: str = "shop.pay", **fields: Any) -> Switch:
    return switch_off(kind=kind, name=name, **{"by": olga(), "reason": "wrong orders", **fields})


def on(kind: str = "TOOL", name: str = "shop.pay", **fields: Any) -> Switch:
    return switch_on(kind=kind, name=name, **{"by": olga(), "reason": "fixed", **fields})


def olga() -> Any:
    return real_decider("user:olga", is_superuser=True)


def of_the_agent(*calls: Any) -> UUID:
    run = propose_run(*calls)
    version = Run.objects.get(pk=run).agent_version
    row = make_agent_version(name="shop", spec=version.spec)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE runs_run SET agent_version_id = %s WHERE id = %s", [row.pk, run])
    return run


@pytest.mark.requirement("R43")
def test_a_tool_that_is_off_is_refused_at_its_start_also_when_it_was_approved(
    shop: Downstream,
) -> None:
    pay = write_tool(shop, approval=Asks.always(role="boss"))
    run = propose_run((pay, {"what": "a"}))
    go(run)
    decide(run)
    off()
    go(run)
    row = action(run)
    assert (row.state, row.reason) == ("DENIED", "TOOL_DISABLED")
    assert "wrong orders" in row.detail, "the model is told why"
    assert row.approval is not None
    assert (row.approval.state, row.approval.validation["reason"]) == ("VOIDED", "TOOL_DISABLED")
    assert shop.sent == []


def test_reads_are_refused_too_and_what_is_proposed_later_at_once(shop: Downstream) -> None:
    look = read_tool(lambda: {"found": 1})
    off(name="shop.look")
    run = propose_run((look, {"what": "a"}))
    assert [(row.state, row.reason) for row in [action(run)]] == [("DENIED", "TOOL_DISABLED")]
    on(name="shop.look")
    run = propose_run((look, {"what": "a"}))
    go(run)
    assert states(run) == ["SUCCEEDED"]


def test_an_unknown_write_of_a_tool_that_is_off_is_only_asked_about(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    off()
    for _ in range(3):
        later(run, minutes=10)
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 1)
    assert len(shop.asked) >= 2
    on()
    for _ in range(3):
        later(run, minutes=10)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 2), "sent again with the same key"


def test_a_write_without_effect_is_not_tried_again_while_its_tool_is_off(shop: Downstream) -> None:
    shop.behaves = ["not_sent"]
    shop.during = off
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, minutes=1)
    assert (states(run), action(run).error_class) == (["FAILED"], "switched_off")
    assert len(shop.sent) == 1


def test_an_agent_that_is_off_starts_no_run(shop: Downstream) -> None:
    off("AGENT", "shop")
    with pytest.raises(Refused) as caught:
        start_run(caller=CALLER, request=StartRun(agent="shop", input={}))
    assert caught.value.code == "agent_paused"
    assert "wrong orders" in caught.value.detail
    assert not Run.objects.exists()
    on("AGENT", "shop")
    assert start_run(caller=CALLER, request=StartRun(agent="shop", input={})).state == "QUEUED"


def test_its_live_runs_are_held_before_their_next_call_and_go_on_by_themselves(
    shop: Downstream,
) -> None:
    first, second = write_tool(shop, name="first"), write_tool(shop)
    run = of_the_agent((first, {"what": "a"}), (second, {"what": "b"}))
    shop.during = lambda: off("AGENT", "shop")
    go(run)
    row = Run.objects.get(pk=run)
    assert (row.state, row.resume_to) == ("SUSPENDED", "DISPATCHING_TOOLS")
    assert row.reason == f"{PAUSED}wrong orders"
    assert (states(run), len(shop.sent)) == (["SUCCEEDED", "READY"], 1), "what was sent is recorded"
    assert let_go() == 0, "it is still off"
    go(run)
    assert state_of(run) == "SUSPENDED"

    shop.during = None
    on("AGENT", "shop")
    assert chores.do_once().let_go == 1
    assert let_go() == 0
    assert not Switch.objects.filter(held=True).exists(), "nothing is looked for any more"
    go(run)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED", "SUCCEEDED"], 2)


def test_what_a_switch_needs_and_what_it_leaves(shop: Downstream) -> None:
    write_tool(shop)
    agent_token = decider("token:x", is_agent=True, is_superuser=True)
    for fields, kind in (
        ({"by": decider()}, NotPermitted),
        ({"by": agent_token}, NotPermitted),
        ({"reason": " "}, ReasonRequired),
        ({"name": "shop.nothing"}, InvalidRule),
        ({"kind": "MODEL"}, InvalidRule),
    ):
        with pytest.raises(DecisionError) as caught:
            off(**fields)
        assert type(caught.value) is kind
    assert not SwitchChange.objects.exists()
    off()
    assert [(row.kind, row.name, row.reason) for row in all_off()] == [
        ("TOOL", "shop.pay", "wrong orders")
    ]
    on()
    assert all_off() == []
    history = SwitchChange.objects.order_by("id").values_list("is_off", "changed_by", "reason")
    assert list(history) == [
        (True, "user:olga", "wrong orders"),
        (False, "user:olga", "fixed"),
    ]
    with pytest.raises(DatabaseError), transaction.atomic():
        SwitchChange.objects.update(reason="another")


def in_another_session(act: Callable[[], object]) -> None:
    """Do it on another connection, and wait until it is committed."""

    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


@pytest.mark.requirement("R43")
@pytest.mark.parametrize("asks", [False, True], ids=["in one statement", "under the lock"])
def test_a_start_that_was_decided_before_the_switch_is_not_written_after_it(
    shop: Downstream, asks: bool
) -> None:
    """The switch is flipped while the start is being decided, by the tool's own rule."""
    armed: list[bool] = []

    def rule(_ctx: object, _params: object) -> bool:
        if armed and armed.pop():
            in_another_session(off)
        return asks

    run = propose_run((write_tool(shop, approval=Asks.when(rule, role="boss")), {"what": "a"}))
    if asks:
        go(run)
        decide(run)
    armed.append(True)
    go(run)
    assert armed == [], "it was about to start"
    assert ([action(run).reason], shop.sent) == (["TOOL_DISABLED"], [])


@pytest.mark.requirement("R43")
def test_flipped_under_load_nothing_starts_after_the_commit(shop: Downstream) -> None:
    """Four threads drive runs while the switch is flipped: by the database clock, no attempt
    begins after it."""
    pay = write_tool(shop, probe=False)
    runs = [propose_run((pay, {"what": "a"}), dedupe_key=str(n)) for n in range(24)]
    flipped = threading.Event()

    def drive_all(part: list[UUID]) -> None:
        try:
            for run in part:
                go(run)
        finally:
            connections.close_all()

    def flip() -> Any:
        try:
            while len(shop.sent) < 4:
                pass
            off()
            flipped.set()
            return database_clock()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(5) as pool:
        at = pool.submit(flip)
        done = [pool.submit(drive_all, runs[n::4]) for n in range(4)]
        for part in done:
            part.result()
    began = Attempt.objects.filter(kind="TOOL").values_list("started_at", flat=True)
    assert max(began) < at.result()
    ends = [states(run)[0] for run in runs]
    assert set(ends) == {"SUCCEEDED", "DENIED"}
    assert ends.count("SUCCEEDED") == len(shop.effects) == len(began)
    assert all(
        len(attempts(action(run))) == (state == "SUCCEEDED")
        for run, state in zip(runs, ends, strict=True)
    )
