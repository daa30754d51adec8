"""DBOS: a workflow whose model and tool calls are steps.

Variants: `direct`, called in 16 threads; `async`, 16 at a time in an event loop; `queue`, put into
a queue of DBOS from which every process takes 16 at a time.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from typing import Any

from dbos import DBOS

from bench.foreign.serving import Order, in_tasks, in_threads, order, serve, serve_async
from bench.stub.texts import decision, result

LANES = 16
QUEUE = "bench"
LOOKING = 0.05
"""Seconds after which a process looks into the queue again; DBOS's own default is 1."""


@DBOS.step()
def ask(run: str, turn: int, turns: int) -> dict[str, Any]:
    """The model."""
    return decision(run=run, turn=turn, turns=turns)


@DBOS.step()
def act(decided: dict[str, Any]) -> dict[str, Any]:
    """The tool."""
    return result(decided)


@DBOS.workflow()
def agent(run: str, turns: int) -> str:
    """A run."""
    for turn in range(turns):
        decided = ask(run, turn, turns)
        if decided["tool"] is not None:
            act(decided)
    return str(decided["text"])


@DBOS.step()
async def ask_async(run: str, turn: int, turns: int) -> dict[str, Any]:
    """The model in an event loop."""
    return decision(run=run, turn=turn, turns=turns)


@DBOS.step()
async def act_async(decided: dict[str, Any]) -> dict[str, Any]:
    """The tool in an event loop."""
    return result(decided)


@DBOS.workflow()
async def agent_async(run: str, turns: int) -> str:
    """A run in an event loop."""
    for turn in range(turns):
        decided = await ask_async(run, turn, turns)
        if decided["tool"] is not None:
            await act_async(decided)
    return str(decided["text"])


class Queued:
    """Runs by way of the queue. Looking for results is work for the database, so nobody looks at a
    run alone for most of the shortest time that one has taken so far."""

    def __init__(self, turns: int) -> None:
        self._turns, self._shortest = turns, math.inf

    def work(self, runs: list[str]) -> None:
        alone, begun = len(runs) == 1, time.perf_counter()
        handles = [DBOS.enqueue_workflow(QUEUE, agent, run, self._turns) for run in runs]
        if alone and self._shortest < math.inf:
            time.sleep(0.7 * self._shortest)
        for handle in handles:
            handle.get_result(polling_interval_sec=0.005 if alone else 0.02)
        if alone:
            self._shortest = min(self._shortest, time.perf_counter() - begun)


def main(asked: Order) -> None:
    """Serve until the input ends."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": asked.sqlalchemy_url,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "application_version": "1",
            "executor_id": f"bench-{asked.index}",
        }
    )
    DBOS.launch()
    if asked.variant == "async":
        asyncio.run(_serve_async(asked))
    elif asked.variant == "queue":
        DBOS.register_queue(QUEUE, worker_concurrency=LANES, polling_interval_sec=LOOKING)
        serve(Queued(asked.turns).work, index=asked.index)
    else:
        work = in_threads(lambda run: agent(run, asked.turns), lanes=LANES)
        serve(work, index=asked.index)
    sys.stdout.flush()
    os._exit(0)  # its threads would keep the process for a while


async def _serve_async(asked: Order) -> None:
    async def one_run(run: str) -> None:
        handle = await DBOS.start_workflow_async(agent_async, run, asked.turns)
        await handle.get_result()

    await serve_async(in_tasks(one_run, lanes=LANES), index=asked.index)


if __name__ == "__main__":
    main(order())
