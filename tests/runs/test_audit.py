"""The chain of events and the anchors over it: whatever is changed afterwards is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from runs import audit, chores
from runs.control_models import AuditAnchor, AuditEntry
from runs.models import Event, Run
from tests.factories import make_run, make_waiting
from tests.runs.acting import Downstream, decide, go, propose_run, write_tool
from tests.runs.rows import unguarded
from tools import Approval as Asks

Change = Callable[[UUID], Any]


@pytest.fixture
def runs(shop: Downstream) -> list[UUID]:
    """Three runs with their events; the second one has acted."""
    pay = write_tool(shop, approval=Asks.always(role="boss"))
    acted = propose_run((pay, {"what": "a"}))
    go(acted)
    decide(acted)
    go(acted)
    made = [make_run().pk, acted, make_waiting().run.pk]
    assert Event.objects.filter(run_id=acted).count() >= 5
    return made


def command(*words: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("verify_audit", *words, stdout=out)
    except SystemExit as left:
        return int(str(left.code)), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.requirement("R108")
def test_what_was_written_verifies(runs: list[UUID]) -> None:
    report = audit.verify()
    assert report.broken is None
    assert (report.runs, report.events) == (3, Event.objects.count())
    assert audit.verify_run(runs[0]) is None
    code, said = command()
    assert (code, said.split()[0:3]) == (0, ["ok", "3", "runs,"])
    assert command("--run", str(runs[1]))[0] == 0


def _event(run: UUID, seq: int) -> Any:
    return Event.objects.filter(run_id=run, seq=seq)


def _data(run: UUID) -> None:
    row = _event(run, 2).get()
    _event(run, 2).update(data={**row.data, "reason": "somebody else"})


def _actor(run: UUID) -> None:
    _event(run, 2).update(actor="user:nobody")


def _time(run: UUID) -> None:
    row = _event(run, 2).get()
    _event(run, 2).update(created_at=row.created_at - timedelta(hours=1))


def _kind(run: UUID) -> None:
    _event(run, 2).update(type="run.resumed")


def _moved(run: UUID) -> None:
    _event(run, 2).update(seq=99)
    _event(run, 3).update(seq=2)
    _event(run, 99).update(seq=3)


def _hash(run: UUID) -> None:
    _event(run, 2).update(hash="0" * 64)


def _gone(run: UUID) -> None:
    _event(run, 2).delete()


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("change", [_data, _actor, _time, _kind, _moved, _hash, _gone])
def test_the_first_broken_row_is_named(runs: list[UUID], change: Change) -> None:
    run = max(runs, key=lambda one: Event.objects.filter(run_id=one).count())
    with unguarded():
        change(run)
    code, said = command()
    assert code == 1
    seq = 3 if change is _gone else 2
    assert f"run {run} event {seq} (row {_event(run, seq).get().pk})" in said
    broken = audit.verify_run(run)
    assert broken is not None
    assert broken.seq == seq
    others = [one for one in runs if one != run]
    assert all(audit.verify_run(one) is None for one in others)


@pytest.mark.requirement("R108")
def test_an_end_that_was_cut_off_is_seen_against_the_run(runs: list[UUID]) -> None:
    run = Run.objects.get(pk=runs[1])
    with unguarded():
        _event(run.pk, run.event_seq).delete()
    broken = audit.verify_run(run.pk)
    assert broken is not None
    assert f"those after {run.event_seq - 1} are gone" in broken.text


@pytest.mark.requirement("R108")
def test_an_end_that_was_cut_off_together_with_its_head_is_seen_by_the_anchor(
    runs: list[UUID],
) -> None:
    assert command("--anchor")[0] == 0
    run = Run.objects.get(pk=runs[1])
    before = _event(run.pk, run.event_seq - 1).get()
    with unguarded():
        _event(run.pk, run.event_seq).delete()
        Run.objects.filter(pk=run.pk).update(event_seq=before.seq, event_head=before.hash)
    code, said = command()
    assert code == 1
    assert f"anchor 1 run {run.pk} event {run.event_seq}:" in said
    assert audit.verify_run(run.pk) is not None


def test_an_anchor_names_what_moved_since_the_last_one(runs: list[UUID]) -> None:
    assert chores.do_once().anchored == 3
    assert audit.anchor_due() == 0, "not yet"
    assert audit.anchor_now() == 0, "nothing has moved"
    another = make_waiting().run.pk
    assert audit.anchor_now() == 1
    assert list(AuditEntry.objects.filter(anchor__number=2).values_list("run_id", flat=True)) == [
        another
    ]
    with unguarded():
        AuditAnchor.objects.update(created_at="2020-01-01T00:00:00Z")
    assert audit.anchor_due() == 0, "due, and nothing to name"
    report = audit.verify()
    assert report.broken is not None, "the times of the anchors were changed"
    assert report.broken.anchor == 1


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("what", ["hash", "entry", "dropped entry", "dropped anchor", "count"])
def test_a_changed_anchor_is_named(runs: list[UUID], what: str) -> None:
    audit.anchor_now()
    make_waiting()
    audit.anchor_now()
    with unguarded():
        if what == "hash":
            AuditAnchor.objects.filter(number=1).update(hash="0" * 64)
        elif what == "entry":
            AuditEntry.objects.filter(anchor__number=1, run_id=runs[0]).update(hash="0" * 64)
        elif what == "dropped entry":
            AuditEntry.objects.filter(anchor__number=1, run_id=runs[0]).delete()
        elif what == "count":
            AuditAnchor.objects.filter(number=1).update(count=2)
        else:
            AuditEntry.objects.filter(anchor__number=1).delete()
            AuditAnchor.objects.filter(number=1).delete()
    report = audit.verify()
    assert report.broken is not None
    assert report.broken.anchor == (2 if what == "dropped anchor" else 1)


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("table", ["runs_event", "runs_auditanchor", "runs_auditentry"])
def test_the_tables_of_the_audit_only_grow(runs: list[UUID], table: str) -> None:
    audit.anchor_now()
    for sql in (f"DELETE FROM {table}", f"UPDATE {table} SET hash = 'x'"):  # noqa: S608
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
