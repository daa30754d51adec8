"""Measurements by name: `python -m bench workload --repeats 5`, or several names in a row.

Options belong to the name before them; `python -m bench workload --help` shows those of one.
Only ratios within one run of a command count: machines differ, and one machine drifts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

BENCHES = {
    "workload": "five-turn runs on the runtime, against three floors",
    "counts": "commits, statements, messages and WAL of one run, exactly",
    "long": "time and bytes a turn as a run grows to 1,000 turns",
    "context": "stored bytes and compile time at 50 and 100 tool calls",
    "waiting": "500 runs in model calls of a second, in one process",
    "recovery": "from kill -9 of a worker to the next claim, under load",
    "peers": "the workload on other runtimes, ours beside them (`make bench-peers`)",
    "profile": "where the time of a run goes, by function",
    "rest": "POST /runs, against a bare view that inserts one row",
    "console": "every page of the console over a million events",
    "streams": "a thousand open event streams in one process",
}
"""Name -> what it measures. Each is a module here with `main(arguments) -> exit code`."""
USUAL = ("counts", "workload", "rest", "streams")
"""What runs when nothing is named."""


def main(words: Sequence[str]) -> int:
    """Run what is named. Returns 1 when one missed its goal, 2 for an unknown name."""
    if words and words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words and words[0] not in BENCHES:
        sys.stderr.write(f"no such bench: {words[0]}\n\n{_help()}\n")
        return 2
    asked = _grouped(words) or [(name, []) for name in USUAL]
    return max([import_module(f"bench.{name}").main(options) for name, options in asked])


def _grouped(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each name with the options that follow it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in BENCHES:
            groups.append((word, []))
        else:
            groups[-1][1].append(word)
    return groups


def _help() -> str:
    width = max(len(name) for name in BENCHES)
    lines = [f"  {name.ljust(width)}  {what}" for name, what in BENCHES.items()]
    return "\n".join([(__doc__ or "").strip(), "", *lines])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
