"""The budget of a tree of runs: slices that are set aside, used, given back."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.budgets import Budget
from runs import limits
from runs.models import Event, Run
from runs.services import pause_run, resume_run
from runs.view import load_view
from tests.runs.acting import Downstream, action, actions, go
from tests.runs.families import ASK, child_of, drive_to, family, pays, says

BUDGET = Budget(turns=10, actions=12, tokens=20_000, cost="0.01 USD")


def _lent(run_id: Any) -> tuple[int, int, int, int, int]:
    run = Run.objects.get(pk=run_id)
    return run.turns_lent, run.actions_lent, run.handoffs_lent, run.tokens_held, run.cost_held


@pytest.mark.requirement("R69")
def test_a_slice_is_set_aside_and_what_is_not_used_comes_back(shop: Downstream) -> None:
    with family(shop, budget=BUDGET) as made:
        run_id = made.run()
        says(run_id, ASK, tokens=2000)
        drive_to(run_id)
        child = child_of(run_id)
        assert (child.max_turns, child.max_actions) == (6, 6), "the helper's own budget"
        assert (child.max_tokens, child.max_cost) == (9000, 5000), "half of what is left"
        assert _lent(run_id) == (6, 6, 1, 9000, 5000)
        says(child.id, pays("a"), tokens=400)
        drive_to(child.id)
        says(child.id, text="done", tokens=300)
        drive_to(child.id)
        drive_to(run_id)
        assert _lent(run_id) == (2, 1, 1, 0, 0)
        assert Run.objects.get(pk=run_id).tokens_used == 2700
        notes = [event.data for event in Event.objects.filter(run_id=run_id)]
        assert {"tokens_held": [0, 9000], "cost_held": [0, 5000]} in [n.get("lent") for n in notes]
        assert [9000, 0] in [(n.get("returned") or {}).get("tokens_held") for n in notes]


@pytest.mark.requirement("R69")
def test_two_children_at_once_share_what_is_left(shop: Downstream) -> None:
    with family(shop, budget=BUDGET, own=Budget(turns=50, actions=50)) as made:
        run_id = made.run()
        says(run_id, ASK, ASK, tokens=2000)
        drive_to(run_id)
        first, second = child_of(run_id, 0), child_of(run_id, 1)
        assert (first.max_turns, second.max_turns) == (4, 4)
        assert (first.max_actions, second.max_actions) == (5, 5)
        assert (first.max_tokens, second.max_tokens) == (6000, 6000)
        parent = Run.objects.get(pk=run_id)
        assert parent.turns_lent + 1 < parent.max_turns
        assert parent.tokens_used + parent.tokens_held <= 20_000


def test_a_child_that_uses_up_its_slice_ends_and_its_parent_goes_on(shop: Downstream) -> None:
    own = Budget(turns=2, actions=6, on_exhausted="suspend")
    with family(shop, budget=BUDGET, own=own) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        for what in ("a", "b"):
            says(child.id, pays(what))
            drive_to(child.id)
        go(child.id, inline=frozenset({"compile", "tools", "observe"}))
        ended = Run.objects.get(pk=child.id)
        assert (ended.state, ended.stop_reason) == ("INCOMPLETE", "BUDGET"), "never SUSPENDED"
        assert drive_to(run_id) == "COMPILING_CONTEXT"
        assert action(run_id).result["status"] == "incomplete"
        assert len(action(run_id).result["effects"]) == 2


@pytest.mark.requirement("R67", "R82")
def test_the_number_of_children_is_capped_for_the_whole_tree(shop: Downstream) -> None:
    """A reply that asks for more is not run at all (`call_model`), and nothing starts beyond it."""
    with family(shop, budget=Budget(turns=10, actions=12, handoffs=2)) as made:
        run_id = made.run()
        says(run_id, ASK, ASK, ASK)
        said = "3 runs of other agents asked for, 2 are allowed"
        assert limits.over(load_view(run_id)) == said
        drive_to(run_id)
        rows = actions(run_id)
        assert [row.state for row in rows] == ["RUNNING", "RUNNING", "DENIED"]
        assert rows[2].reason == "BUDGET"
        assert _lent(run_id)[2] == 2
        stop = limits.stop_of(load_view(run_id))
        assert stop is not None
        assert (stop.reason, stop.detail) == ("BUDGET", said)


@pytest.mark.requirement("R69")
def test_a_pause_keeps_what_was_spent_and_lent(shop: Downstream) -> None:
    with family(shop, budget=BUDGET) as made:
        run_id = made.run()
        says(run_id, ASK, tokens=2000)
        drive_to(run_id)
        before = (_lent(run_id), Run.objects.get(pk=run_id).tokens_used)
        pause_run(run_id=run_id, actor="user:olga")
        resume_run(run_id=run_id, actor="user:olga")
        assert (_lent(run_id), Run.objects.get(pk=run_id).tokens_used) == before
        assert drive_to(run_id) == "WAITING_CHILD"
        child = child_of(run_id)
        says(child.id, text="done", tokens=500)
        drive_to(child.id)
        drive_to(run_id)
        assert Run.objects.get(pk=run_id).tokens_used == 2500
