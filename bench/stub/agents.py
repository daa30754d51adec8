"""The agents of the measurements, with limits that runs of a thousand turns do not meet."""

from __future__ import annotations

from datetime import timedelta

from agentcore.budgets import Budget
from agentcore.compaction import ContextPolicy
from agentcore.progress import NoProgress
from bench.stub.texts import MOST_TURNS
from runs.agents import agent

NAME, READER = "bench", "bench_reader"
BUDGET = Budget(turns=MOST_TURNS, actions=MOST_TURNS, wall=timedelta(hours=6))
NEVER = NoProgress(same_call=MOST_TURNS, same_error=MOST_TURNS, turns_without_fact=MOST_TURNS)

agent(
    name=NAME,
    version="1",
    instructions="Move every amount, then say that all were moved.",
    tools=["stub.transfer"],
    budget=BUDGET,
    no_progress=NEVER,
)
agent(
    name=READER,
    version="1",
    instructions="Read every page, then say that all were read.",
    tools=["stub.read_page"],
    context=ContextPolicy(window=1_000_000),  # so that nothing is compacted
    budget=BUDGET,
    no_progress=NEVER,
)
