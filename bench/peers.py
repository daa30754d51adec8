"""`make bench-peers`: the workload on DBOS and LangGraph, with ours as one more peer.

The peers are installed into an environment of their own below `.run/`. `--commit-delay 2000` makes
every commit 2 ms longer, for all alike: that stands for a slow disk.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence

from bench import machine, ours, results, workload
from bench.floor_celery import floor_b
from bench.floor_psycopg import floor_a
from bench.foreign_peer import foreign, install
from bench.installation import installation
from bench.peer import Measured, Peer

DBOS, LANGGRAPH = "DBOS, direct", "LangGraph, sync"
RIVALS = (DBOS, LANGGRAPH)
PEERS = tuple(
    peer
    for procs in (1, 2)
    for peer in (
        Peer(DBOS, procs, 1.0, foreign("dbos_runs")),
        Peer(LANGGRAPH, procs, 1.0, foreign("langgraph_runs")),
        Peer(workload.ONE, procs, 1.5, ours.all_queues),
        Peer(workload.FLOOR_B, procs, 1.0, floor_b),
        Peer(workload.FLOOR_A, procs, 3.0, floor_a),
    )
)
RUNS_S, P50, CPU = "runs/s / best", "p50 / best", "CPU / LangGraph"
GOALS = {RUNS_S: 1.5, P50: 0.9, CPU: 0.65}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed."""
    made = workload.parser()
    made.prog, made.description = "bench peers", __doc__
    asked = made.parse_args(list(arguments))
    words = [word for word in asked.only.split(",") if word]
    peers = [p for p in PEERS if not words or any(word in p.key for word in words)]
    install()
    with installation(commit_delay=asked.commit_delay) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        results.progress(results.describe(about))
        ours.set_up(place)
        found = workload.measure_all(place, peers, asked)
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    print(workload.table_of(peers, found))
    ratios = [row for procs in (1, 2) for row in _ratios(found, procs)]
    print("\n" + results.table(["against the best durable peer", "procs", "goal", "ours"], ratios))
    body = {
        "machine": about,
        "asked": vars(asked),
        "peers": {key: [one.stored() for one in values] for key, values in found.items()},
        "ratios": ratios,
    }
    results.store("peers" + (f"-delay{asked.commit_delay}" if asked.commit_delay else ""), body)
    return 0 if _met(found, asked) else 1


def _each(found: dict[str, list[Measured]], procs: int) -> dict[str, list[float]]:
    """Our figure over the best one of the rivals, repeat by repeat."""
    mine = found.get(f"{workload.ONE} x{procs}", [])
    rivals = [found[f"{name} x{procs}"] for name in RIVALS if f"{name} x{procs}" in found]
    graph = found.get(f"{LANGGRAPH} x{procs}", [])

    def against(figure: Callable[[Measured], float], best: Callable[..., float]) -> list[float]:
        turns = zip(mine, *rivals, strict=False)
        return [figure(one) / best(figure(rival) for rival in others) for one, *others in turns]

    return {
        RUNS_S: against(lambda one: one.runs_s, max) if rivals else [],
        P50: against(lambda one: one.p50_ms, min) if rivals else [],
        CPU: [a.cpu_ms / b.cpu_ms for a, b in zip(mine, graph, strict=False)],
    }


def _ratios(found: dict[str, list[Measured]], procs: int) -> list[list[object]]:
    return [
        [name, procs, f"{'>=' if name == RUNS_S else '<='} {GOALS[name]}", machine.spread(each, 2)]
        for name, each in _each(found, procs).items()
    ]


def _met(found: dict[str, list[Measured]], asked: argparse.Namespace) -> bool:
    for procs in (1, 2):
        for name, each in _each(found, procs).items():
            if not each or (asked.commit_delay and name != RUNS_S):
                continue
            middle = statistics.median(each)
            if (middle < GOALS[name]) if name == RUNS_S else (middle > GOALS[name]):
                return False
    return True
