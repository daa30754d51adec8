"""The phases of a whole run: each is a set of trials and the workers and harm that go with it."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from config.embedded import Stack
from tests.faults.exhaustive import plan
from tests.faults.exhaustive.desk import Desk
from tests.faults.exhaustive.plan import Recorded
from tests.faults.exhaustive.suite import Suite
from tests.faults.exhaustive.trials import Trial

WORKERS = 8
KINDS = (
    "kill",
    "beat, sweep, fetch",
    "two kills",
    "pause",
    "downstream",
    "messages",
    "broker",
    "connection",
    "fleet",
    "tampered",
    "late",
)
"""Names of the phases, in their order; also what `--only` takes."""
SHARES = {
    "two kills": 160, "pause": 200, "downstream": 200, "messages": 80, "broker": 90,
    "connection": 400, "fleet": 160, "beat, sweep, fetch": 400,
    "tampered": 12, "late": 12,
}  # fmt: skip
"""Trials of a phase at most, in a whole run; the kills are all of them."""


@dataclass
class Whole:
    """One run of the whole suite on one desk."""

    desk: Desk
    stack: Stack
    suite: Suite
    rng: random.Random
    trials: int
    say: Callable[[str], None]
    recorded: Recorded

    def run(self, kinds: Sequence[str] = KINDS) -> None:
        """Every phase of `kinds`, one after the other."""
        self.desk.start_workers(WORKERS)
        self.say("recording")
        self.recorded = plan.record(self.desk)
        for outcome in self.recorded.outcomes:
            self.suite.figures.add(outcome)
            for violation in outcome.violations:
                self.say(f"  undisturbed {outcome.trial.story}: {violation}")
        self.say(f"{self.recorded.total} boundaries in {len(self.recorded.boundaries)} stories")
        for kind in kinds:
            if time.monotonic() < self.suite.until:
                self.say(kind)
                _PHASES[kind](self)

    def share(self, kind: str) -> int:
        """How many trials of a kind belong to a run of `self.trials` in all (0: everything)."""
        whole = SHARES.get(kind, 2 * self.recorded.total)
        if not self.trials:
            return whole
        everything = sum(SHARES.values()) + 2 * self.recorded.total
        return max(1, min(whole, round(self.trials * whole / everything)))

    def some(self, kind: str, trials: Iterable[Trial]) -> None:
        """Run the share of a kind, chosen by the seed."""
        chosen = list(trials)
        self.rng.shuffle(chosen)
        self.suite.run(chosen, at_most=self.share(kind))


def _kills(whole: Whole) -> None:
    whole.some("kill", plan.kills(whole.recorded.boundaries))


def _process(whole: Whole) -> None:
    found = plan.record_process(whole.desk)
    whole.recorded.of_process = found
    whole.some("beat, sweep, fetch", plan.process_kills(found))


def _two_kills(whole: Whole) -> None:
    endless = plan.double_kills(whole.recorded.boundaries, whole.rng)
    whole.suite.run(endless, at_most=whole.share("two kills"))


def _pauses(whole: Whole) -> None:
    whole.some("pause", plan.pauses(whole.recorded.boundaries, whole.rng))


def _downstream(whole: Whole) -> None:
    whole.some("downstream", plan.downstream(whole.rng))


def _connections(whole: Whole) -> None:
    whole.desk.start_workers(WORKERS, proxied=True)
    whole.some("connection", plan.lost_connections(whole.recorded.boundaries, whole.rng))
    whole.desk.start_workers(WORKERS)


def _fleet(whole: Whole) -> None:
    """Workers that serve one queue each, so that the links of a turn travel as messages."""
    whole.desk.start_workers(2, fleet=True)
    recorded = plan.record(whole.desk, ("small", "large", "lost_reply", "batch"))
    whole.recorded.of_fleet = recorded.boundaries
    known = {at for found in whole.recorded.boundaries.values() for at in found}
    own = {
        story: tuple(at for at in found if at not in known)
        for story, found in recorded.boundaries.items()
    }
    trials = [Trial("fleet", t.story, t.faults) for t in plan.kills(own)]
    whole.some("fleet", trials)
    whole.desk.start_workers(WORKERS)


def _messages(whole: Whole) -> None:
    """Every message twice, old ones again at any time, and kills among them."""
    plain = itertools.cycle(("small", "large", "lost_reply", "batch", "again"))
    killed = plan.double_kills(whole.recorded.boundaries, whole.rng)

    def trials() -> Iterator[Trial]:
        for story in plain:
            yield Trial("messages", story)
            some = next(killed)
            yield Trial("messages", some.story, some.faults[:1])

    whole.desk.arm("_messages", {})
    try:
        whole.suite.run(trials(), at_most=whole.share("messages"))
    finally:
        whole.desk.disarm("_messages")


def _broker(whole: Whole) -> None:
    """Runs in flight while the broker is flushed, stopped or frozen again and again."""
    for harm in ("flush", "stop", "freeze"):
        stories = itertools.cycle(("small", "large", "lost_reply", "batch"))
        trials = (Trial(f"broker {harm}", story) for story in stories)
        thread = threading.Thread(
            target=whole.suite.run,
            args=(trials,),
            kwargs={"at_most": max(1, whole.share("broker") // 3)},
        )
        thread.start()
        while thread.is_alive():  # servers are started by the main thread only
            thread.join(whole.rng.uniform(0.3, 1.0))
            _harm_broker(whole.stack, harm, thread)


def _tampered(whole: Whole) -> None:
    """The arguments change between the approval and the start: nothing may be sent."""
    trials = (Trial("tampered", "tampered") for _ in itertools.count())
    whole.suite.run(trials, at_most=whole.share("tampered"))


def _late(whole: Whole) -> None:
    """A downstream without keys that acts long after the call was given up."""
    trials = (Trial("late", "looked_up") for _ in itertools.count())
    whole.suite.run(trials, at_most=whole.share("late"))


def _harm_broker(stack: Stack, harm: str, thread: threading.Thread) -> None:
    valkey = stack.valkey
    if valkey is None:
        raise RuntimeError("the broker is not ours to harm")
    if harm == "flush":
        valkey.flush()
        return
    undo = valkey.start if harm == "stop" else valkey.thaw
    (valkey.stop if harm == "stop" else valkey.freeze)()
    thread.join(1.2)
    undo()


_PHASES: dict[str, Callable[[Whole], None]] = {
    "kill": _kills,
    "beat, sweep, fetch": _process,
    "two kills": _two_kills,
    "pause": _pauses,
    "downstream": _downstream,
    "messages": _messages,
    "broker": _broker,
    "connection": _connections,
    "fleet": _fleet,
    "tampered": _tampered,
    "late": _late,
}
