"""`make bench ARGS="long"`: time and bytes a turn as a run grows.

One isolated run of each length, some times over, on one worker that serves all queues. Bytes are
those of the rows as PostgreSQL stores them and those of WAL.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from bench import machine, ours, results
from bench.installation import EVERY_STEP, Installation, installation

LENGTHS = (10, 50, 200, 1000)
GOAL = 1.2
"""Time and stored bytes a turn at 200 turns against 10."""


@dataclass
class Length:
    """One length: medians of its repeats, each a turn."""

    turns: int
    ms: float
    spread: str
    stored: float
    wal: float


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when time or bytes at 200 turns exceed the goal."""
    made = argparse.ArgumentParser(prog="bench long", description=__doc__)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--lengths", default=",".join(str(n) for n in LENGTHS))
    asked = made.parse_args(list(arguments))
    lengths = [int(word) for word in asked.lengths.split(",")]
    with installation() as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        place.start_workers(EVERY_STEP)
        for _ in range(10):
            _one(place, 5)
        found = [_length(place, turns, asked.repeats) for turns in lengths]
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    head = ["turns", "ms a turn", "stored bytes a turn", "WAL bytes a turn"]
    rows = [[one.turns, one.spread, f"{one.stored:.0f}", f"{one.wal:.0f}"] for one in found]
    print(results.table(head, rows))
    by_turns = {one.turns: one for one in found}
    met = True
    if 10 in by_turns and 200 in by_turns:
        time_ratio = by_turns[200].ms / by_turns[10].ms
        bytes_ratio = by_turns[200].stored / by_turns[10].stored
        met = max(time_ratio, bytes_ratio) <= GOAL
        print(f"\n200 against 10 turns: time {time_ratio:.2f}, bytes {bytes_ratio:.2f} (<= {GOAL})")
    results.store("long", {"machine": about, "lengths": [asdict(one) for one in found]})
    return 0 if met else 1


def _length(place: Installation, turns: int, repeats: int) -> Length:
    taken, stored, wal = [], [], []
    for _ in range(repeats if turns < 1000 else 1):
        before = place.number(_LSN)
        seconds, run_id = _one(place, turns)
        wal.append((place.number(_LSN) - before) / turns)
        taken.append(1000 * seconds / turns)
        stored.append(_stored(place, run_id) / turns)
    one = Length(
        turns,
        statistics.median(taken),
        machine.spread(taken, 2),
        statistics.median(stored),
        statistics.median(wal),
    )
    results.progress(f"{turns} turns: {one.ms:.2f} ms, {one.stored:.0f} bytes a turn")
    return one


_LSN = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


def _one(place: Installation, turns: int) -> tuple[float, UUID]:
    begun = time.perf_counter()
    run_id = ours.start_run(turns)
    ours.wait_for_one(place, run_id)
    return time.perf_counter() - begun, run_id


def _stored(place: Installation, run_id: UUID) -> int:
    """Bytes of all rows of the run, as they are stored."""
    from bench.context import TABLES  # needs Django

    return sum(
        place.number(
            f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"  # noqa: S608
            f" WHERE t.{column} = %s",
            run_id,
        )
        for table, column in TABLES.items()
    )
