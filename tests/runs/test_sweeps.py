"""The delivery guarantee under load: bounded, patient, one pass at a time, and harmless to kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection, transaction

from agentcore.lifecycle import STEPS
from config.broker import ISOLATE
from runs import dispatch, isolation, poison, sweeps, worker
from runs.models import ActionJournal, Attempt, Incident, Run, Worker
from runs.selectors import database_clock
from runs.transitions import locked_run
from runs.worker import WorkerIdentity
from tests.factories import force_state, make_run, new_action
from tests.runs.rows import make_attempt, make_turn
from tests.world import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def broker(django_db_setup: None) -> Iterator[redis.Redis]:
    """The session's broker with no message in it."""
    prefix = os.environ["AGENTCORE_BROKER_PREFIX"]
    client = redis.Redis.from_url(settings.REDIS_URL)
    dispatch._paused_until = 0.0

    def clear() -> None:
        keys = list(client.scan_iter(f"{prefix}*"))
        if keys:
            client.delete(*keys)

    clear()
    yield client
    clear()
    client.close()
    worker.stop()  # a pass that drives or suspends is somebody, with a beat
    worker._current = None


def _waiting() -> dict[str, int]:
    return dispatch.backlog(*STEPS, isolation.QUEUE)


def _due(count: int, **columns: Any) -> list[Run]:
    runs = [make_run() for _ in range(count)]
    for run in runs:
        if columns:
            force_state(run, **columns)
    return runs


def _isolate_worker(*, beats_ago: float = 0.0) -> None:
    now = database_clock()
    Worker.objects.create(
        id=WorkerIdentity(frozenset()).id,
        hostname="here",
        pid=1,
        queues=[isolation.QUEUE],
        version="test",
        started_at=now,
        beat_at=now - timedelta(seconds=beats_ago),
    )


def test_the_isolate_queue_has_one_name() -> None:
    assert isolation.QUEUE == ISOLATE


@pytest.mark.requirement("R55", "R65")
def test_hints_are_bounded_by_the_room_in_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backlog each pass adds only what still fits, oldest first; never twice the backlog."""
    monkeypatch.setattr(sweeps, "MAX_BACKLOG", 10)
    runs = _due(25)

    assert [sweeps.sweep_once().hinted for _ in range(3)] == [10, 1, 1]

    assert sum(_waiting().values()) == 12
    hinted = Run.objects.exclude(hinted_at=None).order_by("wake_at").values_list("pk", flat=True)
    assert list(hinted) == [run.pk for run in runs[:12]]


@pytest.mark.requirement("R65")
def test_a_run_is_hinted_less_and_less_often_until_somebody_claims_it() -> None:
    (run,) = _due(1)
    base = settings.AGENTCORE_OPTIONS.hint_backoff
    for hints in range(3):
        if hints:
            just_before = timedelta(seconds=base * 2**hints - 2)
            force_state(run, hinted_at=database_clock() - just_before)
            assert sweeps.sweep_once().due == 0
            force_state(run, hinted_at=database_clock() - just_before - timedelta(seconds=3))
        assert sweeps.sweep_once().hinted == 1
        run.refresh_from_db()
        assert run.hints == hints + 1
    assert sum(_waiting().values()) == 3

    from runs import leases

    assert leases.claim(run_id=run.pk, revision=None, worker=WorkerIdentity(frozenset(STEPS)))
    run.refresh_from_db()
    assert (run.hints, run.hinted_at) == (0, None)


@pytest.mark.requirement("R65")
def test_two_sweeps_at_once_hint_each_run_once() -> None:
    _due(40)

    def sweep(_: int) -> sweeps.Swept:
        try:
            return sweeps.sweep_once()
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(sweep, range(8)))

    assert sum(pass_.hinted for pass_ in done) == 40
    assert sum(_waiting().values()) == 40
    assert set(Run.objects.values_list("hints", flat=True)) == {1}


def test_a_sweep_leaves_at_once_when_another_one_runs() -> None:
    _due(1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [sweeps.LOCK_KEY])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_sweep_and_close).result(10).busy
    assert not sweeps.sweep_once().busy


def _sweep_and_close() -> sweeps.Swept:
    try:
        return sweeps.sweep_once()
    finally:
        connection.close()


@pytest.mark.requirement("R65")
def test_a_run_whose_row_is_locked_does_not_hold_up_the_others() -> None:
    locked, free = _due(2)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [locked.pk])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_sweep_and_close).result(10).hinted == 1
    free.refresh_from_db()
    assert free.hints == 1


@pytest.mark.fault
@pytest.mark.requirement("R59", "R65")
@pytest.mark.parametrize(
    ("point", "messages", "marked"),
    [
        ("sweep.before_commit", 0, 0),
        ("sweep.after_commit", 0, 5),
        ("sweep.before_publish", 0, 5),
        ("sweep.after_publish", 1, 5),
    ],
)
def test_a_sweep_that_dies_in_the_middle_costs_one_period(
    process_env: dict[str, str], point: str, messages: int, marked: int
) -> None:
    """Killed at any point: its lock is free at once, and after the back-off all are hinted."""
    runs = _due(5)
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "sweep"],
        env={**process_env, "AGENTCORE_FAILPOINTS": f"{point}=kill"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr.decode()[-2000:]
    assert sum(_waiting().values()) == messages
    assert Run.objects.exclude(hinted_at=None).count() == marked

    for run in runs:
        force_state(run, hinted_at=database_clock() - timedelta(minutes=10))
    assert sweeps.sweep_once().hinted == 5
    assert sum(_waiting().values()) == messages + 5


# --- runs that must be driven alone ---------------------------------------------------------


def test_an_isolated_run_goes_to_its_own_queue_when_a_worker_serves_it() -> None:
    _due(2, claims=2, state="CALLING_MODEL")
    _due(1)
    _isolate_worker()

    assert sweeps.sweep_once().hinted == 3
    assert _waiting() == {"compile": 1, "model": 0, "tools": 0, "observe": 0, "isolate": 2}


@pytest.mark.parametrize("beats_ago", [None, 3600.0])
def test_without_such_a_worker_an_isolated_run_waits_for_a_child(beats_ago: float | None) -> None:
    """Not marked as hinted, so nothing delays it once somebody can drive it."""
    (run,) = _due(1, claims=2, state="CALLING_MODEL")
    if beats_ago is not None:
        _isolate_worker(beats_ago=beats_ago)
    assert sweeps.sweep_once() == sweeps.Swept()

    children = _Recorded(wait=60.0)
    assert sweeps.sweep_once(children=children) == sweeps.Swept()
    force_state(run, wake_at=database_clock() - timedelta(seconds=61))
    assert sweeps.sweep_once(children=children).isolated == 1
    assert children.given == [run.pk]
    assert sum(_waiting().values()) == 0


class _Recorded(poison.Children):
    """Children that only note what they were given."""

    def start(self, run_ids: Any) -> None:
        self.given = list(run_ids)


@pytest.mark.requirement("R59", "R66")
def test_a_spent_run_is_suspended_with_its_evidence_and_its_write_is_unknown() -> None:
    run, attempt = _died_sending(claims=5)

    assert sweeps.sweep_once().suspended == 1

    run.refresh_from_db()
    assert (run.state, run.resume_to, run.lease_worker) == ("SUSPENDED", "DISPATCHING_TOOLS", None)
    assert (run.claims, run.fence) == (0, 4)
    for fact in ("POISON: 5 claims", "step tools", str(attempt.pk), str(attempt.worker)):
        assert fact in run.reason
    incident = Incident.objects.get(run=run)
    assert (incident.kind, incident.attempt_id, incident.detail) == (
        "POISON",
        attempt.pk,
        run.reason,
    )
    action = ActionJournal.objects.get(run=run)
    attempt.refresh_from_db()
    assert (action.state, attempt.outcome) == ("UNKNOWN", None)
    assert attempt.lost_at is not None
    assert run.wake_at == action.next_probe_at, "its write is looked up while it is suspended"
    assert sweeps.sweep_once().suspended == 0


def test_a_spent_run_that_is_cancelling_hands_its_write_to_a_person() -> None:
    run, _ = _died_sending(claims=5, state="CANCELLING", stop_reason="CANCEL")

    assert sweeps.sweep_once().suspended == 1

    run.refresh_from_db()
    action = ActionJournal.objects.get(run=run)
    assert (run.state, action.state, action.reason) == ("CANCELLING", "NEEDS_HUMAN", "POISON")
    assert run.wake_at > database_clock() + timedelta(days=1)


def test_a_living_holder_is_not_suspended() -> None:
    run, _ = _died_sending(claims=5)
    Worker.objects.update(beat_at=database_clock())
    assert sweeps.sweep_once().suspended == 0
    assert poison.suspend(run.pk, worker=WorkerIdentity(frozenset())) is False
    run.refresh_from_db()
    assert run.state == "DISPATCHING_TOOLS"


def _died_sending(**columns: Any) -> tuple[Run, Attempt]:
    """A run whose last holder is dead, with a write that it had begun to send."""
    run = make_run()
    now = database_clock()
    dead = WorkerIdentity(frozenset())
    Worker.objects.create(
        id=dead.id,
        hostname="here",
        pid=1,
        version="test",
        started_at=now,
        beat_at=now - timedelta(hours=1),
    )
    make_turn(run, created_at=now, decided_at=now)
    with locked_run(run.pk, actor="test", event="test") as draft:
        draft.add_action(new_action(run, state="PROPOSED", effect="WRITE"))
    action = ActionJournal.objects.get(run=run)
    force_state(
        action, state="RUNNING", fence=3, first_sent_at=now, idempotency_key="k", generation=0
    )
    attempt = make_attempt(
        action,
        outcome=None,
        ended_at=None,
        result=None,
        fence=3,
        worker=dead.id,
        started_at=now,
    )
    values: dict[str, Any] = {
        "state": "DISPATCHING_TOOLS",
        "turn": 1,
        "fence": 3,
        "lease_worker": dead.id,
        "claim_token": dead.id,
        "call_deadline_at": now + timedelta(minutes=1),
    }
    force_state(run, **{**values, **columns})
    return run, attempt
