"""Every peer against the best durable one: the ratios that the goals are about.

The best durable peer is, for each figure, the best of DBOS direct, LangGraph sync and Temporal with
local activities in the same round, with as many processes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import machine
from bench.peer import Measured, Peer
from bench.rounds import Failed, Found, good

DBOS, LANGGRAPH, TEMPORAL = "DBOS direct", "LangGraph sync", "Temporal local activities"
RIVALS = (DBOS, LANGGRAPH, TEMPORAL)
RUNS_S, P50, CPU, ALL_CPU = (
    "runs/s / best",
    "p50 / best",
    "CPU / LangGraph",
    "CPU with starter / LangGraph",
)
GOALS = {RUNS_S: 1.5, P50: 0.9, CPU: 0.65}


@dataclass
class Against:
    """The figures of one peer over those of the best rival, round by round."""

    each: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (RUNS_S, P50, CPU, ALL_CPU)}
    )

    def met(self, name: str) -> bool:
        """Whether the goal is. False when nothing was measured."""
        if not self.each[name]:
            return False
        middle = statistics.median(self.each[name])
        return middle >= GOALS[name] if name == RUNS_S else middle <= GOALS[name]


def against(found: Found, name: str, procs: int) -> Against:
    """The ratios of one peer. A round in which it or every rival failed has none."""
    made = Against()
    for number, mine in enumerate(found.get(f"{name} x{procs}", ())):
        rivals = _rivals(found, procs, number)
        if isinstance(mine, Failed) or not rivals:
            continue
        graph = rivals.get(LANGGRAPH)
        made.each[RUNS_S].append(mine.runs_s / _best(rivals, lambda one: one.runs_s, max))
        made.each[P50].append(_over(mine.p50_ms, _best(rivals, lambda one: one.p50_ms, min)))
        if graph:
            made.each[CPU].append(mine.cpu_ms / graph.cpu_ms)
            made.each[ALL_CPU].append(_whole(mine) / _whole(graph))
    return made


def _over(mine: float, theirs: float) -> float:
    return mine / theirs if theirs else 0.0  # no isolated runs were asked for


def _whole(one: Measured) -> float:
    return one.cpu_ms + one.cpu["driver"]


def _rivals(found: Found, procs: int, number: int) -> dict[str, Measured]:
    """By name, those that came to something in round `number`."""
    there = {name: found.get(f"{name} x{procs}", [])[number : number + 1] for name in RIVALS}
    return {name: one for name, ones in there.items() for one in good(ones)}


def _best(
    rivals: dict[str, Measured],
    figure: Callable[[Measured], float],
    choose: Callable[[list[float]], float],
) -> float:
    return choose([figure(one) for one in rivals.values()])


def rests_on(found: Found, procs: int) -> str:
    """Which rivals the ratios rest on, and why not on all."""
    there, missing = [], []
    for name in RIVALS:
        outcomes = found.get(f"{name} x{procs}", [])
        failed = [one.reason for one in outcomes if isinstance(one, Failed)]
        if good(outcomes):
            part = f" (in {len(good(outcomes))} of {len(outcomes)} rounds)" if failed else ""
            there.append(name + part)
        else:
            missing.append(f"{name} ({'failed: ' + failed[0] if failed else 'not asked for'})")
    text = f"Best durable peer, {procs} {'process' if procs == 1 else 'processes'}: of "
    text += ", ".join(there) or "none, so there are no ratios"
    return text + (f"; without {', '.join(missing)}" if missing else "")


HEAD = ["peer", "procs", RUNS_S, P50, CPU]


def rows_of(peers: Sequence[Peer], found: Found) -> list[list[object]]:
    """A line a peer with its ratios, under `HEAD`; those without any are left out."""
    rows: list[list[object]] = []
    for peer in peers:
        each = against(found, peer.name, peer.procs).each
        if each[RUNS_S]:
            cells = [machine.spread(each[name], 2) for name in (RUNS_S, P50, CPU)]
            rows.append([peer.name, peer.procs, *cells])
    return rows


def goals_of(found: Found, name: str, procs: Sequence[int]) -> list[list[object]]:
    """(measure, processes, goal, measured, met) of the peer that has the goals.

    Without a rival to compare with a goal is neither met nor missed; a peer that failed misses it.
    """
    rows: list[list[object]] = []
    for count in procs:
        made = against(found, name, count)
        failed = not good(found.get(f"{name} x{count}", []))
        for figure, each in made.each.items():
            goal, met = "", ""
            if figure in GOALS:
                goal = f"{'>=' if figure == RUNS_S else '<='} {GOALS[figure]}"
                met = "yes" if made.met(figure) else "no"
                met = met if each or failed else "-"
            rows.append([figure, count, goal, machine.spread(each, 2), met])
    return rows
