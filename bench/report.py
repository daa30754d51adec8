"""`make bench ARGS="report"`: what was stored last, as the tables of docs/performance.md.

Each table stands below the command that made it, its day, the machine and the load. With names only
those are printed, such as `report counts peers-delay2000`; a measurement of chosen peers is stored
apart, as `peers-part` and `workload-part`, and is printed when it is named. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bench import results, tables

ORDER = tuple(tables.OF)
PART = "-part"
WIDTH = 108


def main(arguments: Sequence[str] = ()) -> int:
    """Print. 2 when a name has no stored result."""
    stored = results.stored()
    made = argparse.ArgumentParser(
        prog="bench report", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("names", nargs="*", help="results (all whole ones)")
    names = made.parse_args(list(arguments)).names or whole(stored)
    missing = [name for name in names if name not in stored or kind_of(name) not in tables.OF]
    if missing or not names:
        there = ", ".join(sorted(stored)) or "nothing"
        sys.stderr.write(f"not stored: {', '.join(missing) or 'anything'}; there is {there}\n")
        return 2
    print("\n\n".join(section(name, stored[name]) for name in names))
    return 0


def whole(stored: Mapping[str, Any]) -> list[str]:
    """The names of all results but those of chosen peers, in the order of the document."""
    names = [name for name in stored if kind_of(name) in ORDER and not name.endswith(PART)]
    return sorted(names, key=lambda name: (ORDER.index(kind_of(name)), name))


def kind_of(name: str) -> str:
    """`peers` for `peers-delay2000-part`."""
    return name.split("-", maxsplit=1)[0]


def section(name: str, body: Mapping[str, Any]) -> str:
    """A heading, one paragraph on the measurement, and its tables."""
    return f"### {name}\n\n{origin(name, body)}\n\n{tables.OF[kind_of(name)](body)}"


def origin(name: str, body: Mapping[str, Any]) -> str:
    """By which command, when and on what."""
    about = body["machine"]
    words = body["command"]
    quote = "'" if '"' in words else '"'
    command = f"make bench ARGS={quote}{words}{quote}"
    if kind_of(name) == "peers":
        options = words.removeprefix("peers").strip()
        command = "make bench-peers" + (f" ARGS={quote}{options}{quote}" if options else "")
    versions = [f"PostgreSQL {about['postgres']['server_version']}", f"Python {about['python']}"]
    versions += [f"{name} {version}" for name, version in about["packages"].items()]
    versions += packages_of(body)
    text = (
        f"`{command}`, {body['at'][:10]}, {_minutes(body)}: {', '.join(versions)};"
        f" {about['cpus']} CPUs, a small commit {about['commit_ms']:.2f} ms, load average"
        f" {about['load_before'][0]} before and {body['load_after'][0]} after."
    )
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def packages_of(body: Mapping[str, Any]) -> list[str]:
    """The other runtimes with their versions, where they were measured."""
    return [line.replace("==", " ") for line in body.get("packages", ())]


def _minutes(body: Mapping[str, Any]) -> str:
    seconds = body["took_seconds"]
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds} seconds"
