"""Measurements by name: `python -m bench workload --repeats 5`, or several names in a row.

Options belong to the name before them; `python -m bench workload --help` shows those of one.
Without a name the usual ones are measured, each in a process of its own. Each leaves JSON in
`bench/results`; `report` prints what was stored last as the tables of the documents.
Only ratios within one run of a command count: machines differ, and one machine drifts.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from bench import results
from config.embedded.process import spawn
from config.processes import ROOT


@dataclass(frozen=True)
class Bench:
    """What it measures, and how long it takes on two quiet cores, about."""

    what: str
    minutes: float


BENCHES = {
    "counts": Bench("commits, statements, messages and WAL of one run, exactly", 0.2),
    "workload": Bench("five-turn runs on the runtime, against three floors", 3.5),
    "long": Bench("time and bytes a turn as a run grows to 1,000 turns", 1),
    "context": Bench("stored bytes and compile time at 50 and 100 tool calls", 0.2),
    "waiting": Bench("500 runs in model calls of a second, in one process", 1),
    "recovery": Bench("from kill -9 of a worker to the next claim, under load", 1.5),
    "rest": Bench("POST /runs, against a bare view that inserts one row", 2),
    "streams": Bench("a thousand open event streams in one process", 0.5),
    "console": Bench("every page of the console over a million events", 2),
    "peers": Bench("the workload on other runtimes, ours beside them (`make bench-peers`)", 23),
    "profile": Bench("where the time of a run goes, by function", 0.3),
    "report": Bench("what was stored last, as the tables of the documents", 0),
}
"""Each is a module here with `main(arguments) -> exit code`: 0, or 1 when a goal is missed."""
USUAL = tuple(name for name in BENCHES if name not in ("peers", "profile", "report"))
"""What runs when nothing is named: all that leaves figures, without a foreign package."""
BROKEN = 3
ENDED = {0: "no goal is missed", 1: "a goal is missed"}


def main(words: Sequence[str]) -> int:
    """Run what is named. Returns 1 when one missed its goal, 2 for an unknown name, 3 when one
    could not be measured."""
    if words and words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words and words[0] not in BENCHES:
        sys.stderr.write(f"no such bench: {words[0]}\n\n{_help()}\n")
        return 2
    asked = grouped(words) or [(name, []) for name in USUAL]
    return _alone(*asked[0]) if len(asked) == 1 else _in_turn(asked)


def grouped(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each name with the options that follow it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in BENCHES and not (groups and groups[-1][0] == "report"):
            groups.append((word, []))  # what follows `report` are names of results
        else:
            groups[-1][1].append(word)
    return groups


def _alone(name: str, options: Sequence[str]) -> int:
    try:
        return int(import_module(f"bench.{name}").main(options))
    except Exception:  # noqa: BLE001  (whatever it is: the others are still measured)
        traceback.print_exc()
        return BROKEN


def _in_turn(asked: Sequence[tuple[str, list[str]]]) -> int:
    """Each in a process of its own: Django knows one database for the life of a process."""
    whole = sum(BENCHES[name].minutes for name, _ in asked)
    results.progress(f"{len(asked)} measurements: about {whole:.0f} min on two quiet cores")
    codes, rows = [], []
    for number, (name, options) in enumerate(asked, 1):
        minutes = BENCHES[name].minutes
        about = f"about {minutes:.0f} min" if minutes >= 1 else "below a minute"
        results.progress(f"\n{number}/{len(asked)} {name}: {BENCHES[name].what}; {about}")
        begun = time.monotonic()
        command = [sys.executable, "-m", "bench", name, *options]
        codes.append(_run(command))
        taken = (time.monotonic() - begun) / 60
        rows.append([name, f"{taken:.1f}", ENDED.get(codes[-1], "could not be measured")])
    print("\n" + results.table(["measured", "minutes", "result"], rows))
    return max(code if code in ENDED else BROKEN for code in codes)


def _run(command: Sequence[str]) -> int:
    """Returns its exit code. When we are gone it gets TERM."""
    return spawn(command, log=None, cwd=str(ROOT)).wait()


def _terminated(number: int, _: object) -> NoReturn:
    """End in good order: servers and workers are stopped, their folders removed."""
    sys.exit(128 + number)


def _help() -> str:
    width = max(len(name) for name in BENCHES)
    lines = [f"  {name.ljust(width)}  {bench.what}" for name, bench in BENCHES.items()]
    return "\n".join([(__doc__ or "").strip(), "", *lines, "", f"usual: {', '.join(USUAL)}"])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main(sys.argv[1:]))
