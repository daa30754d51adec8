"""`make bench ARGS="context"`: stored bytes and compile time at 50 and 100 tool calls.

A conversation of 100 calls whose outputs come to about 200,000 tokens, through the real steps on a
real database. The texts are random words, which compress no better than prose.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bench import machine, ours, results
from bench.counts import drive_to_the_end, stop
from bench.installation import installation
from bench.stub.texts import words

if TYPE_CHECKING:
    from runs.models import Run

__all__ = ["Grown", "measure", "told", "words"]

CHARACTERS = 8000
"""Of one output."""
GOALS = {"stored bytes": 2.4, "compile ms": 2.4, "request bytes": 2.4}
"""100 calls against 50, at most; and stored bytes at most twice those of the raw items."""

TABLES = {
    "runs_turn": "run_id",
    "runs_actionjournal": "run_id",
    "runs_attempt": "run_id",
    "runs_event": "run_id",
    "runs_evidence": "run_id",
    "runs_ledger": "run_id",
}


@dataclass(frozen=True)
class Grown:
    """One run after some calls. Bytes as PostgreSQL stores them; `raw` are the items themselves."""

    calls: int
    raw: int
    stored: int
    by_table: dict[str, int]
    read_seconds: float
    compile_seconds: float
    request_bytes: int


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed."""
    made = argparse.ArgumentParser(prog="bench context", description=__doc__)
    made.add_argument("--calls", type=int, default=50, help="of the shorter conversation")
    asked = made.parse_args(list(arguments))
    with installation() as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        small, large = (_conversation(asked.calls * times) for times in (1, 2))
        stop()
    print(results.describe(about))
    print(told(small, large))
    found = judged(small, large)
    print("\n".join(f"{name}: {ratio:.2f} (<= {goal})" for name, ratio, goal in found))
    results.store("context", {"machine": about, "runs": [asdict(small), asdict(large)]})
    return int(any(ratio > goal for _, ratio, goal in found))


def _conversation(calls: int) -> Grown:
    from runs.models import Run

    run_id = ours.start_run(calls + 1, agent="bench_reader", page=CHARACTERS)
    drive_to_the_end(run_id)
    return measure(Run.objects.get(pk=run_id))


def judged(small: Grown, large: Grown) -> list[tuple[str, float, float]]:
    """(what, ratio, the most it may be)."""
    found = figures(small, large)
    grown = [(name, found[name][1] / found[name][0], goal) for name, goal in GOALS.items()]
    return [*grown, ("stored against raw bytes", large.stored / large.raw, 2.0)]


def measure(run: Run) -> Grown:
    """Stored bytes of all rows of `run`, and the time to read it and to compile its last turn."""
    from agentcore.context import Frame
    from runs.contexts import compile_turn, observation_of
    from runs.view import load_view

    begun = time.perf_counter()
    view = load_view(run.id)
    read = time.perf_counter() - begun
    last = view.turns[-1]
    frame = Frame.read(last.manifest)
    best, size = float("inf"), 0
    for _ in range(5):
        begun = time.perf_counter()
        size = compile_turn(view, number=last.number, frame=frame).size
        best = min(best, time.perf_counter() - begun)
    outputs = sum(len(turn.output) for turn in view.turns)
    raw = outputs + sum(len(observation_of(a).encode()) for a in view.actions)
    by_table = dict(_stored(run))
    return Grown(len(view.actions), raw, sum(by_table.values()), by_table, read, best, size)


def _stored(run: Run) -> Iterator[tuple[str, int]]:
    from django.db import connection

    for table, column in TABLES.items():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"  # noqa: S608
                f" WHERE t.{column} = %s",
                [run.id],
            )
            yield table, int(cursor.fetchone()[0])


def figures(small: Grown, large: Grown) -> dict[str, tuple[float, float]]:
    """By what they are, those of both."""
    return {
        "calls": (small.calls, large.calls),
        "raw bytes": (small.raw, large.raw),
        "stored bytes": (small.stored, large.stored),
        "read ms": (small.read_seconds * 1000, large.read_seconds * 1000),
        "compile ms": (small.compile_seconds * 1000, large.compile_seconds * 1000),
        "request bytes": (small.request_bytes, large.request_bytes),
    }


def told(small: Grown, large: Grown) -> str:
    """The figures as text."""
    rows = figures(small, large)
    lines = [f"{name:<14} {a:>14,.1f} {b:>14,.1f}" for name, (a, b) in rows.items()]
    return "\n".join([*lines, f"by table       {json.dumps(large.by_table)}"])
