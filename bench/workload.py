"""`make bench ARGS="workload"`: the common workload on the runtime, against three floors.

R concurrent runs of five turns: four with one write tool, then a final answer; model and tool
answer at once. Each peer is measured `--repeats` times, interleaved, so that the drift of the
machine reaches all of them; only ratios within one run of this command count.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from bench import machine, ours, results, rounds
from bench.floor_celery import floor_b, floor_c
from bench.floor_psycopg import floor_a
from bench.installation import installation
from bench.peer import TURNS, Measured, Peer

FLOOR_A, FLOOR_B, FLOOR_C = "floor a: psycopg", "floor b: a task a run", "floor c: chain of no-ops"
ONE, STEPS = "agentcore, all queues", "agentcore, a worker a step"

PEERS = (
    Peer(FLOOR_A, 1, 3.0, floor_a, pace=350),
    Peer(FLOOR_B, 1, 1.0, floor_b, pace=60),
    Peer(ONE, 1, 1.0, ours.all_queues),
    Peer(FLOOR_C, 4, 0.5, floor_c, pace=20, alone=0.06),
    Peer(STEPS, 4, 0.5, ours.a_worker_a_step, pace=10, alone=0.15),
    Peer(FLOOR_A, 2, 3.0, floor_a, pace=390),
    Peer(FLOOR_B, 2, 1.0, floor_b, pace=80),
    Peer(ONE, 2, 1.0, ours.all_queues, pace=50),
)
GOALS = (
    (ONE, FLOOR_B, 1, 0.6),
    (ONE, FLOOR_B, 2, 0.6),
    (STEPS, FLOOR_C, 4, 0.35),
    (ONE, FLOOR_A, 1, 0.2),
    (ONE, FLOOR_A, 2, 0.2),
)
"""(ours, floor, processes, least ratio of runs a second)."""


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed or a peer failed."""
    asked = rounds.parser("workload", __doc__).parse_args(list(arguments))
    peers = rounds.chosen(PEERS, asked.only)
    with installation(commit_delay=asked.commit_delay) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        results.progress(results.describe(about))
        ours.set_up(place)
        found = rounds.measure_all(place, peers, asked)
    return _report(asked, about, peers, found)


def _report(
    asked: argparse.Namespace, about: dict[str, Any], peers: Sequence[Peer], found: rounds.Found
) -> int:
    ratios = against_floors(found)
    body = {
        "machine": about,
        "asked": vars(asked),
        "peers": rounds.stored(found),
        "ratios": [list(row) for row in ratios],
    }
    print(results.describe(about))
    print(f"load average now {machine.load()}; {TURNS} turns, {asked.repeats} repeats\n")
    print(rounds.table_of(peers, found))
    print()
    if ratios:
        head = ["runs/s against", "procs", "goal", "measured", "met"]
        print(
            results.table(
                head, [[f"{o} / {f}", n, f">= {g}", *rest] for o, f, n, g, *rest in ratios]
            )
        )
    results.store(rounds.named("workload", asked), body)
    failed = any(isinstance(one, rounds.Failed) for ones in found.values() for one in ones)
    return 0 if not failed and all(row[-1] == "yes" for row in ratios) else 1


Ratio = tuple[str, str, int, float, str, str]


def against_floors(found: rounds.Found) -> list[Ratio]:
    """Runs a second against each floor, repeat by repeat."""
    rows: list[Ratio] = []
    for name, floor, procs, goal in GOALS:
        pairs = zip(
            found.get(f"{name} x{procs}", []), found.get(f"{floor} x{procs}", []), strict=False
        )
        each = [
            mine.runs_s / theirs.runs_s
            for mine, theirs in pairs
            if isinstance(mine, Measured) and isinstance(theirs, Measured)
        ]
        if each:
            met = "yes" if statistics.median(each) >= goal else "no"
            rows.append((name, floor, procs, goal, machine.spread(each, 2), met))
    return rows
