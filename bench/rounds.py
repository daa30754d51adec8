"""Rounds of measurements: which peers, how often, and the table that comes of them.

Every peer once, then all of them again: the drift of the machine reaches all of them alike. A peer
that fails stops nothing but itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench import machine, results
from bench.installation import Installation
from bench.peer import Measured, Peer, measure


@dataclass(frozen=True)
class Failed:
    """A repeat of a peer that came to nothing."""

    reason: str

    def stored(self) -> dict[str, Any]:
        return {"failed": self.reason}


Outcome = Measured | Failed
Found = dict[str, list[Outcome]]
"""By the key of the peer, an outcome for each repeat."""


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """What every measurement in rounds can be asked."""
    made = argparse.ArgumentParser(
        prog=f"bench {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repeats", type=int, default=3, help="rounds (3)")
    made.add_argument(
        "--runs", type=int, default=120, help="runs at once, before a peer's share (120)"
    )
    made.add_argument("--singles", type=int, default=20, help="isolated runs, for p50 (20)")
    made.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="peers whose name contains one of these words, which commas part",
    )
    made.add_argument(
        "--commit-delay",
        type=int,
        default=0,
        metavar="MICROSECONDS",
        help="each commit takes so much longer, which stands for a slow disk",
    )
    return made


def chosen(peers: Sequence[Peer], only: str) -> list[Peer]:
    """Those that `--only` names. Leaves with an explanation when there are none."""
    words = [word.strip().lower() for word in only.split(",") if word.strip()]
    found = [p for p in peers if not words or any(word in p.key.lower() for word in words)]
    if not found:
        names = "\n  ".join(peer.key for peer in peers)
        sys.exit(f"no peer is called {only!r}; there are\n  {names}")
    return found


def estimate(peers: Sequence[Peer], asked: argparse.Namespace) -> float:
    """About how many seconds all rounds take on two quiet cores."""
    once = sum(peer.seconds(runs=asked.runs, singles=asked.singles) for peer in peers)
    return float(asked.repeats * once)


def measure_all(place: Installation, peers: Sequence[Peer], asked: argparse.Namespace) -> Found:
    """Every peer once, then all of them again, `asked.repeats` times."""
    found: Found = {peer.key: [] for peer in peers}
    expected = max(1.0, estimate(peers, asked) / 60)
    results.progress(
        f"{len(peers)} peers, {asked.repeats} rounds: about {expected:.0f} min on two quiet cores"
    )
    begun = time.monotonic()
    for number in range(1, asked.repeats + 1):
        for index, peer in enumerate(peers, 1):
            one = _attempt(place, peer, asked)
            found[peer.key].append(one)
            results.progress(
                f"{number}/{asked.repeats} {index}/{len(peers)} {peer.key}: {_say(one)}"
            )
        left = (time.monotonic() - begun) / number * (asked.repeats - number) / 60
        if number < asked.repeats:
            results.progress(f"round {number} is done; about {left:.0f} min are left")
    return found


def _attempt(place: Installation, peer: Peer, asked: argparse.Namespace) -> Outcome:
    try:
        return measure(peer, place, runs=peer.runs(asked.runs), singles=asked.singles)
    except Exception as error:  # noqa: BLE001  (whatever it is, the others are still measured)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return Failed((lines[-1] if lines else type(error).__name__)[:300])


def _say(one: Outcome) -> str:
    if isinstance(one, Failed):
        return f"failed: {one.reason}"
    return f"{one.runs_s:.1f} runs/s, p50 {one.p50_ms:.1f} ms, CPU {one.cpu_ms:.1f} ms a run"


def good(outcomes: Sequence[Outcome]) -> list[Measured]:
    """Those that came to something."""
    return [one for one in outcomes if isinstance(one, Measured)]


Figure = Callable[[Measured], float]
COLUMNS: tuple[tuple[str, Figure, bool], ...] = (
    ("runs/s", lambda one: one.runs_s, True),
    ("p50 ms", lambda one: one.p50_ms, True),
    ("p95 ms", lambda one: one.p95_ms, False),
    ("CPU ms/run", lambda one: one.cpu_ms, True),
    ("workers", lambda one: one.cpu["workers"], False),
    ("server", lambda one: one.server_ms, False),
    ("broker", lambda one: one.cpu["broker"], False),
    ("starter", lambda one: one.cpu["driver"], False),
    ("xids/run", lambda one: one.write_transactions, False),
    ("WAL kB/run", lambda one: one.wal_bytes / 1024, False),
    ("MB/worker", lambda one: one.rss_mb, False),
)
"""(head, figure, whether its spread is shown)."""
OF_POSTGRES = ("xids/run", "WAL kB/run")
LEGEND = """
Medians, with the least and the most of the rounds where the spread matters. CPU ms/run: workers,
server (PostgreSQL, or the peer's own) and broker; without "starter", the process of the bench,
which starts the runs of those that do not start them in a worker."""


def table_of(peers: Sequence[Peer], found: Found) -> str:
    """A line a peer."""
    rows = [[peer.name, peer.procs, *_cells(found[peer.key])] for peer in peers]
    head = ["peer", "procs", *(name for name, _, _ in COLUMNS)]
    return results.table(head, rows) + "\n" + LEGEND


def _cells(outcomes: Sequence[Outcome]) -> list[str]:
    ones = good(outcomes)
    failed = [one.reason for one in outcomes if isinstance(one, Failed)]
    if not ones:
        reason = failed[0] if failed else "not measured"
        return [f"failed: {reason}"[:80], *["-"] * (len(COLUMNS) - 1)]
    cells = [_cell(ones, name, figure, spread) for name, figure, spread in COLUMNS]
    if failed:
        cells[0] += f", {len(failed)} of {len(outcomes)} failed"
    return cells


def _cell(ones: Sequence[Measured], name: str, figure: Figure, spread: bool) -> str:
    if name in OF_POSTGRES and any(one.cpu["server"] for one in ones):
        return "-"  # it stores elsewhere
    values = [figure(one) for one in ones]
    return machine.spread(values) if spread else f"{statistics.median(values):.1f}"


def stored(found: Found) -> dict[str, list[dict[str, Any]]]:
    """As JSON has it."""
    return {key: [one.stored() for one in outcomes] for key, outcomes in found.items()}


def loaded(body: dict[str, list[dict[str, Any]]]) -> Found:
    """`stored` backwards."""
    return {key: [_outcome(one) for one in outcomes] for key, outcomes in body.items()}


def _outcome(one: dict[str, Any]) -> Outcome:
    if "failed" in one:
        return Failed(one["failed"])
    return Measured(**{key: value for key, value in one.items() if key != "cpu_ms"})


def named(name: str, asked: argparse.Namespace) -> str:
    """What the result is stored as. A part of the peers does not replace the last whole table."""
    name += f"-delay{asked.commit_delay}" if asked.commit_delay else ""
    return f"{name}-part" if asked.only or getattr(asked, "procs", 0) else name
