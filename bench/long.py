"""`make bench ARGS="long"`: time and bytes a turn as a run grows.

Isolated runs of each length on one worker that serves all queues, as many as make 200 turns, some
times over and in turn. CPU is that of the worker and of PostgreSQL. Bytes are those of the rows as
PostgreSQL stores them and those of WAL.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from uuid import UUID

from bench import machine, ours, results
from bench.installation import EVERY_STEP, Installation, installation

LENGTHS = (10, 50, 200, 1000)
TURNS = 200
"""Turns that are measured together: short runs alone are lost in the noise."""
GOAL = 1.2
"""Time and stored bytes a turn at 200 turns against 10."""
PATIENCE = 600.0
HEAD = ["turns", "ms a turn", "CPU ms: worker", "PostgreSQL", "stored bytes", "WAL bytes"]
"""Of the table: everything is for one turn."""


@dataclass
class Length:
    """One length: what was measured, each a turn."""

    turns: int
    ms: list[float] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)  # CPU ms
    postgres: list[float] = field(default_factory=list)  # CPU ms
    stored: list[float] = field(default_factory=list)
    wal: list[float] = field(default_factory=list)

    def cpu(self) -> float:
        """The median of both together."""
        both = zip(self.worker, self.postgres, strict=True)
        return statistics.median(one + other for one, other in both)

    def row(self) -> list[str]:
        """For the table."""
        return [
            f"{self.turns:,}",
            machine.spread(self.ms, 2),
            machine.spread(self.worker, 2),
            machine.spread(self.postgres, 2),
            f"{statistics.median(self.stored):,.0f}",
            f"{statistics.median(self.wal):,.0f}",
        ]


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when time or bytes at 200 turns exceed the goal."""
    made = argparse.ArgumentParser(prog="bench long", description=__doc__)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--lengths", default=",".join(str(n) for n in LENGTHS))
    asked = made.parse_args(list(arguments))
    lengths = {int(word): Length(int(word)) for word in asked.lengths.split(",")}
    with installation() as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        (worker,) = place.start_workers(EVERY_STEP)
        alone = ours.Alone(place, seconds=PATIENCE)
        for _ in range(10):
            alone.run(5)
        for repeat in range(asked.repeats):
            for one in lengths.values():
                if one.turns < 1000 or not repeat:
                    _measure(place, alone, worker.pid, one)
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    print(results.table(HEAD, [one.row() for one in lengths.values()]))
    grown = grown_by(lengths)
    if grown:
        print("\n" + told(grown))
    name = "long" if tuple(lengths) == LENGTHS else "long-part"
    results.store(name, {"machine": about, "lengths": [asdict(o) for o in lengths.values()]})
    return 1 if max(grown.get("time", 0.0), grown.get("bytes", 0.0)) > GOAL else 0


def grown_by(lengths: Mapping[int, Length]) -> dict[str, float]:
    """What a turn takes at 200 turns, over that at 10. Empty unless both were measured."""
    short, long = lengths.get(10), lengths.get(200)
    if not short or not long:
        return {}
    return {
        "time": statistics.median(long.ms) / statistics.median(short.ms),
        "bytes": statistics.median(long.stored) / statistics.median(short.stored),
        "CPU": long.cpu() / short.cpu(),
    }


def told(grown: Mapping[str, float]) -> str:
    """The ratios as text."""
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in grown.items())
    return (
        f"A turn of 200 against one of 10: {ratios}; the goal for time and bytes is {GOAL} at most."
    )


def _measure(place: Installation, alone: ours.Alone, pid: int, one: Length) -> None:
    times = max(1, TURNS // one.turns)
    turns = times * one.turns
    lsn, worker, postgres = place.number(_LSN), machine.cpu_of([pid]), place.servers_cpu()[0]
    seconds, ids = 0.0, []
    for _ in range(times):
        taken, run_id = alone.run(one.turns)
        seconds += taken
        ids.append(run_id)
    one.ms.append(1000 * seconds / turns)
    one.worker.append(1000 * (machine.cpu_of([pid]) - worker) / turns)
    one.postgres.append(1000 * (place.servers_cpu()[0] - postgres) / turns)
    one.wal.append((place.number(_LSN) - lsn) / turns)
    one.stored.append(sum(_stored(place, run_id) for run_id in ids) / turns)
    results.progress(f"{one.turns} turns: {one.ms[-1]:.2f} ms, {one.stored[-1]:.0f} bytes a turn")


_LSN = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


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
