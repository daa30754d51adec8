"""A claim and what a drive reads of the run: one message, and what is read row by row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import connection, models

from agentcore.values import AttemptKind
from runs import history, isolation, leases, transitions, view
from runs.leases import Lease
from runs.models import Attempt, Run, Worker
from runs.selectors import database_clock
from runs.worker import WorkerIdentity
from tests.factories import force_state, make_run
from tests.runs.acting import Downstream, go, propose_next, propose_run, write_tool
from tests.runs.rows import unguarded

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = frozenset({"compile", "model", "tools", "observe"})


def _values(row: models.Model) -> dict[str, Any]:
    return {name: value for name, value in row.__dict__.items() if name != "_state"}


def _claim(run_id: UUID) -> tuple[Lease | None, list[str]]:
    """A claim by a new worker, and the messages that it took."""
    sent: list[str] = []

    def watch(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return execute(sql, *rest)

    worker = WorkerIdentity(STEPS)
    connection.ensure_connection()
    with connection.execute_wrapper(watch):
        lease = leases.claim(
            run_id=run_id, revision=Run.objects.get(pk=run_id).revision, worker=worker
        )
    return lease, sent[1:]  # without the look at the revision


def test_it_is_one_message_and_one_transaction(shop: Downstream) -> None:
    run_id = propose_run((write_tool(shop), {"what": "a"}))
    lease, sent = _claim(run_id)
    assert lease is not None
    assert lease.seen is not None
    assert len(sent) == 1, sent
    assert sent[0].startswith("BEGIN; ")
    assert sent[0].endswith("; COMMIT")


def test_it_writes_the_row_that_a_claim_under_the_lock_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = make_run(), make_run()
    at_once, _ = _claim(first.pk)
    monkeypatch.setattr(leases, "_at_once", lambda *_: None)
    locked, _ = _claim(second.pk)
    assert at_once is not None
    assert locked is not None
    first.refresh_from_db()
    second.refresh_from_db()
    margin = transitions.claim_margin()
    for run, lease in ((first, at_once), (second, locked)):
        assert lease.holds(run)
        assert lease.seen is not None
        assert _values(lease.seen.run) == _values(Run.objects.get(pk=run.pk))
        assert run.call_deadline_at is not None
        assert run.started_at is not None
        assert run.call_deadline_at - run.started_at - margin < timedelta(milliseconds=1)
    own = {"id", "tenant", "agent_version_id", "lease_worker", "claim_token", "event_head"}
    same = [
        {
            name: value
            for name, value in _values(run).items()
            if name not in own and not name.endswith("_at")
        }
        for run in (first, second)
    ]
    assert same[0] == same[1]


def test_it_reads_what_is_read_row_by_row(shop: Downstream) -> None:
    """Over two turns, with actions that are done, open and undecided, and a check of an effect."""
    pay = write_tool(shop)
    run_id = propose_run((pay, {"what": "a"}), (pay, {"what": "b"}))
    go(run_id, inline=frozenset({"tools", "observe"}))
    propose_next(run_id, (pay, {"what": "c"}))
    first = Attempt.objects.filter(run_id=run_id).earliest("started_at")
    with unguarded():
        Attempt.objects.filter(pk=first.pk).update(kind=AttemptKind.POSTCONDITION)

    lease, _ = _claim(run_id)
    assert lease is not None
    assert lease.seen is not None
    came, read = lease.seen.beside, view._beside(lease.seen.run, 0)
    assert came is not None
    assert (len(came.turns), len(came.actions)) == (2, 3)
    assert [row.id for row in came.attempts] == [first.id]
    for name in ("turns", "actions", "attempts"):
        mine, theirs = getattr(came, name), getattr(read, name)
        assert [_values(row) for row in mine] == [_values(row) for row in theirs], name


def test_many_turns_are_not_read_with_all_their_columns(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "WHOLE", 1)
    view._beside_texts.cache_clear()
    pay = write_tool(shop)
    run_id = propose_run((pay, {"what": "a"}))
    go(run_id, inline=frozenset({"tools", "observe"}))
    propose_next(run_id, (pay, {"what": "b"}))
    lease, _ = _claim(run_id)
    view._beside_texts.cache_clear()
    assert lease is not None
    assert lease.seen is not None
    assert lease.seen.beside is None
    turns = view.load_view(run_id, seen=lease.seen).turns
    assert [turn.number for turn in turns] == [1, 2]
    assert ["manifest" in turn.__dict__ for turn in turns] == [False, True]


def test_what_a_process_remembers_fits_or_is_read_again(shop: Downstream) -> None:
    """Between the claim and the drive another thread may have taken what was remembered."""
    pay = write_tool(shop)
    run_id = propose_run((pay, {"what": "a"}))
    go(run_id, inline=frozenset({"tools", "observe"}))
    propose_next(run_id, (pay, {"what": "b"}))
    seen_before = view.load_view(run_id).history
    history._kept[run_id] = seen_before
    try:
        lease, _ = _claim(run_id)
    finally:
        history._kept.pop(run_id)
    assert lease is not None
    assert lease.seen is not None
    assert lease.seen.beside is not None
    assert lease.seen.beside.after == seen_before.through == 1
    for known in (seen_before, None):
        found = view.load_view(run_id, seen=lease.seen, history=known)
        assert [turn.number for turn in found.turns] == [1, 2]
        assert len(found.actions) == 2


@pytest.mark.requirement("R59")
def test_a_run_that_has_lost_somebody_is_looked_at_under_the_lock() -> None:
    run = make_run()
    force_state(run, state="CALLING_MODEL", claims=1, wake_at=database_clock())
    lease, sent = _claim(run.pk)
    run.refresh_from_db()
    assert lease is not None
    assert run.claims == 2
    assert len(sent) > 1


@pytest.mark.requirement("R60", "R61")
def test_a_lease_is_respected_also_after_an_outcome() -> None:
    """Its holder has brought an outcome home, so nobody counts as lost, and it goes on."""
    run, now = make_run(), database_clock()
    holder = Worker.objects.create(
        id=uuid4(), hostname="h", pid=1, queues=[], version="t", started_at=now, beat_at=now
    )
    held = {"lease_worker": holder.pk, "claim_token": uuid4(), "fence": 3, "claims": 0}
    soon = now + timedelta(seconds=60)
    force_state(run, state="DISPATCHING_TOOLS", call_deadline_at=soon, wake_at=now, **held)
    lease, _ = _claim(run.pk)
    run.refresh_from_db()
    assert lease is None
    assert run.fence == 3


@pytest.mark.requirement("R59")
def test_where_the_first_loss_isolates_a_claim_says_when_the_run_is_due_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = settings.AGENTCORE_OPTIONS.model_copy(update={"isolate_after": 1})
    monkeypatch.setattr(settings, "AGENTCORE_OPTIONS", alone)
    run = make_run()
    lease, _ = _claim(run.pk)
    run.refresh_from_db()
    assert lease is not None
    assert isolation.is_isolated(run.claims)
    assert run.wake_at > database_clock()
