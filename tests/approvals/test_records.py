"""The one door for an approval's state: each change is guarded by state, hash and clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from approvals import records
from approvals.errors import ApprovalExpired, StaleApproval
from approvals.models import Approval
from tests.factories import force_state, make_waiting
from tests.runs.control_rows import make_standing
from tests.runs.rows import NOW

pytestmark = pytest.mark.django_db


def approved(**fields: object) -> Approval:
    row = make_waiting(**fields).approval  # type: ignore[arg-type]
    records.approve(approval=row)
    return row


def state_of(row: Approval) -> str:
    return str(Approval.objects.values_list("state", flat=True).get(pk=row.pk))


@pytest.mark.requirement("R47")
def test_an_approval_is_consumed_once() -> None:
    row = approved()
    assert records.consume(approval_id=row.pk, params_hash=row.params_hash) is True
    assert records.consume(approval_id=row.pk, params_hash=row.params_hash) is False
    row.refresh_from_db()
    assert row.state == "CONSUMED"
    assert row.consumed_at is not None


@pytest.mark.requirement("R41")
def test_an_approval_is_not_consumed_for_other_arguments() -> None:
    row = approved()
    assert records.consume(approval_id=row.pk, params_hash="0" * 64) is False
    assert state_of(row) == "APPROVED"


@pytest.mark.requirement("R47")
def test_a_failed_start_leaves_the_approval_usable() -> None:
    row = approved()
    with transaction.atomic():
        assert records.consume(approval_id=row.pk, params_hash=row.params_hash)
        transaction.set_rollback(True)  # the start failed after this
    assert records.consume(approval_id=row.pk, params_hash=row.params_hash)


def test_an_approval_that_is_out_of_time_is_not_consumed() -> None:
    row = make_waiting().approval
    records.approve(approval=row)
    force_state(row, expires_at=row.created_at)
    assert records.consume(approval_id=row.pk, params_hash=row.params_hash) is False
    assert records.expire([row.pk]) == {row.pk}
    assert state_of(row) == "EXPIRED"


def test_a_pending_question_is_not_consumed() -> None:
    row = make_waiting().approval
    assert records.consume(approval_id=row.pk, params_hash=row.params_hash) is False


@pytest.mark.parametrize("act", [records.approve, records.reject])
def test_a_decision_needs_an_open_question(act) -> None:
    row = approved()
    with pytest.raises(StaleApproval), transaction.atomic():
        act(approval=row)
    late = make_waiting(ttl=timedelta(microseconds=1)).approval
    with pytest.raises(ApprovalExpired), transaction.atomic():
        act(approval=late)
    other = make_waiting().approval
    other.params_hash = "0" * 64
    with pytest.raises(StaleApproval), transaction.atomic():
        act(approval=other)


def test_expire_takes_only_what_is_out_of_time() -> None:
    late = make_waiting(ttl=timedelta(microseconds=1)).approval
    early = make_waiting().approval
    assert records.expire([early.pk, late.pk]) == {late.pk}
    assert (state_of(late), state_of(early)) == ("EXPIRED", "PENDING")
    assert records.expire([late.pk]) == set()


def test_void_takes_open_and_approved_ones_once() -> None:
    waiting, decided = make_waiting().approval, approved()
    assert records.void([waiting.pk, decided.pk]) == {waiting.pk, decided.pk}
    assert records.void([waiting.pk, decided.pk]) == set()
    assert records.void([]) == set()


def test_one_live_question_an_action() -> None:
    waiting = make_waiting()
    row = Approval.objects.get(pk=waiting.approval.pk)
    row.pk = None
    fresh = Approval(
        **{f.attname: getattr(row, f.attname) for f in Approval._meta.concrete_fields[1:]}
    )
    with pytest.raises(IntegrityError), transaction.atomic():
        records.insert_pending([fresh])
    records.void([waiting.approval.pk])
    records.insert_pending([fresh])
    assert state_of(fresh) == "PENDING"


def test_a_question_begins_open() -> None:
    with pytest.raises(ValueError, match="PENDING"):
        records.insert_pending([Approval(state="APPROVED")])


def test_a_person_votes_once() -> None:
    row = make_waiting(required_count=2).approval
    vote = {"approval": row, "decision": "APPROVE", "reason": "", "now": row.created_at}
    records.record_vote(voter="user:grace", **vote)
    with pytest.raises(IntegrityError), transaction.atomic():
        records.record_vote(voter="user:grace", **vote)


def test_the_database_repeats_the_rules() -> None:
    row = approved()
    with pytest.raises(DatabaseError), transaction.atomic():
        Approval.objects.filter(pk=row.pk).update(state="PENDING")
    with pytest.raises(DatabaseError), transaction.atomic():
        Approval.objects.filter(pk=row.pk).update(arguments={"amount": "900.00 EUR"})


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_nothing_is_written() -> None:
    row = make_waiting().approval
    assert not connection.in_atomic_block
    calls = (
        lambda: records.approve(approval=row),
        lambda: records.reject(approval=row),
        lambda: records.consume(approval_id=row.pk, params_hash=row.params_hash),
        lambda: records.expire([row.pk]),
        lambda: records.void([row.pk]),
        lambda: records.insert_pending([row]),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="transaction"):
            call()
    assert state_of(row) == "PENDING"


@pytest.mark.requirement("R46")
@pytest.mark.parametrize(
    "ended",
    [{"uses": 5}, {"revoked_at": NOW}, {"expires_at": NOW - timedelta(days=9999)}],
    ids=["used up", "revoked", "out of time"],
)
def test_a_standing_approval_that_has_ended_is_not_used(ended: dict[str, object]) -> None:
    live = make_standing(revoked_at=None, revoked_by="", revoke_reason="")
    assert records.use_standing(standing_id=live.pk)
    live.refresh_from_db()
    assert live.uses == 3
    over = make_standing(**{"revoked_at": None, **ended})
    assert not records.use_standing(standing_id=over.pk)
