"""Temporal: a workflow whose model and tool calls are activities, 50 runs at a time.

Variants: `activity`, dispatched by the server; `local`, run by the process that runs the workflow
and recorded in its history. Each process has a task queue of its own.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from bench.foreign.serving import Order, in_tasks, order, serve_async
from bench.stub.texts import decision, result

LANES = 50
AT_ONCE = 100
"""Workflow tasks and activities in one process."""
LIMIT = timedelta(seconds=60)


@activity.defn
async def ask(run: str, turn: int, turns: int) -> dict[str, Any]:
    """The model."""
    return decision(run=run, turn=turn, turns=turns)


@activity.defn
async def act(decided: dict[str, Any]) -> dict[str, Any]:
    """The tool."""
    return result(decided)


@workflow.defn(sandboxed=False)
class Agent:
    """A run."""

    @workflow.run
    async def run(self, run: str, turns: int, local: bool) -> str:
        """The text of the last decision."""
        call = workflow.execute_local_activity if local else workflow.execute_activity
        for turn in range(turns):
            decided = await call(ask, args=[run, turn, turns], start_to_close_timeout=LIMIT)
            if decided["tool"] is not None:
                await call(act, args=[decided], start_to_close_timeout=LIMIT)
        return str(decided["text"])


async def main(asked: Order) -> None:
    """Serve until the input ends."""
    client = await Client.connect(asked.address)
    queue, local = f"bench-{asked.index}", asked.variant == "local"

    async def one_run(run: str) -> None:
        given = [run, asked.turns, local]
        await client.execute_workflow(Agent.run, args=given, id=run, task_queue=queue)

    async with Worker(
        client,
        task_queue=queue,
        workflows=[Agent],
        activities=[ask, act],
        max_concurrent_activities=AT_ONCE,
        max_concurrent_workflow_tasks=AT_ONCE,
    ):
        await serve_async(in_tasks(one_run, lanes=LANES), index=asked.index)


if __name__ == "__main__":
    asyncio.run(main(order()))
