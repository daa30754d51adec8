"""How often a tool may be called: one count for a run and all runs below it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from agentcore.budgets import Budget
from agentcore.values import Effect
from runs import caps, commits, limits
from runs.agents import AgentTool, agent
from runs.transitions import Draft
from runs.view import load_view
from tests.runs import acting
from tests.runs.acting import Downstream, actions, decide, go
from tests.runs.families import (
    ASK,
    SCOPE,
    Family,
    Said,
    child_of,
    drive_to,
    family,
    pays,
    says,
)
from tests.world import wait_for
from tools import Approval as Asks

REFUSED = [("DENIED", "CALL_LIMIT")]


def _told(run_id: UUID) -> list[tuple[str, str]]:
    """State and reason of the payments of a run."""
    rows = actions(run_id)
    return [(row.state, row.reason) for row in rows if row.tool == "shop.pay"]


def _two(made: Family, **fields: Any) -> tuple[UUID, UUID, UUID]:
    """A run and its two children, of which each wants to pay something else."""
    run_id = made.run(**fields)
    says(run_id, ASK, ASK)
    drive_to(run_id)
    first, second = child_of(run_id, 0).id, child_of(run_id, 1).id
    says(first, pays("a"))
    says(second, pays("b"))
    return run_id, first, second


@pytest.mark.requirement("R67", "R82")
def test_a_cap_of_a_tool_holds_for_the_whole_tree(shop: Downstream) -> None:
    with family(shop, max_calls_per_run=1) as made:
        run_id, first, second = _two(made)
        for child in (first, second):
            drive_to(child)
        assert (_told(first), _told(second)) == ([("SUCCEEDED", "")], REFUSED)
        for child in (first, second):
            says(child, text="That is all.")
            drive_to(child)
        drive_to(run_id)
        says(run_id, pays("c"))
        drive_to(run_id)
        assert _told(run_id) == REFUSED
        assert "one run and the runs of its agents" in actions(run_id)[-1].detail
        assert [what for _, what in shop.effects] == ["a"]


def test_what_a_parent_has_called_counts_for_its_children(shop: Downstream) -> None:
    with family(shop, max_calls_per_run=1) as made:
        run_id = made.run()
        says(run_id, pays("c"), ASK)
        drive_to(run_id)
        child = child_of(run_id, 1).id
        says(child, pays("a"))
        drive_to(child)
        assert (_told(run_id), _told(child)) == ([("SUCCEEDED", "")], REFUSED)


def test_the_calls_of_another_tree_do_not_count(shop: Downstream) -> None:
    with family(shop, max_calls_per_run=1) as made:
        for what in ("a", "b"):
            run_id = made.run()
            says(run_id, ASK)
            drive_to(run_id)
            child = child_of(run_id).id
            says(child, pays(what))
            drive_to(child)
            assert _told(child) == [("SUCCEEDED", "")]


def test_what_a_dry_run_would_call_counts(shop: Downstream) -> None:
    with family(shop, max_calls_per_run=1) as made:
        _, first, second = _two(made, dry_run=True)
        for child in (first, second):
            drive_to(child)
        assert (_told(first), _told(second)) == ([("VOIDED", "DRY_RUN")], REFUSED)


# --- two at the same moment ----------------------------------------------------------------


def _beside(act: Callable[[], object]) -> threading.Thread:
    """Begin it on another connection."""

    def work() -> None:
        try:
            act()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.requirement("R82")
@pytest.mark.parametrize("asks", [False, True], ids=["at-once", "one-by-one"])
def test_a_sibling_that_begins_after_the_look_is_seen(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """The second plans its start, then the first begins, then the second is written."""
    options = {"approval": Asks.always(role="agent_approver")} if asks else {}
    with family(shop, max_calls_per_run=1, **options) as made:
        _, first, second = _two(made)
        if asks:
            for child in (first, second):
                drive_to(child)
                decide(child)
        todo, reached = [first], caps.reached

        def planned(view: Any, *rest: Any) -> str:
            said = reached(view, *rest)
            if view.run.id == second and todo:
                _beside(lambda: drive_to(todo.pop())).join(20)
            return said

        monkeypatch.setattr(caps, "reached", planned)
        drive_to(second)
        assert (_told(first), _told(second), todo) == ([("SUCCEEDED", "")], REFUSED, [])


@pytest.mark.requirement("R82")
@pytest.mark.parametrize("asked", ["a", "ab"], ids=["at-once", "one-by-one"])
def test_siblings_that_begin_at_the_same_moment_wait_for_each_other(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The start of the first is written and not committed while the second begins. One that a
    person was asked about is not written as one statement."""
    rule = Asks.when(lambda _, p: p.what in asked, role="agent_approver")
    with family(shop, max_calls_per_run=1, approval=rule) as made:
        _, first, second = _two(made)
        for child in (first, second)[: len(asked)]:
            drive_to(child)
            decide(child)
        hit, begun = commits.failpoints.hit, list[threading.Thread]()

        def meets(name: str) -> None:
            written = name == "tool.intent.before_commit" and connection.in_atomic_block
            if written and not begun:
                begun.append(_beside(lambda: drive_to(second)))
                wait_for(lambda: _is_held(begun[0]), seconds=20, what="the second")
            hit(name)

        monkeypatch.setattr(commits.failpoints, "hit", meets)
        drive_to(first)
        begun[0].join(20)
        assert (_told(first), _told(second)) == ([("SUCCEEDED", "")], REFUSED)
        assert [what for _, what in shop.effects] == ["a"]


def _is_held(thread: threading.Thread) -> bool:
    """Whether it waits for the lock of the tree, or has come to its end without."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return bool(cursor.fetchone()[0]) or not thread.is_alive()


# --- the budget of a run above -------------------------------------------------------------

ONE = Budget(turns=10, actions=12, tool_calls={"shop.pay": 1})


@pytest.mark.requirement("R69", "R82")
def test_a_tool_budget_of_a_parent_holds_for_its_children(shop: Downstream) -> None:
    with family(shop, budget=ONE) as made:
        run_id, first, second = _two(made)
        for child in (first, second):
            drive_to(child)
        assert (_told(first), _told(second)) == ([("SUCCEEDED", "")], REFUSED)
        assert "for boss and the agents that it calls" in actions(second)[0].detail
        for child in (first, second):
            says(child, text="That is all.")
            drive_to(child)
        drive_to(run_id)
        says(run_id, pays("c"))
        assert limits.over(load_view(run_id)) == "1 calls of shop.pay, 0 are allowed"


@pytest.mark.requirement("R69")
def test_what_the_parent_asked_for_itself_is_taken_off(shop: Downstream) -> None:
    """Also what was refused: its own calls count when they are proposed."""
    with family(shop, budget=ONE) as made:
        run_id = made.run(scopes=["other"])
        says(run_id, pays("c"), ASK)
        drive_to(run_id)
        assert [row.state for row in actions(run_id)] == ["DENIED", "RUNNING"]
        child = child_of(run_id, 1).id
        says(child, pays("a"))
        view = load_view(child)
        spec = made.pay.spec
        assert [(cap.most, cap.asks) for cap in caps.caps_of(view, spec)] == [(1, run_id)]
        draft = Draft(run=view.run, now=view.now)
        assert caps.reached(view, draft, view.actions[0], spec) != ""


def test_a_budget_in_the_middle_holds_below_it_alone(shop: Downstream) -> None:
    """Two branches of a chief: each may pay once, and what the other does is not its concern."""
    asks_helper: Said = ("agents__boss", {"task": "x"})
    with family(shop, budget=ONE) as made:
        chief = agent(
            name="chief", version="1", model="m", instructions="x",
            tools=[AgentTool(agent="boss", effect=Effect.WRITE, scopes=(SCOPE,))],
            budget=Budget(turns=20, actions=40),
        )  # fmt: skip
        made.boss = chief
        run_id = made.run()
        says(run_id, asks_helper, asks_helper)
        drive_to(run_id)
        middle = [child_of(run_id, n).id for n in (0, 1)]
        lowest = []
        for one in middle:
            says(one, ASK, ASK)
            drive_to(one)
            lowest.append((child_of(one, 0).id, child_of(one, 1).id))
        for whats, pair in zip(("ab", "bc"), lowest, strict=True):
            for what, child in zip(whats, pair, strict=True):
                says(child, pays(what))
                drive_to(child)
        told = [[_told(child) for child in pair] for pair in lowest]
        assert told == [[[("SUCCEEDED", "")], REFUSED], [[("SUCCEEDED", "")], REFUSED]]


# --- what it costs -------------------------------------------------------------------------


def test_a_run_that_is_alone_pays_nothing(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("counted elsewhere")

    monkeypatch.setattr(caps, "_count", never)
    monkeypatch.setattr(caps, "_Guard", never)
    with family(shop, max_calls_per_run=1, budget=ONE) as made:
        run_id = made.run()
        says(run_id, pays("a"))
        go(run_id)
        assert acting.states(run_id) == ["SUCCEEDED"]
