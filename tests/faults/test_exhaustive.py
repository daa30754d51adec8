"""A sample of the exhaustive suite for every commit; `make faults` runs all of it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from config.embedded import Stack
from tests.faults import guards
from tests.faults.exhaustive import mutation, plan
from tests.faults.exhaustive.desk import Desk, open_desk
from tests.faults.exhaustive.suite import Suite
from tests.faults.exhaustive.trials import Trial, parse_id, run_trial

pytestmark = pytest.mark.fault

SEED = 20_261
SECONDS = 60
"""For each group of trials: a busy machine makes fewer of them, never none."""


@pytest.fixture(scope="module")
def desk(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with open_desk(stack, tmp_path_factory.mktemp("exhaustive")) as made:
        made.start_workers(6)
        yield made


@pytest.fixture(scope="module")
def recorded(desk: Desk) -> plan.Recorded:
    return plan.record(desk)


def _suite(desk: Desk) -> Suite:
    return Suite(desk, width=6, until=time.monotonic() + SECONDS, say=print)


def _nothing_broke(suite: Suite, *, at_least: int) -> None:
    broken = [f"{o.trial.id}: {v}" for o in suite.figures.failed for v in o.violations]
    assert broken == []
    assert suite.figures.total >= at_least


def test_every_kind_of_boundary_is_found(recorded: plan.Recorded) -> None:
    """Undisturbed runs break nothing, and what they pass is what the suite claims to count."""
    assert [str(v) for o in recorded.outcomes for v in o.violations] == []
    found = {at for story in recorded.boundaries.values() for at in story}
    kinds = {tuple(at.split("|")[:2]) for at in found}
    assert {("run", "sql"), ("run", "http"), ("run", "model"), ("web", "sql")} <= kinds
    assert any("COMMIT" in at for at in found)
    assert any("LPUSH" in at for at in found)
    assert any("receive" in at and "POST /refunds" in at for at in found)
    assert len(recorded.boundaries["small"]) > 60  # one message a transaction leaves few


@pytest.mark.requirement("R16", "R53", "R55", "R60", "R61", "R101")
def test_killed_at_a_sample_of_all_boundaries(desk: Desk, recorded: plan.Recorded) -> None:
    trials = list(plan.kills(recorded.boundaries))
    random.Random(SEED).shuffle(trials)
    suite = _suite(desk)
    suite.run(trials, at_most=36)
    _nothing_broke(suite, at_least=6)


@pytest.mark.requirement("R60")
def test_frozen_past_the_lease_and_thawed(desk: Desk, recorded: plan.Recorded) -> None:
    trials = list(plan.pauses(recorded.boundaries, random.Random(SEED)))
    random.Random(SEED).shuffle(trials)
    suite = _suite(desk)
    suite.run(trials, at_most=10)
    _nothing_broke(suite, at_least=3)


@pytest.mark.requirement("R101")
def test_replies_lost_before_and_after_the_other_side_has_acted(desk: Desk) -> None:
    """Each way to lose the reply of the write (no answer, an error, cut, too late), and some of
    those of the model and of the reads."""
    trials = list(plan.downstream(random.Random(SEED)))
    writes = [t for t in trials if dict(t.payment).get("target") == "POST /refunds"]
    others = [trial for trial in trials if trial not in writes]
    random.Random(SEED).shuffle(others)
    suite = _suite(desk)
    suite.run([*writes[: len(plan.PAYMENT_MODES)], *others[:8]])
    _nothing_broke(suite, at_least=4)


@pytest.mark.requirement("R65")
def test_every_message_twice_and_out_of_order(desk: Desk) -> None:
    desk.arm("_messages", {})
    suite = _suite(desk)
    try:
        suite.run([Trial("messages", story) for story in ("small", "large", "batch") * 3])
    finally:
        desk.disarm("_messages")
    _nothing_broke(suite, at_least=3)


@pytest.mark.requirement("R16", "R61")
def test_the_database_lost_before_and_after_a_commit(desk: Desk, recorded: plan.Recorded) -> None:
    desk.start_workers(6, proxied=True)
    trials = list(plan.lost_connections(recorded.boundaries, random.Random(SEED)))
    random.Random(SEED).shuffle(trials)
    suite = _suite(desk)
    suite.run([trial for trial in trials if "COMMIT" in trial.id], at_most=16)
    _nothing_broke(suite, at_least=4)


@pytest.mark.parametrize("name", ["unknown", "lost"])
def test_a_guard_taken_out_is_seen(desk: Desk, recorded: plan.Recorded, name: str) -> None:
    row = mutation.try_without(
        desk, name, seed=SEED, say=print, recorded=recorded.boundaries, seconds=SECONDS
    )
    assert row.shown, f"nothing broke without {guards.GUARDS[name].says}"


def test_a_trial_is_found_again_by_its_id() -> None:
    """`--replay` gets the text that a failure printed."""
    trials = [
        *plan.kills({"small": ("run|sql|COMMIT after x = %s, y#2", "web|broker|send LPUSH#1")}),
        *plan.downstream(random.Random(SEED)),
    ]
    assert [parse_id(trial.id) for trial in trials] == trials


def test_a_trial_that_takes_too_long_is_a_lost_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without workers nothing ends; the checker must say so."""
    monkeypatch.setattr("tests.faults.exhaustive.trials.PATIENCE", 1.0)
    desk.stop_workers()
    outcome = run_trial(desk, Trial("none", "small"))
    assert {violation.kind for violation in outcome.violations} == {"lost"}
