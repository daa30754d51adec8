"""`make bench-peers`: the workload on other runtimes, with ours as one more peer.

DBOS, LangGraph, Temporal and the OpenAI Agents SDK are installed into an environment of their own
below `.run/`, Temporal's development server with them. The shapes on Celery show what it costs
without a runtime, the floors what the database does. `--commit-delay 2000` makes every commit of
PostgreSQL 2 ms longer, which stands for a slow disk; Temporal, whose store knows no such delay, is
left out then. Only ratios within one run of this command count. The whole table takes about 25
minutes on two cores; the names of its peers:

NAMES

"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench import foreign_peer, machine, ours, ratios, results, rounds, workload
from bench.floor_celery import floor_b, shape
from bench.floor_pgbench import floor_pgbench, floor_pgbench_at_once
from bench.floor_psycopg import floor_a, floor_a_at_once
from bench.foreign_peer import foreign
from bench.installation import installation
from bench.peer import Peer
from bench.temporal_server import temporal_server

OURS = workload.ONE
in_memory = partial(temporal_server, in_memory=True)
dbos = partial(foreign, "dbos_runs")
langgraph = partial(foreign, "langgraph_runs")
temporal = partial(foreign, "temporal_runs", behind=temporal_server)


def _others(procs: int) -> list[Peer]:
    """The runtimes that people would take otherwise. Temporal's normal activities take half a
    second a run."""
    slow = {"pace": 10, "alone": 0.5}
    made = [
        Peer(ratios.DBOS, procs, 1.0, dbos(variant="direct"), pace=31),
        Peer("DBOS queue", procs, 1.0, dbos(variant="queue"), pace=27, alone=0.06),
        Peer("DBOS async", procs, 1.0, dbos(variant="async"), pace=19),
        Peer(ratios.LANGGRAPH, procs, 1.0, langgraph(variant="sync"), pace=35),
        Peer("LangGraph async", procs, 1.0, langgraph(variant="async")),
        Peer(ratios.TEMPORAL, procs, 1.0, temporal(variant="local"), alone=0.05),
        Peer("Temporal activities", procs, 0.5, temporal(variant="activity"), **slow),
    ]
    if procs == 1:
        opened = foreign("temporal_runs", variant="activity", behind=in_memory)
        made.append(Peer("Temporal activities in memory", procs, 0.5, opened, **slow))
    for name, opened in (
        (ratios.LANGGRAPH, langgraph(variant="sync", kept=True)),
        (ratios.DBOS, dbos(variant="direct", kept=True)),
    ):
        made.append(Peer(f"{name}, kept to one processor", procs, 1.0, opened, pace=31))
    session = foreign("openai_agents_runs")
    made.append(Peer("OpenAI Agents SDK session", procs, 0.5, session, pace=26, alone=0.04))
    return made


def _on_celery(procs: int) -> list[Peer]:
    """A run on Celery without a runtime: (tasks, how they store)."""
    chain, turn, run = "Celery chain of 4", "Celery task a turn", "Celery task a run"
    made = [
        Peer(f"{chain}: no database", procs, 0.5, shape("chain", "nothing"), pace=22, alone=0.04),
        Peer(f"{chain}: psycopg", procs, 0.5, shape("chain", "psycopg"), pace=16, alone=0.06),
        Peer(f"{chain}: Django", procs, 0.5, shape("chain", "ORM"), pace=11, alone=0.09),
        Peer("Celery task a step: psycopg", procs, 1.0, shape("step", "psycopg")),
        Peer(f"{turn}: Django", procs, 1.0, shape("turn", "ORM"), pace=31),
        Peer(f"{turn}: Django conditional", procs, 1.0, shape("turn", "ORM conditional")),
        Peer(f"{turn}: one statement", procs, 1.5, shape("turn", "one statement"), pace=65),
        Peer(f"{run}: Django conditional", procs, 1.0, shape("run", "ORM conditional"), pace=58),
        Peer(f"{run}: one statement", procs, 3.0, shape("run", "one statement"), pace=240),
    ]
    if procs == 1:
        opened = shape("chain", "nothing", threads=4)
        made.insert(1, Peer(f"{chain}: no database in 4 threads", procs, 0.5, opened, pace=26))
    return made


def _floors(procs: int) -> list[Peer]:
    """Shares of pgbench are multiples of its connections, so that each has as many runs."""
    return [
        Peer(workload.FLOOR_B, procs, 1.0, floor_b, pace=60),
        Peer(workload.FLOOR_A, procs, 3.0, floor_a, pace=350),
        Peer("floor a: one statement", procs, 6.0, floor_a_at_once, pace=700),
        Peer("floor a in pgbench: three statements", procs, 8.0, floor_pgbench, pace=600),
        Peer("floor a in pgbench: one statement", procs, 8.0, floor_pgbench_at_once, pace=1000),
    ]


PROCS = (1, 2)
PEERS = tuple(
    peer
    for procs in PROCS
    for peer in (
        *_others(procs),
        Peer(OURS, procs, 1.5, ours.all_queues),
        *_on_celery(procs),
        *_floors(procs),
    )
)
FOREIGN = frozenset(peer.name for peer in _others(1))


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store. 1 when a goal is missed."""
    asked = parser().parse_args(list(arguments))
    peers = rounds.chosen(offered(asked), asked.only)
    if any(peer.name in FOREIGN for peer in peers):
        foreign_peer.install()
    with installation(commit_delay=asked.commit_delay) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        results.progress(results.describe(about))
        ours.set_up(place)
        found = rounds.measure_all(place, peers, asked)
    return _report(asked, about, peers, found)


def offered(asked: argparse.Namespace) -> list[Peer]:
    """What there is to choose from. Only PostgreSQL's commits can be made longer, so on a slow disk
    a peer with a store of its own would be measured on a quick one."""
    return [
        peer
        for peer in PEERS
        if asked.procs in (0, peer.procs)
        and not (asked.commit_delay and peer.name.startswith("Temporal"))
    ]


def parser() -> argparse.ArgumentParser:
    names = dict.fromkeys(peer.name for peer in PEERS)
    about = (__doc__ or "").replace("NAMES", "\n".join(f"  {name}" for name in names))
    made = rounds.parser("peers", about.strip())
    made.add_argument(
        "--procs", type=int, choices=PROCS, default=0, help="only with so many processes (both)"
    )
    return made


def _report(
    asked: argparse.Namespace, about: dict[str, Any], peers: Sequence[Peer], found: rounds.Found
) -> int:
    there = sorted({peer.procs for peer in peers})
    goals = ratios.goals_of(found, OURS, [n for n in there if f"{OURS} x{n}" in found])
    body = {
        "machine": about,
        "asked": vars(asked),
        "packages": foreign_peer.pinned(),
        "peers": rounds.stored(found),
        "ratios": goals,
    }
    print(results.describe(about))
    print(f"load average now {machine.load()}\n")
    print(rounds.table_of(peers, found))
    print()
    for procs in there:
        print(ratios.rests_on(found, procs) + ".")
    if rows := ratios.rows_of(peers, found):
        print("\n" + results.table(ratios.HEAD, rows))
    if goals:
        head = [f"goals of {OURS}", "procs", "goal", "measured", "met"]
        print("\n" + results.table(head, goals))
    results.store(rounds.named("peers", asked), body)
    return 1 if _missed(goals, asked) else 0


def _missed(goals: Sequence[Sequence[object]], asked: argparse.Namespace) -> bool:
    """On a slow disk only runs a second have a goal."""
    counted = [row for row in goals if row[0] == ratios.RUNS_S or not asked.commit_delay]
    return any(row[-1] == "no" for row in counted)
