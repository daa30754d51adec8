"""Take one guard out and look which invariants break: a suite that stays green proves nothing."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.faults import guards
from tests.faults.exhaustive import plan
from tests.faults.exhaustive.desk import Desk
from tests.faults.exhaustive.suite import Suite
from tests.faults.exhaustive.trials import Trial

WORKERS, WIDTH, BATCH = 6, 6, 12


@dataclass(frozen=True, slots=True)
class Row:
    """One guard: how many trials with it (the control) and without it, and what broke."""

    guard: str
    says: str
    control: int
    trials: int
    broken: tuple[str, ...]

    @property
    def shown(self) -> bool:
        return bool(self.broken)


def try_without(
    desk: Desk,
    name: str,
    *,
    seed: int,
    say: Callable[[str], None],
    recorded: plan.Boundaries | None = None,
    at_most: int = 120,
    seconds: float = 240.0,
) -> Row:
    """Trials of the kinds that need this guard: some with it, of which none may break anything,
    then the same ones and more without it, until an invariant breaks."""
    guard = guards.GUARDS[name]
    proxied = "connection" in dict(guard.trials)
    desk.start_workers(WORKERS, proxied=proxied)
    in_workers, in_web = ("", name) if guard.in_web else (name, "")
    stories = dict.fromkeys(story for _, story in guard.trials)
    boundaries = recorded or plan.record(desk, tuple(stories)).boundaries
    if any("messages" in kind for kind, _ in guard.trials):
        desk.arm("_messages", {})
    try:
        control = Suite(desk, WIDTH, time.monotonic() + seconds, say)
        control.run(_trials(guard, boundaries, random.Random(seed)), at_most=BATCH)
        if control.figures.failed:
            say(f"with {name} in place something broke: no verdict")
            return Row(name, guard.says, control.figures.total, 0, ())
        for statement in guard.drops:
            desk.conn().execute(statement)
        desk.start_workers(WORKERS, without=in_workers, proxied=proxied)
        if in_web:
            desk.start_web(without=in_web)
        say(f"without {name}: {guard.says}")
        suite = Suite(desk, WIDTH, time.monotonic() + seconds, say)
        source = _trials(guard, boundaries, random.Random(seed))
        while not suite.figures.failed and suite.figures.total < at_most:
            if time.monotonic() > suite.until or not suite.run(source, at_most=BATCH):
                break
    finally:
        desk.disarm("_messages")
        if in_web:
            desk.start_web()
    broken = Counter(
        f"{violation.code} {violation.kind}"
        for outcome in suite.figures.failed
        for violation in outcome.violations
    )
    counts = control.figures.total, suite.figures.total
    return Row(name, guard.says, *counts, tuple(sorted(broken)))


def _trials(
    guard: guards.Guard, boundaries: plan.Boundaries, rng: random.Random
) -> Iterator[Trial]:
    """The trials that the guard names, shuffled, again and again."""
    made = [trial for kind, story in guard.trials for trial in _kind(kind, story, boundaries, rng)]
    while made:
        rng.shuffle(made)
        yield from made


def _kind(
    kind: str, story: str, boundaries: plan.Boundaries, rng: random.Random
) -> Iterator[Trial]:
    only = {story: boundaries[story]}
    match kind:
        case "kill":
            yield from plan.kills(only)
        case "web kill":
            yield from (t for t in plan.kills(only) if t.faults[0].at.startswith("web|"))
        case "pause":
            yield from plan.pauses(only, rng, every=1)
        case "connection":
            yield from plan.lost_connections(only, rng)
        case _:
            yield Trial(kind, story)
