"""`make bench ARGS="workload"`: the common workload on the runtime, against three floors.

R concurrent runs of five turns: four with one write tool, then a final answer; model and tool
answer at once. Each peer is measured `--repeats` times, interleaved, so that the drift of the
machine reaches all of them; only ratios within one run of this command count.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench import machine, ours, results
from bench.floor_celery import floor_b, floor_c
from bench.floor_psycopg import floor_a
from bench.installation import Installation, installation
from bench.peer import TURNS, Measured, Peer, measure

FLOOR_A, FLOOR_B, FLOOR_C = "floor a: psycopg", "floor b: a task a run", "floor c: chain of no-ops"
ONE, STEPS = "agentcore, all queues", "agentcore, a worker a step"

PEERS = (
    Peer(FLOOR_A, 1, 3.0, floor_a),
    Peer(FLOOR_B, 1, 1.0, floor_b),
    Peer(ONE, 1, 1.0, ours.all_queues),
    Peer(FLOOR_C, 4, 0.5, floor_c),
    Peer(STEPS, 4, 0.5, ours.a_worker_a_step),
    Peer(FLOOR_A, 2, 3.0, floor_a),
    Peer(FLOOR_B, 2, 1.0, floor_b),
    Peer(ONE, 2, 1.0, ours.all_queues),
)
GOALS = (
    (ONE, FLOOR_B, 1, 0.6),
    (ONE, FLOOR_B, 2, 0.6),
    (STEPS, FLOOR_C, 4, 0.35),
    (ONE, FLOOR_A, 1, 0.2),
    (ONE, FLOOR_A, 2, 0.2),
)
"""(ours, floor, processes, least ratio of runs a second)."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench workload", description=__doc__)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--runs", type=int, default=120, help="runs at once, before a peer's share")
    made.add_argument("--singles", type=int, default=20, help="isolated runs, for p50")
    made.add_argument("--only", default="", help="peers whose name contains one of these, by comma")
    made.add_argument(
        "--commit-delay", type=int, default=0, help="microseconds a commit waits more"
    )
    return made


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed."""
    asked = parser().parse_args(list(arguments))
    words = [word for word in asked.only.split(",") if word]
    peers = [p for p in PEERS if not words or any(word in p.key for word in words)]
    with installation(commit_delay=asked.commit_delay) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        results.progress(results.describe(about))
        ours.set_up(place)
        found = measure_all(place, peers, asked)
    return _report(asked, about, peers, found)


def measure_all(
    place: Installation, peers: Sequence[Peer], asked: argparse.Namespace
) -> dict[str, list[Measured]]:
    """Every peer once, then all of them again, `asked.repeats` times."""
    found: dict[str, list[Measured]] = {peer.key: [] for peer in peers}
    for repeat in range(asked.repeats):
        for peer in peers:
            runs = max(8, int(asked.runs * peer.share))
            one = measure(peer, place, runs=runs, singles=asked.singles)
            found[peer.key].append(one)
            results.progress(
                f"{repeat + 1} {peer.key}: {one.runs_s:.1f} runs/s, p50 {one.p50_ms:.1f} ms,"
                f" CPU {one.cpu_ms:.1f} ms a run"
            )
    return found


def _report(
    asked: argparse.Namespace,
    about: dict[str, Any],
    peers: Sequence[Peer],
    found: dict[str, list[Measured]],
) -> int:
    print(results.describe(about))
    print(f"load average now {machine.load()}; {TURNS} turns, {asked.repeats} repeats\n")
    print(table_of(peers, found))
    ratios = _ratios(found)
    print()
    print(
        results.table(
            ["runs/s against", "procs", "goal", "measured", "met"],
            [[f"{o} / {f}", n, f">= {goal}", text, met] for o, f, n, goal, text, met in ratios],
        )
    )
    body = {
        "machine": about,
        "asked": vars(asked),
        "load_after": machine.load(),
        "peers": {key: [one.stored() for one in values] for key, values in found.items()},
        "ratios": [list(row) for row in ratios],
    }
    name = "workload" + (f"-delay{asked.commit_delay}" if asked.commit_delay else "")
    print(f"\nstored in {results.store(name, body).relative_to(results.FOLDER.parent.parent)}")
    return 0 if all(row[-1] == "yes" for row in ratios) else 1


def table_of(peers: Sequence[Peer], found: dict[str, list[Measured]]) -> str:
    """A line a peer: medians, with the least and the most where the spread matters."""
    head = ["peer", "procs", "runs/s", "p50 ms", "p95 ms", "CPU ms/run"]
    head += ["workers", "PostgreSQL", "broker", "xids/run", "WAL kB/run", "MB/process"]
    rows = []
    for peer in peers:
        ones = found[peer.key]
        rows.append(
            [
                peer.name,
                peer.procs,
                machine.spread([one.runs_s for one in ones]),
                machine.spread([one.p50_ms for one in ones]),
                _median(ones, lambda one: one.p95_ms),
                machine.spread([one.cpu_ms for one in ones]),
                _median(ones, lambda one: one.cpu["workers"]),
                _median(ones, lambda one: one.cpu["postgres"]),
                _median(ones, lambda one: one.cpu["broker"]),
                _median(ones, lambda one: one.write_transactions),
                _median(ones, lambda one: one.wal_bytes / 1024),
                _median(ones, lambda one: one.rss_mb),
            ]
        )
    return results.table(head, rows)


def _median(ones: Sequence[Measured], figure: Callable[[Measured], float]) -> str:
    return f"{statistics.median(figure(one) for one in ones):.1f}"


Ratio = tuple[str, str, int, float, str, str]


def _ratios(found: dict[str, list[Measured]]) -> list[Ratio]:
    """Runs a second against each floor, repeat by repeat."""
    rows: list[Ratio] = []
    for name, floor, procs, goal in GOALS:
        mine, theirs = found.get(f"{name} x{procs}", []), found.get(f"{floor} x{procs}", [])
        each = [a.runs_s / b.runs_s for a, b in zip(mine, theirs, strict=False)]
        if each:
            met = "yes" if statistics.median(each) >= goal else "no"
            rows.append((name, floor, procs, goal, machine.spread(each, 2), met))
    return rows
