"""The loop of a program that does runs when it is told to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count


def serve(one_run: Callable[[str], object], *, lanes: int) -> None:
    """Do as many runs as each line of the input says, `lanes` at a time, until it ends."""
    numbers = count()
    _say("ready")
    for line in sys.stdin:
        asked = int(line)
        runs = [f"run-{next(numbers)}" for _ in range(asked)]
        threads = [
            threading.Thread(target=_lane, args=(one_run, runs[n::lanes]))
            for n in range(min(lanes, asked))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _say("done")


def _lane(one_run: Callable[[str], object], runs: list[str]) -> None:
    for run in runs:
        one_run(run)


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
