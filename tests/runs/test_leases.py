"""Who may claim a run: one holder at a time, by the database clock, poison alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from agentcore.lifecycle import RunState
from agentcore.values import AttemptOutcome, OutcomeKind
from runs import isolation, journal, leases
from runs.models import Attempt, Event, Run, Worker
from runs.selectors import database_clock
from runs.transitions import Draft
from runs.worker import WorkerIdentity
from tests.factories import force_state, make_run, new_action

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = frozenset({"compile", "model", "tools", "observe"})
SECOND = timedelta(seconds=1)


def _worker(*, beats_ago: float = 0.0, queues: frozenset[str] = STEPS) -> WorkerIdentity:
    """A worker that beat so many seconds ago, and will not again."""
    identity = WorkerIdentity(queues)
    now = database_clock()
    Worker.objects.create(
        id=identity.id,
        hostname="here",
        pid=1,
        queues=sorted(queues),
        version="test",
        started_at=now,
        beat_at=now - timedelta(seconds=beats_ago),
    )
    return identity


def _held(worker: WorkerIdentity, *, call_for: float = 60.0, **columns: Any) -> Run:
    """A run in the hands of `worker`, with so many seconds left for its call."""
    run = make_run()
    now = database_clock()
    values: dict[str, Any] = {
        "state": "DISPATCHING_TOOLS",
        "lease_worker": worker.id,
        "claim_token": uuid4(),
        "call_deadline_at": now + timedelta(seconds=call_for),
        "fence": 3,
        "claims": 1,
        "wake_at": now,
    }
    force_state(run, **{**values, **columns})
    return run


def _claim(run: Run, worker: WorkerIdentity, revision: int | None = None) -> leases.Lease | None:
    return leases.claim(run_id=run.pk, revision=revision, worker=worker)


@pytest.mark.requirement("R60", "R61")
def test_a_claim_takes_a_new_fence_and_a_new_token() -> None:
    run, worker = make_run(), _worker()
    lease = _claim(run, worker, run.revision)
    run.refresh_from_db()

    assert lease is not None
    assert (run.lease_worker, run.claim_token, run.fence) == (worker.id, lease.token, lease.fence)
    assert (lease.fence, run.claims, run.hints) == (1, 1, 0)
    assert lease.holds(run)


@pytest.mark.requirement("R60", "R65")
def test_of_sixteen_claimers_one_gets_the_run() -> None:
    run, workers = make_run(), [_worker() for _ in range(4)]

    def claim(number: int) -> leases.Lease | None:
        try:
            return _claim(run, workers[number % 4], run.revision)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        taken = [lease for lease in pool.map(claim, range(16)) if lease]

    run.refresh_from_db()
    assert len(taken) == 1
    assert (run.fence, run.claims, run.claim_token) == (1, 1, taken[0].token)


@pytest.mark.requirement("R65")
def test_a_message_with_another_revision_is_stale() -> None:
    run, worker = make_run(), _worker()
    assert _claim(run, worker, run.revision - 1) is None
    assert _claim(run, worker, run.revision + 1) is None
    assert Event.objects.filter(run=run).count() == 1


@pytest.mark.requirement("R61")
@pytest.mark.parametrize(
    ("beats_ago", "call_for", "free"),
    [
        (0.0, 60.0, False),
        (0.0, -0.1, True),  # a thread is stuck: its process beats on, its call is over
        (3600.0, 60.0, True),  # the process is dead or paused
    ],
)
def test_a_lease_lives_by_the_beat_and_the_deadline_of_the_call(
    beats_ago: float, call_for: float, free: bool
) -> None:
    run = _held(_worker(beats_ago=beats_ago), call_for=call_for)
    lease = _claim(run, _worker())
    run.refresh_from_db()

    assert (lease is not None) is free
    assert run.fence == (4 if free else 3)


@pytest.mark.requirement("R61")
def test_a_holder_that_nobody_knows_holds_nothing() -> None:
    assert _claim(_held(WorkerIdentity(STEPS)), _worker()) is not None


def test_what_is_not_due_or_over_is_left_alone() -> None:
    now, worker = database_clock(), _worker()
    later, over, suspended = make_run(), make_run(), make_run()
    force_state(later, wake_at=now + 60 * SECOND)
    force_state(over, state="COMPLETED", ended_at=now, output={})
    force_state(suspended, state="SUSPENDED", resume_to="CALLING_MODEL", wake_at=now + 60 * SECOND)

    assert [_claim(run, worker) for run in (later, over, suspended)] == [None] * 3


@pytest.mark.requirement("R59")
@pytest.mark.parametrize("claims", [2, 3, 4])
def test_a_run_that_killed_two_processes_is_for_those_that_drive_one(claims: int) -> None:
    ordinary, alone = _worker(), _worker(queues=frozenset({"isolate"}))
    run = _held(_worker(beats_ago=3600.0), claims=claims)

    assert _claim(run, ordinary) is None
    assert _claim(run, alone) is not None


@pytest.mark.requirement("R59")
def test_nobody_claims_a_run_that_died_three_times_alone() -> None:
    run = _held(_worker(beats_ago=3600.0), claims=5)
    assert _claim(run, _worker(queues=frozenset({"isolate"}))) is None


@pytest.mark.parametrize(("claims", "seconds"), [(0, 0), (1, 20), (2, 40), (3, 80)])
def test_a_claim_says_when_the_run_is_due_should_it_die(claims: int, seconds: float) -> None:
    """From the second death on it waits longer each time; the last one is judged at once."""
    alone = _worker(queues=frozenset({"isolate"}))
    run = _held(_worker(beats_ago=3600.0), claims=claims)
    before = database_clock()
    assert _claim(run, alone) is not None
    run.refresh_from_db()

    assert run.claims == claims + 1
    waits = (run.wake_at - before).total_seconds()
    assert seconds - 2 < waits < seconds + 5


def test_the_back_off_has_a_cap_and_ends_when_the_run_is_spent() -> None:
    now = database_clock()
    cap = settings.AGENTCORE_OPTIONS.hint_backoff_cap
    spent = isolation.spent_at()
    assert spent == 5
    waits = [isolation.wake_if_lost(claims=n, now=now) - now for n in range(spent + 2)]
    assert waits == [
        0 * SECOND,
        0 * SECOND,
        20 * SECOND,
        40 * SECOND,
        80 * SECOND,
        *[0 * SECOND] * 2,
    ]
    assert max(waits).total_seconds() <= cap


@pytest.mark.parametrize(
    ("state", "resume_to", "becomes"),
    [
        ("WAITING_APPROVAL", None, "DISPATCHING_TOOLS"),
        ("RETRY_WAIT", "CALLING_MODEL", "CALLING_MODEL"),
    ],
)
def test_a_claim_leaves_a_state_that_holds_no_lease(
    state: str, resume_to: str | None, becomes: str
) -> None:
    run = make_run()
    force_state(run, state=state, resume_to=resume_to)
    assert _claim(run, _worker()) is not None
    run.refresh_from_db()
    assert (run.state, run.resume_to) == (RunState(becomes), None)


@pytest.mark.parametrize(
    ("kind", "claims"), [("TOOL", 0), ("MODEL", 0), ("PROBE", 3), ("PRECHECK", 3)]
)
def test_only_an_outcome_of_the_work_itself_ends_the_count_of_deaths(
    kind: str, claims: int
) -> None:
    """A probe that answers before each fatal send would otherwise keep the count at one."""
    run = _held(_worker(), claims=3)
    action = new_action(run, state="UNKNOWN", effect="WRITE")
    attempt = Attempt(run=run, kind=kind, n=1, turn=1, action=None if kind == "MODEL" else action)
    outcome = AttemptOutcome(OutcomeKind.NO_EFFECT, error_class="nothing")
    draft = Draft(run=run, now=database_clock())
    journal.apply_result(
        draft,
        attempt=attempt,
        action=attempt.action,
        siblings=[attempt],
        result=journal.Result(attempt_id=attempt.pk, outcome=outcome),
    )
    assert run.claims == claims
