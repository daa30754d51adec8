"""Stored results as the tables of docs/performance.md: what `report` prints."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import context, counts, long, machine, ratios, rounds, waiting, workload
from bench.results import plain
from bench.rounds import Found, good

Body = Mapping[str, Any]
KEY = " x"
"""Between the name of a peer and its processes in a key."""
COLUMNS: tuple[tuple[str, rounds.Figure, int], ...] = (
    ("runs/s", lambda one: one.runs_s, 1),
    ("p50 ms", lambda one: one.p50_ms, 1),
    ("CPU ms a run", lambda one: one.cpu_ms, 1),
    ("workers", lambda one: one.cpu["workers"], 1),
    ("server", lambda one: one.server_ms, 1),
    ("WAL kB a run", lambda one: one.wal_bytes / 1024, 1),
)
"""(head, figure, digits): the first with its spread."""
OURS = (workload.ONE, workload.STEPS)
DISPATCH = ("DBOS queue", ratios.TEMPORAL)
"""Peers that hand a run to a worker, as ours does."""


def of_peers(body: Body) -> str:
    """A line a peer; then the goals."""
    found = rounds.loaded(body["peers"])
    there = sorted({int(key.rsplit(KEY, 1)[1]) for key in found})
    notes = [ratios.rests_on(found, procs) + "." for procs in there]
    return "\n\n".join([_peers(found), _goals(found, there), *notes])


def of_workload(body: Body) -> str:
    """A line a peer; then what each goal against a floor comes to."""
    found = rounds.loaded(body["peers"])
    rows = [
        [f"{mine} against {floor}", procs, f"at least {goal}", text, met]
        for mine, floor, procs, goal, text, met in workload.against_floors(found)
    ]
    return _peers(found) + "\n\n" + plain(["runs/s", "procs", "goal", "measured", "met"], rows)


def _peers(found: Found) -> str:
    rows = []
    for key, outcomes in found.items():
        name, procs = key.rsplit(KEY, 1)
        rows.append([f"**{name}**" if name in OURS else name, procs, *_figures(outcomes)])
    return plain(["", "procs", *(head for head, _, _ in COLUMNS)], rows)


def _figures(outcomes: Sequence[rounds.Outcome]) -> list[str]:
    ones = good(outcomes)
    failed = [one.reason for one in outcomes if isinstance(one, rounds.Failed)]
    if not ones:
        return [f"failed: {failed[0]}" if failed else "not measured", *[""] * (len(COLUMNS) - 1)]
    cells = [f"{statistics.median(map(figure, ones)):,.{n}f}" for _, figure, n in COLUMNS]
    cells[0] = machine.spread([one.runs_s for one in ones])
    if any(one.cpu["server"] for one in ones) or not any(one.cpu["postgres"] for one in ones):
        cells[-1] = ""  # it does not store in PostgreSQL
    return cells


def _goals(found: Found, there: Sequence[int]) -> str:
    """The measures of the issue, with a column for each number of processes."""
    made = {procs: ratios.against(found, workload.ONE, procs).each for procs in there}
    floors = {(row[1], row[2]): row[4] for row in workload.against_floors(found)}
    named = (
        (ratios.RUNS_S, "runs/s against the best durable peer", "at least"),
        (ratios.P50, "p50 of an isolated run against the best durable peer", "at most"),
        (ratios.CPU, "CPU a run against LangGraph", "at most"),
        (ratios.ALL_CPU, "the same with the process that starts the runs", ""),
    )
    rows: list[list[object]] = [
        [text, f"{word} {goal}".strip(), *(machine.spread(made[n][name], 2) for n in there)]
        for name, text, word in named
        for goal in [ratios.GOALS.get(name, "")]
    ]
    for peer in DISPATCH:
        cells = [machine.spread(_over(found, peer, n), 2) for n in there]
        rows.append([f"runs/s against {peer}, which dispatches", "", *cells])
    for floor, goal in dict.fromkeys((floor, goal) for _, floor, _, goal in workload.GOALS):
        if floor != workload.FLOOR_C:
            cells = [floors.get((floor, n), "-") for n in there]
            rows.append([f"runs/s against {floor}", f"at least {goal}", *cells])
    heads = [f"{n} process" if n == 1 else f"{n} processes" for n in there]
    return plain(["measure", "goal", *heads], rows)


def _over(found: Found, peer: str, procs: int) -> list[float]:
    """Our runs a second over those of `peer`, round by round."""
    mine, theirs = (found.get(f"{name}{KEY}{procs}", []) for name in (workload.ONE, peer))
    pairs = zip(mine, theirs, strict=False)
    return [one.runs_s / other.runs_s for one, other in pairs if good([one]) and good([other])]  # type: ignore[union-attr]


def of_counts(body: Body) -> str:
    """With the goals."""
    found = counts.Counts(**body["counts"])
    goals, stretch = counts.GOALS, counts.STRETCH
    named = {
        "commits": "commits that write",
        "statements": "SQL statements without transaction control",
        "messages": "broker messages",
    }
    rows: list[list[object]] = [
        [text, getattr(found, name), goals[name], stretch[name]] for name, text in named.items()
    ]
    wal = [f"{value / 1024:.0f}" for value in (found.wal, goals["wal"], stretch["wal"])]
    rows.append(["messages to PostgreSQL that wait for their answer", found.round_trips, "", ""])
    rows.append(["kB of WAL, without images of whole pages", *wal])
    each = ", ".join(str(number) for number in found.rows.values())
    rows.append([f"rows: {', '.join(found.rows)}", each, "", ""])
    return plain(["", "counted", "goal", "stretch"], rows)


def of_long(body: Body) -> str:
    """A line a length; then the ratios that have a goal."""
    lengths = {one["turns"]: long.Length(**one) for one in body["lengths"]}
    table = plain(long.HEAD, [one.row() for one in lengths.values()])
    grown = long.grown_by(lengths)
    return f"{table}\n\n{long.told(grown)}" if grown else table


def of_context(body: Body) -> str:
    """The two lengths and their ratios."""
    small, large = (context.Grown(**one) for one in body["runs"])
    figures = context.figures(small, large)
    rows: list[list[object]] = []
    for name, ratio, goal in context.judged(small, large):
        cells = [f"{value:,.1f}".removesuffix(".0") for value in figures.get(name, ())]
        rows.append([name, *(cells or ["", ""]), f"{ratio:.2f}", f"at most {goal}"])
    return plain(["", f"{small.calls} calls", f"{large.calls} calls", "ratio", "goal"], rows)


def of_waiting(body: Body) -> str:
    """Every figure, with its goal where it has one."""
    words = {"share of the ideal": "at least", "memory MB": "under", "connections": "at most"}
    rows = [
        [name, f"{value:,}", f"{words[name]} {waiting.GOALS[name]}" if name in words else ""]
        for name, value in body["figures"].items()
    ]
    return plain(["", "measured", "goal"], rows)


def of_recovery(body: Body) -> str:
    """From the kill to the next claim."""
    taken = body["seconds_to_claim"]
    row = [body["asked"]["kills"], len(taken)]
    cells = [machine.percentile(taken, 0.5), machine.percentile(taken, 0.99), max(taken)]
    shown = [f"{value:.1f}" for value in (*cells, body["bound"])]
    return plain(["kills", "runs held", "p50 s", "p99 s", "most s", "bound s"], [[*row, *shown]])


def of_rest(body: Body) -> str:
    """A line for each number of clients. CPU is that of one request, over that of the bare view."""
    bare, token, product, alone = body["targets"].values()
    rows = []
    for clients, yardstick in bare.items():
        made = [product[clients], alone[clients]]
        rates = [
            f"{statistics.median(one['rate'] for one in ones):.0f}" for ones in (yardstick, made[0])
        ]
        shares = [
            f"{statistics.median(_shares(ones, yardstick, figure)):.2f}"
            for ones in made
            for figure in ("rate", "cpu_ms")
        ]
        known = statistics.median(_shares(token[clients], yardstick, "rate"))
        rows.append([clients, *rates, *shares, f"{known:.2f}"])
    head = ["clients", "bare view a second", "POST /runs a second", "of bare", "CPU, of bare"]
    head += ["broker down: of bare", "CPU, of bare", "bare view with a token: of bare"]
    return plain(head, rows)


def _shares(ones: Sequence[Body], yardstick: Sequence[Body], figure: str) -> list[float]:
    """Round by round, and 1 when it is as good as the yardstick: CPU the other way round."""
    pairs = [(one[figure], other[figure]) for one, other in zip(ones, yardstick, strict=True)]
    turned = [(b, a) if figure == "cpu_ms" else (a, b) for a, b in pairs]
    return [a / b if b else 0.0 for a, b in turned]


def of_streams(body: Body) -> str:
    """One sentence."""
    from bench import streams  # it needs what the tests need

    return streams.told(body)


def of_console(body: Body) -> str:
    """A line a page, the slowest first."""
    pages = sorted(body["pages"].items(), key=lambda item: -item[1]["p95_ms"])
    rows = [
        [name, f"{one['p50_ms']:.0f}", f"{one['p95_ms']:.0f}", one["queries"]]
        for name, one in pages
    ]
    return plain(["page", "p50 ms", "p95 ms", "queries"], rows)


OF: dict[str, Callable[[Body], str]] = {
    "counts": of_counts,
    "peers": of_peers,
    "workload": of_workload,
    "long": of_long,
    "context": of_context,
    "waiting": of_waiting,
    "recovery": of_recovery,
    "rest": of_rest,
    "streams": of_streams,
    "console": of_console,
}
"""By name, in the order of the document."""
