"""Run many trials side by side on one desk and keep the figures."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.faults.exhaustive.desk import DEAD_AFTER, SWEEP_PERIOD, Desk
from tests.faults.exhaustive.trials import Outcome, Trial, run_trial
from tests.faults.invariants import Violation


@dataclass
class Figures:
    """What came out of a run of the suite."""

    trials: Counter[str] = field(default_factory=Counter)
    passed_by: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    crossed: int = 0
    failed: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        kind = outcome.trial.kind
        if not outcome.reached and not outcome.violations:
            self.passed_by[kind] += 1  # the run took another way; nothing was broken
            return
        self.trials[kind] += 1
        self.recoveries += outcome.recoveries
        self.crossed += outcome.crossed
        self.violations.update({violation.kind for violation in outcome.violations})
        if outcome.violations:
            self.failed.append(outcome)

    @property
    def total(self) -> int:
        return self.trials.total()

    @property
    def too_slow(self) -> bool:
        """Whether the recovery of one kill in a hundred took longer than it may."""
        return len(self.recoveries) >= 100 and self.recovery(0.99) > RECOVERY_LIMIT

    def recovery(self, share: float) -> float:
        """Seconds within which that share of the kills was followed by a claim."""
        ordered = sorted(self.recoveries)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


RECOVERY_LIMIT = DEAD_AFTER + 2 * SWEEP_PERIOD
"""Seconds: the dead-worker time and two sweep periods."""


@dataclass
class Suite:
    """Runs trials from an iterator, `width` at a time, until it ends or the time is over."""

    desk: Desk
    width: int
    until: float
    say: Callable[[str], None]
    figures: Figures = field(default_factory=Figures)

    def run(self, trials: Iterable[Trial], *, at_most: int | None = None) -> list[Outcome]:
        """Run trials; the outcomes. `at_most`: how many that reached their boundary."""
        source = _Shared(iter(trials))
        outcomes: list[Outcome] = []
        lock = threading.Lock()
        began, goal = time.monotonic(), at_most if at_most is not None else 1 << 30

        def work() -> None:
            while time.monotonic() < self.until and len(outcomes) < goal:
                trial = source.take()
                if trial is None:
                    return
                outcome = self._one(trial)
                with lock:
                    outcomes.append(outcome)
                    self.figures.add(outcome)
                    self._progress(outcome, len(outcomes), began)

        with ThreadPoolExecutor(max_workers=self.width) as pool:
            for future in [pool.submit(work) for _ in range(self.width)]:
                future.result()
        self.desk.close_connections()
        self.figures.seconds += time.monotonic() - began
        return outcomes

    def _one(self, trial: Trial) -> Outcome:
        try:
            return run_trial(self.desk, trial)
        except Exception as error:  # noqa: BLE001  (a trial that cannot be judged has failed)
            text = f"{type(error).__name__}: {error}"
            return Outcome(trial, 0, violations=[Violation("I0", "broken", text)])

    def _progress(self, outcome: Outcome, done: int, began: float) -> None:
        for violation in outcome.violations:
            self.say(f"  ORD-{outcome.number} {violation}\n    {outcome.trial.id}")
        for seconds in outcome.recoveries:
            if seconds > RECOVERY_LIMIT:
                self.say(f"  claimed again after {seconds:.2f} s\n    {outcome.trial.id}")
        if done % 50 == 0:
            rate = done / (time.monotonic() - began)
            figures = self.figures
            self.say(
                f"  {figures.total} trials, {len(figures.failed)} failed, {rate:.1f}/s, recovery "
                f"p50 {figures.recovery(0.5):.2f} s, p99 {figures.recovery(0.99):.2f} s"
            )


class _Shared:
    """One iterator for several threads."""

    def __init__(self, trials: Iterator[Trial]) -> None:
        self._trials, self._lock = trials, threading.Lock()

    def take(self) -> Trial | None:
        with self._lock:
            return next(self._trials, None)
