"""The loop of a program that does runs when it is told to."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any


@dataclass(frozen=True)
class Order:
    """What a program is started for: the address of what it stores in, which of the processes of
    one measurement it is, the turns of a run, and which way of the peer is measured."""

    address: str
    index: int
    turns: int
    variant: str

    @property
    def sqlalchemy_url(self) -> str:
        """The address of the database as SQLAlchemy wants it."""
        return re.sub("^postgres(ql)?://", "postgresql+psycopg://", self.address)


def order() -> Order:
    """From the command line."""
    address, index, turns, variant = sys.argv[1:5]
    return Order(address, int(index), int(turns), variant)


def serve(work: Callable[[list[str]], object], *, index: int) -> None:
    """Have `work` do as many runs as each line of the input says, until it ends."""
    names = _Names(index)
    _say("ready")
    for line in sys.stdin:
        work(names.next(int(line)))
        _say("done")


async def serve_async(work: Callable[[list[str]], Awaitable[object]], *, index: int) -> None:
    """`serve` in an event loop."""
    names = _Names(index)
    loop = asyncio.get_running_loop()
    _say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await work(names.next(int(line)))
        _say("done")


def in_threads(one_run: Callable[[str], object], *, lanes: int) -> Callable[[list[str]], None]:
    """Do runs `lanes` at a time, each lane a thread; a run alone in the thread that asks."""

    def lane(runs: list[str]) -> None:
        for run in runs:
            one_run(run)

    def work(runs: list[str]) -> None:
        if len(runs) == 1:
            lane(runs)
            return
        failed: list[BaseException] = []
        threads = [
            threading.Thread(target=_kept, args=(lane, runs[n::lanes], failed))
            for n in range(lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    return work


def in_tasks(
    one_run: Callable[[str], Awaitable[Any]], *, lanes: int
) -> Callable[[list[str]], Awaitable[None]]:
    """Do runs `lanes` at a time in an event loop."""

    async def lane(runs: list[str]) -> None:
        for run in runs:
            await one_run(run)

    async def work(runs: list[str]) -> None:
        await asyncio.gather(*(lane(runs[n::lanes]) for n in range(min(lanes, len(runs)))))

    return work


def _kept(lane: Callable[[list[str]], None], runs: list[str], failed: list[BaseException]) -> None:
    """A lane whose error is seen by the thread that waits for it."""
    try:
        lane(runs)
    except BaseException as error:  # noqa: BLE001  (it is raised again)
        failed.append(error)


class _Names:
    """Names of runs, which no other process of the measurement gives."""

    def __init__(self, index: int) -> None:
        self._index, self._numbers = index, count()

    def next(self, many: int) -> list[str]:
        return [f"run-{self._index}-{next(self._numbers)}" for _ in range(many)]


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
