"""Models that lie, loop, stall or overspend: the run always ends, and never with a lie."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from agentcore.budgets import Budget
from agentcore.ledger import Entry
from agentcore.lifecycle import RunState
from runs.models import Run
from tests.replies.desk import Desk
from tests.replies.models_at_random import MODELS, Model
from tests.replies.tools_of_the_desk import MADE, READ
from tools import Effect, ToolContext, tool

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = int(os.environ.get("MODELS_AT_RANDOM", "35"))
ENDS = {
    "lie": {"COMPLETED", "INCOMPLETE"},
    "loop": {"INCOMPLETE"},
    "flip-flop": {"INCOMPLETE"},
    "stall": {"INCOMPLETE", "FAILED"},
    "overspend": {"INCOMPLETE"},
    "poll": {"COMPLETED"},
    "work": {"COMPLETED"},
}


@pytest.mark.requirement("R4", "R70", "R72", "R73", "R79")
def test_no_model_gets_past_the_limits(desk: Desk) -> None:
    @tool(effect=Effect.READ, polling=True, app_label="desk")
    def wait_for_order(ctx: ToolContext, order_id: str) -> str:
        """Wait for an order.

        Args:
            order_id: its number.
        """
        return "not yet"

    desk.tools["wait_for_order"] = wait_for_order
    found: Counter[str] = Counter()
    for seed in range(COUNT):
        model = MODELS[seed % len(MODELS)](random.Random(seed))
        MADE.clear()
        READ.clear()
        run = play(desk, model)
        found[f"{model.kind}: {run.state}"] += 1
        judge(desk, run, model, seed)
    print(dict(sorted(found.items())))


def play(desk: Desk, model: Model) -> Run:
    desk.script(*model.answers)
    tools = ["get_order", "refund_order", "wait_for_order"]
    budget = replace(Budget(), tokens=model.tokens)
    run = desk.start(tools=tools, budget=budget)
    return desk.drive(run)


def judge(desk: Desk, run: Run, model: Model, seed: int) -> None:
    told = f"seed {seed}, {model.kind}: {run.state} {run.stop_reason} {run.reason}"
    assert run.state in ENDS[model.kind], told
    if run.state == RunState.COMPLETED and not MADE:
        assert "refunded" not in str(run.output).lower(), f"a false COMPLETED: {told}"
    calls = Counter((a.tool, a.params_hash) for a in desk.actions(run) if a.params_hash)
    polled = {key for key in calls if key[0] == "desk.wait_for_order"}
    assert all(n <= 4 for key, n in calls.items() if key not in polled), told
    if model.tokens is not None:
        over = run.tokens_used - model.tokens
        assert over <= _largest_excess(desk, run), told
    desk.check(run)


def _largest_excess(desk: Desk, run: Run) -> int:
    """By how much the last call went beyond its reservation."""
    lines = desk.ledger(run)
    reserved = {x.attempt_id: x for x in lines if x.entry == Entry.RESERVE}
    settled = [x for x in lines if x.entry == Entry.SETTLE]
    excess = [
        x.input_tokens
        + x.output_tokens
        - reserved[x.attempt_id].input_tokens
        - reserved[x.attempt_id].output_tokens
        for x in settled
    ]
    return max(0, excess[-1]) if excess else 0
