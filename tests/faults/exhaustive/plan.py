"""Which trials there are: every boundary on both sides first, then the other ways to fail."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.exhaustive.desk import Desk, wait_for
from tests.faults.exhaustive.stories import LISTED
from tests.faults.exhaustive.trace import PROCESS
from tests.faults.exhaustive.trials import Fault, Outcome, Trial, run_trial

Boundaries = dict[str, tuple[str, ...]]
"""Story -> its boundaries, in the order in which they were first passed."""

PAYMENT_MODES = (
    "drop_before_commit", "error_before_commit", "delay", "delay_after_commit",
    "commit_then_drop", "error_after_commit", "cut_after_commit", "html_after_commit",
)  # fmt: skip
MODEL_MODES = ("error_500", "error_429", "delay", "drop", "cut_200", "html_200")
TARGETS = ("POST /refunds", "GET /orders", "GET /policy", "GET /refunds")


@dataclass
class Recorded:
    """What one undisturbed execution of each story passed, and what was wrong with it."""

    boundaries: Boundaries = field(default_factory=dict)
    of_process: tuple[str, ...] = ()
    of_fleet: Boundaries = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Boundaries of all stories."""
        return sum(len(found) for found in self.boundaries.values())


def record(desk: Desk, stories: Sequence[str] = LISTED) -> Recorded:
    """Execute each story once with every boundary counted."""
    recorded = Recorded()
    for story in stories:
        outcome = run_trial(desk, Trial("record", story), record=True)
        hits = [entry["at"] for entry in outcome.log if entry["e"] == "hit"]
        recorded.boundaries[story] = tuple(dict.fromkeys(hits))
        recorded.outcomes.append(outcome)
    return recorded


def record_process(desk: Desk) -> tuple[str, ...]:
    """What a process does beside its runs: beat, sweep, fetching messages."""
    name = "ORD-0"
    desk.arm(f"{PROCESS}{name}", {"record": True})
    for story in ("slow", "small"):
        run_trial(desk, Trial("record", story))
    wait_for(lambda: any("beat|" in e["at"] for e in desk.log(name)), seconds=5, what="a beat")
    desk.disarm(f"{PROCESS}{name}")
    names = (entry["at"].rpartition("#")[0] for entry in desk.log(name) if entry["e"] == "hit")
    return tuple(f"{name}#1" for name in sorted(set(names)))


def process_kills(found: Sequence[str]) -> Iterator[Trial]:
    """The process killed around each boundary of its own while it drives a run."""
    for at in found:
        for side in ("before", "after"):
            yield Trial("beat, sweep, fetch", "slow", (Fault(at, side, "kill"),))


def kills(boundaries: Boundaries) -> Iterator[Trial]:
    """The process killed just before and just after each boundary of each story."""
    for story, found in boundaries.items():
        for at in found:
            for side in ("before", "after"):
                yield Trial("kill", story, (Fault(at, side, "kill"),))


def double_kills(boundaries: Boundaries, rng: random.Random) -> Iterator[Trial]:
    """Two kills in one run, without end: the second one hits the recovery of the first."""
    while True:
        story = rng.choice(list(boundaries))
        first, second = sorted(rng.sample(range(len(boundaries[story])), 2))
        faults = tuple(
            Fault(boundaries[story][place], rng.choice(("before", "after")), "kill")
            for place in (first, second)
        )
        yield Trial("two kills", story, faults)


def pauses(boundaries: Boundaries, rng: random.Random, *, every: int = 4) -> Iterator[Trial]:
    """A worker frozen (SIGSTOP) at a boundary until another one has taken its run over."""
    for story in ("small", "large", "lost_reply", "batch"):
        found = [at for at in boundaries.get(story, ()) if at.startswith("run|")]
        wanted = [at for at in found if "|http|" in at or "COMMIT" in at or "|model|" in at]
        rest = [at for at in found if at not in wanted]
        for at in (*wanted, *rest[rng.randrange(every) :: every]):
            yield Trial("pause", story, (Fault(at, rng.choice(("before", "after")), "stop"),))


def lost_connections(boundaries: Boundaries, rng: random.Random) -> Iterator[Trial]:
    """PostgreSQL lost around each COMMIT, before and after it was executed, and in between."""
    for story in ("small", "large", "lost_reply", "batch", "again"):
        found = [at for at in boundaries.get(story, ()) if "|sql|" in at and "|connect" not in at]
        commits = [at for at in found if "COMMIT" in at]
        rest = [at for at in found if at not in commits]
        for at in commits:
            for mode in ("lose_before", "lose_after"):
                yield Trial("connection", story, (Fault(at, "before", mode),))
        for at in rest[rng.randrange(4) :: 4]:
            mode = rng.choice(("lose_before", "lose_after"))
            yield Trial("connection", story, (Fault(at, "before", mode),))


def downstream(rng: random.Random) -> Iterator[Trial]:
    """Replies of the payment service and of the model lost before and after processing."""
    for story in ("small", "large"):
        for mode in PAYMENT_MODES:
            for target in TARGETS:
                fault = {"mode": mode, "target": target, "seconds": 0.5}
                if target != "POST /refunds":
                    fault["order_id"] = None
                times = rng.choice((1, 2)) if target == "POST /refunds" else 1
                yield Trial("downstream", story, payment=tuple({**fault, "times": times}.items()))
        for mode in MODEL_MODES:
            fault = {"mode": mode, "times": rng.choice((1, 2)), "seconds": 0.5}
            yield Trial("model", story, model=tuple(fault.items()))
