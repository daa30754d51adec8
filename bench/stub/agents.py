"""The agent of the workload, with limits that runs of a thousand turns do not meet."""

from __future__ import annotations

from datetime import timedelta

from agentcore.budgets import Budget
from agentcore.progress import NoProgress
from bench.stub.texts import MOST_TURNS
from runs.agents import agent

NAME = "bench"

agent(
    name=NAME,
    version="1",
    instructions="Move every amount, then say that all were moved.",
    tools=["stub.transfer"],
    budget=Budget(turns=MOST_TURNS, actions=MOST_TURNS, wall=timedelta(hours=6)),
    no_progress=NoProgress(
        same_call=MOST_TURNS, same_error=MOST_TURNS, turns_without_fact=MOST_TURNS
    ),
)
