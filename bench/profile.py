"""`make bench ARGS="profile"`: where the time of a five-turn run goes.

Drives runs one after the other in this process, as a thread of a worker would, first bare and then
under cProfile. `--stored FILE` keeps the profile.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Sequence

from bench import machine, ours
from bench.counts import NEW, drive_to_the_end, stop
from bench.installation import Installation, installation
from bench.peer import TURNS


def main(arguments: Sequence[str] = ()) -> int:
    """Print the bare time and the costliest functions."""
    made = argparse.ArgumentParser(prog="bench profile", description=__doc__)
    made.add_argument("--runs", type=int, default=40)
    made.add_argument("--turns", type=int, default=TURNS)
    made.add_argument("--lines", type=int, default=45)
    made.add_argument("--sort", default="tottime", choices=("tottime", "cumtime"))
    made.add_argument("--stored", default="", help="file for the profile (pstats)")
    asked = made.parse_args(list(arguments))
    with installation() as place:
        ours.set_up(place)
        _drive_all(5, asked.turns)
        _bare(place, asked.runs, asked.turns)
        profile = cProfile.Profile()
        profile.runcall(_drive_all, asked.runs, asked.turns)
        if asked.stored:
            profile.dump_stats(asked.stored)
        pstats.Stats(profile).sort_stats(asked.sort).print_stats(asked.lines)
        stop()
    return 0


def _bare(place: Installation, runs: int, turns: int) -> None:
    postgres = place.servers_cpu()[0]
    begun, cpu = time.perf_counter(), time.process_time()
    _drive_all(runs, turns)
    taken, used = time.perf_counter() - begun, time.process_time() - cpu
    postgres = place.servers_cpu()[0] - postgres
    print(
        f"{1000 * taken / runs:.2f} ms a run; CPU {1000 * used / runs:.2f} ms here,"
        f" {1000 * postgres / runs:.2f} ms in PostgreSQL; load {machine.load()}"
    )


def _drive_all(runs: int, turns: int) -> None:
    for _ in range(runs):
        drive_to_the_end(ours.start_run(turns), revision=NEW)
