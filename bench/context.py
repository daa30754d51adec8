"""How the context grows: stored bytes and compile time at 50 and 100 tool calls.

A conversation of 100 calls whose outputs come to about 200,000 tokens, through the real steps on a
real database. The texts are random words, which compress no better than prose.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connection

from agentcore.context import Frame
from runs.contexts import compile_turn, observation_of
from runs.models import Run
from runs.view import load_view

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
    compile_seconds: float
    request_bytes: int


def words(seed: int, size: int) -> str:
    """About `size` characters of text."""
    chosen = random.Random(seed)  # noqa: S311
    return " ".join(_word(chosen) for _ in range(size // 6))


def _word(chosen: random.Random) -> str:
    letters = "etaoinshrdlucmfwypvbgk"
    return "".join(chosen.choice(letters) for _ in range(chosen.randint(2, 8)))


def measure(run: Run) -> Grown:
    """Stored bytes of all rows of `run`, and the time to compile its last turn again."""
    view = load_view(run.id)
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
    return Grown(len(view.actions), raw, sum(by_table.values()), by_table, best, size)


def _stored(run: Run) -> Iterator[tuple[str, int]]:
    for table, column in TABLES.items():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"  # noqa: S608
                f" WHERE t.{column} = %s",
                [run.id],
            )
            yield table, int(cursor.fetchone()[0])


def told(small: Grown, large: Grown) -> str:
    """The figures as text."""
    rows = {
        "calls": (small.calls, large.calls),
        "raw bytes": (small.raw, large.raw),
        "stored bytes": (small.stored, large.stored),
        "compile ms": (small.compile_seconds * 1000, large.compile_seconds * 1000),
        "request bytes": (small.request_bytes, large.request_bytes),
    }
    lines = [f"{name:<14} {a:>14,.1f} {b:>14,.1f}" for name, (a, b) in rows.items()]
    return "\n".join([*lines, f"by table       {json.dumps(large.by_table)}"])
