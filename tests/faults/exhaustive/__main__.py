"""Fail at every I/O boundary: `make faults`, or `python -m tests.faults.exhaustive`.

--trials N    about so many trials in all (0: every boundary; the default)
--minutes M   stop after M minutes
--width W     trials at a time (2 more than there are processors)
--seed S      the order and every choice; printed, for the next time
--only KIND   one phase (may be repeated)
--replay ID   one trial, by the text that was printed when it failed
--without G   take the guard G out and show what breaks ("all": each in turn)
--report      write the figures into docs/reliability.md
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.embedded import Stack, embedded_stack
from config.embedded.stack import remove_stack
from tests.faults import guards
from tests.faults.exhaustive import mutation, report
from tests.faults.exhaustive.desk import Desk, open_desk
from tests.faults.exhaustive.phases import KINDS, WORKERS, Whole
from tests.faults.exhaustive.plan import Recorded
from tests.faults.exhaustive.suite import Suite
from tests.faults.exhaustive.trials import parse_id, run_trial
from tests.world import ROOT


def say(text: str) -> None:
    """Print at once: a whole run takes long."""
    print(text, flush=True)


@contextmanager
def own_desk() -> Iterator[tuple[Desk, Stack]]:
    """Servers of our own, which may be harmed, and a desk on them."""
    (ROOT / ".run").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=ROOT / ".run"))
    try:
        with (
            embedded_stack(folder=folder / "stack", use_environment=False) as stack,
            open_desk(stack, folder) as desk,
        ):
            yield desk, stack
    finally:
        remove_stack(folder / "stack")
        remove_stack(folder)


def main() -> int:
    """Run what the command line asks for; 0 when every invariant held (or broke as it should)."""
    options = _options()
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    say(f"seed {seed}")
    if options.without:
        return _without(options.without, seed, write=options.report)
    with own_desk() as (desk, stack):
        if options.replay:
            return _replay(desk, options.replay)
        suite = Suite(desk, options.width, time.monotonic() + options.minutes * 60, say)
        rng = random.Random(seed)
        whole = Whole(desk, stack, suite, rng, options.trials, say, Recorded())
        whole.run(tuple(options.only or KINDS))
        text = report.figures_text(suite.figures, whole.recorded, seed=seed)
        say(text)
        for outcome in suite.figures.failed:
            say(report.failure_text(outcome, seed=seed))
        if options.report:
            report.write("figures", text)
        return 1 if suite.figures.failed or suite.figures.too_slow else 0


def _replay(desk: Desk, trial_id: str) -> int:
    trial = parse_id(trial_id)
    desk.start_workers(WORKERS, proxied=trial.kind == "connection")
    outcome = run_trial(desk, trial)
    for entry in outcome.log:
        say(f"  {entry}")
    for violation in outcome.violations:
        say(str(violation))
    say(f"reached: {outcome.reached}, {len(outcome.violations)} violations")
    return 1 if outcome.violations else 0


def _without(name: str, seed: int, *, write: bool) -> int:
    names = list(guards.GUARDS) if name == "all" else [name]
    rows = []
    for guard in names:
        with own_desk() as (desk, _):
            rows.append(mutation.try_without(desk, guard, seed=seed, say=say))
    text = report.guards_text(rows)
    say(text)
    if write:
        report.write("guards", text)
    return 0 if all(row.shown for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.exhaustive",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--replay", default="")
    parser.add_argument("--without", default="", choices=["", "all", *guards.GUARDS])
    # More at once would measure how long a trial waits for a processor.
    parser.add_argument("--width", type=int, default=2 + (os.cpu_count() or 1))
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
