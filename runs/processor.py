"""Which processor the threads of this worker run on: one, as long as it has time for them.

Python runs one thread of a process at a time, so a worker has no use for a second processor. Left
alone, the kernel wakes each of its threads wherever there is room, and what the interpreter works
on travels from cache to cache with them: 22.9 ms of CPU a five-turn run instead of 17.5, measured
in a worker of 16 threads on two processors.

Each beat looks whether others crowd that processor. The worker moves to one with room; where there
is none it wanders again until it gets calm. Outside calls of tools may run anywhere, with whatever
processes they start. Linux; nothing happens elsewhere, where there is one processor only, or with
`one_processor` off.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

CROWDED = 0.25
"""Others take so much of a processor: a worker there moves to one with room."""
FULL = 0.5
"""Others take so much of it, and no other one has room: the worker wanders as the kernel likes."""
CALM = 0.35
"""Others take no more than this of a processor: a worker that wanders settles there."""
ROOM = 0.25
"""So much of a processor is idle: there is room."""
STAT = Path("/proc/stat")
WRONG = (OSError, ValueError, LookupError)
"""What may be wrong with it: the worker is left alone then; that costs speed and nothing else."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Processor -> seconds it was busy and seconds that went by, both since the machine started."""

    seconds: Mapping[int, tuple[float, float]]

    def since(self, before: Busy) -> dict[int, float]:
        """Processor -> share of its time that it was busy (0 to 1) between two looks."""
        shares = {}
        for number, (busy, passed) in self.seconds.items():
            busy_before, passed_before = before.seconds.get(number, (0.0, 0.0))
            shares[number] = (busy - busy_before) / max(passed - passed_before, 0.001)
        return shares


def where(shares: Mapping[int, float], *, here: int | None, mine: float) -> int | None:
    """The processor to be on from now on; None is any of them, as the kernel likes.

    `shares`: how busy each one was, by all that ran there; `here`: the one the process was on, and
    `mine`: what of a processor it took itself. Those who are free to run where there is room leave
    no room elsewhere, so nobody moves for them.
    """
    if here is None or here not in shares:
        others = {number: share - mine / len(shares) for number, share in shares.items()}
        best = min(others, key=lambda number: others[number], default=None)
        return best if best is not None and others[best] <= CALM else None
    idlest = min(shares, key=lambda number: shares[number])
    taken = shares[here] - mine
    if taken >= CROWDED and shares[idlest] <= 1 - ROOM:
        return idlest
    return None if taken >= FULL else here


class _Keeper:
    """Keeps the threads of this process on one of the `allowed` processors."""

    def __init__(self, allowed: frozenset[int]) -> None:
        self.allowed = allowed
        self.here: int | None = None
        self.away: set[int] = set()  # threads in an outside call, by the kernel's number
        self._busy, self._mine, self._at = _busy(), time.process_time(), time.monotonic()

    @property
    def processors(self) -> frozenset[int]:
        """Those that a thread of this process may run on now."""
        return self.allowed if self.here is None else frozenset({self.here})

    def move(self, number: int | None) -> None:
        """All threads that are not in an outside call."""
        self.here = number
        _allow(_threads() - self.away, self.processors)

    def look(self) -> None:
        """Move over when others are in the way. Raises OSError, ValueError, IndexError."""
        busy, mine, at = _busy(), time.process_time(), time.monotonic()
        shares = busy.since(self._busy)
        own = (mine - self._mine) / max(at - self._at, 0.001)
        self._busy, self._mine, self._at = busy, mine, at
        there = {number: shares[number] for number in self.allowed & shares.keys()}
        number = where(there, here=self.here, mine=own)
        # Two workers that met on one must not both leave it for the same other one.
        if number != self.here and random.random() < 0.5:  # noqa: S311
            log.info("this worker moves from processor %s to %s", self.here, number)
            self.here = number
        self.move(self.here)  # also a thread that came back from a call meanwhile


_keeper: _Keeper | None = None


def keep(*, order: int) -> int | None:
    """Keep this process to one processor from now on; returns its number, None: it is left alone.

    `order`: workers of one machine that count themselves through begin on different ones.
    """
    global _keeper  # noqa: PLW0603  (one a process)
    one_at_a_time = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not hasattr(os, "sched_setaffinity") or not one_at_a_time:
        return None
    allowed = frozenset(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None
    try:
        _keeper = _Keeper(allowed)
        _keeper.move(sorted(allowed)[order % len(allowed)])
    except WRONG as error:
        _give_up(error)
        return None
    return _keeper.here


def look() -> None:
    """Called with each beat. Never raises: the beat must go on."""
    if _keeper is None:
        return
    try:
        _keeper.look()
    except WRONG as error:
        _give_up(error)


def free() -> None:
    """Let all threads run anywhere again, also those of a program that takes the place of this."""
    global _keeper
    keeper, _keeper = _keeper, None
    if keeper is not None:
        _allow(_threads(), keeper.allowed)


@contextmanager
def anywhere() -> Iterator[None]:
    """What this thread does in the block, and the processes it starts, may run on any processor.

    Never raises of its own.
    """
    keeper = _keeper
    if keeper is None:
        yield
        return
    thread = threading.get_native_id()
    keeper.away.add(thread)
    _allow({thread}, keeper.allowed)
    try:
        yield
    finally:
        keeper.away.discard(thread)
        _allow({thread}, keeper.processors if keeper is _keeper else keeper.allowed)


def _threads() -> set[int]:
    """Those of Python, by the kernel's number: those of a library work beside the interpreter."""
    return {thread.native_id for thread in threading.enumerate() if thread.native_id is not None}


def _allow(threads: Iterable[int], processors: frozenset[int]) -> None:
    for thread in threads:
        try:
            os.sched_setaffinity(thread, processors)
        except OSError as error:  # it has ended, or none of these is allowed any more
            log.debug("thread %d may not run on %s: %s", thread, sorted(processors), error)


def _give_up(error: Exception) -> None:
    log.warning("this worker is not kept to one processor: %s", error)
    free()


def _busy() -> Busy:
    """What the kernel says of each processor. Raises OSError, ValueError."""
    tick = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for line in STAT.read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            # user nice system idle iowait irq softirq steal; guest times are within user and nice
            values = [int(field) / tick for field in fields[:8]]
            passed = sum(values)
            seconds[int(name[3:])] = (passed - values[3] - values[4], passed)
    return Busy(seconds)
