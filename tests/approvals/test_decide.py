"""One decision about one action: who may, about what, until when, and what it writes."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from agentcore import failpoints
from agentcore.lifecycle import ActionState, ApprovalState, RunState
from approvals.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    DecisionError,
    NotPermitted,
    ReasonRequired,
    RunNotWaiting,
    SelfApproval,
    StaleApproval,
)
from approvals.models import Approval, ApprovalVote
from runs.approving import Decider
from runs.models import ActionJournal, Event, Run
from runs.selectors import database_clock
from runs.services import decide_approval
from tests.factories import PRINCIPAL, Waiting, decider, force_state, make_waiting

pytestmark = pytest.mark.django_db


def approve(waiting: Waiting, who: Decider | None = None, **fields: object):
    values = {
        "approval_id": waiting.approval.pk,
        "params_hash": waiting.approval.params_hash,
        "decision": "APPROVE",
        "decider": who or decider(),
    }
    return decide_approval(**{**values, **fields})  # type: ignore[arg-type]


def reject(waiting: Waiting, who: Decider | None = None, reason: str = "wrong amount"):
    return approve(waiting, who, decision="REJECT", reason=reason)


def snapshot(waiting: Waiting) -> tuple[object, ...]:
    """Everything that a refused decision must leave alone."""
    return (
        Run.objects.values().get(pk=waiting.run.pk),
        ActionJournal.objects.values().get(pk=waiting.action.pk),
        Approval.objects.values().get(pk=waiting.approval.pk),
        ApprovalVote.objects.count(),
        Event.objects.count(),
    )


def assert_refused(waiting: Waiting, kind: type[DecisionError], **fields: object) -> DecisionError:
    before = snapshot(waiting)
    with pytest.raises(kind) as caught:
        approve(waiting, **fields)  # type: ignore[arg-type]
    assert type(caught.value) is kind
    assert snapshot(waiting) == before
    assert caught.value.code
    assert caught.value.message
    return caught.value


def test_approval_makes_the_same_saved_action_ready() -> None:
    waiting = make_waiting()
    before = waiting.action.arguments, waiting.action.params_hash, waiting.run.turn
    events = Event.objects.filter(run=waiting.run).count()

    decision = approve(waiting)

    waiting.reload()
    assert (waiting.action.arguments, waiting.action.params_hash, waiting.run.turn) == before
    assert waiting.action.state == ActionState.READY
    assert waiting.approval.state == ApprovalState.APPROVED
    assert waiting.approval.decided_at is not None
    assert waiting.run.state == RunState.WAITING_APPROVAL  # the next claim moves it, not we
    assert waiting.run.wake_at <= database_clock()
    assert (decision.approval_state, decision.action_state) == ("APPROVED", "READY")
    assert decision.already is False
    event = Event.objects.filter(run=waiting.run).order_by("seq").last()
    assert event is not None
    assert Event.objects.filter(run=waiting.run).count() == events + 1
    assert event.actor == "user:grace"
    assert event.data["decision"] == "APPROVE"
    assert event.data["params_hash"] == waiting.approval.params_hash
    assert {(m["object"], m["from"], m["to"]) for m in event.data["transitions"]} == {
        ("action", "AWAITING_APPROVAL", "READY"),
        ("approval", "PENDING", "APPROVED"),
    }


def test_rejection_ends_the_action_with_the_reason_for_the_model() -> None:
    waiting = make_waiting()
    reject(waiting, reason="  the customer keeps the item\x00 ")
    waiting.reload()
    assert waiting.action.state == ActionState.REJECTED
    assert waiting.action.ended_at is not None
    assert waiting.action.reason == "REJECTED"
    assert waiting.action.detail == "the customer keeps the item\ufffd"
    assert waiting.approval.state == ApprovalState.REJECTED
    assert waiting.run.wake_at <= database_clock()


def test_rejection_needs_a_reason() -> None:
    waiting = make_waiting()
    assert_refused(waiting, ReasonRequired, decision="REJECT", reason=" \n ")


def test_unknown_approval() -> None:
    waiting = make_waiting()
    assert_refused(waiting, ApprovalNotFound, approval_id=uuid4())


# --- who ------------------------------------------------------------------------------------


@pytest.mark.parametrize("superuser", [False, True])
@pytest.mark.parametrize("name", ["user:ada", "USER:ada", "ada", "user:Ada"])
def test_the_requester_never_decides(name: str, superuser: bool) -> None:
    from tests.factories import make_run

    waiting = make_waiting(run=make_run(principal="user:ada"))
    who = decider(name.replace("USER:", "user:"), is_superuser=superuser)
    assert_refused(waiting, SelfApproval, who=who)


def test_an_agents_own_token_never_decides() -> None:
    waiting = make_waiting()
    assert_refused(
        waiting, SelfApproval, who=decider("token:other", is_agent=True, is_superuser=True)
    )
    assert_refused(waiting, SelfApproval, who=decider(PRINCIPAL))


def test_without_the_permission() -> None:
    waiting = make_waiting()
    assert_refused(waiting, NotPermitted, who=decider(permissions=frozenset()))


def test_the_role_of_the_policy() -> None:
    waiting = make_waiting(role="agent_senior_approver")
    error = assert_refused(waiting, NotPermitted, who=decider(roles=frozenset({"agent_approver"})))
    assert "agent_senior_approver" in error.message
    approve(waiting, decider(roles=frozenset({"agent_senior_approver"})))
    assert waiting.reload().action.state == ActionState.READY


def test_a_superuser_acts_for_any_role_but_with_four_eyes() -> None:
    waiting = make_waiting(role="agent_senior_approver")
    approve(waiting, Decider(name="user:root", is_superuser=True))
    assert waiting.reload().action.state == ActionState.READY


# --- about what, until when -----------------------------------------------------------------


def test_another_hash_than_the_one_that_was_shown() -> None:
    assert_refused(make_waiting(), StaleApproval, params_hash="0" * 64)


@pytest.mark.parametrize("column", ["arguments", "tool_version"])
def test_content_that_changed_below_the_hash(column: str) -> None:
    """The hash is computed again from the action's own row; the stored one is not enough."""
    waiting = make_waiting()
    values = {"arguments": {"order_id": "ORD-78"}, "tool_version": "2"}
    force_state(waiting.action, **{column: values[column]})
    assert_refused(waiting, StaleApproval)


def test_out_of_time_by_the_database_clock() -> None:
    waiting = make_waiting(ttl=timedelta(microseconds=1))
    assert waiting.approval.state == ApprovalState.PENDING  # no sweep has been here
    assert_refused(waiting, ApprovalExpired)
    assert_refused(waiting, ApprovalExpired, decision="REJECT", reason="no")


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("EXPIRED", ApprovalExpired),
        ("VOIDED", StaleApproval),
        ("APPROVED", AlreadyDecided),
        ("REJECTED", AlreadyDecided),
        ("CONSUMED", AlreadyDecided),
    ],
)
def test_a_question_that_is_no_longer_open(state: str, kind: type[DecisionError]) -> None:
    waiting = make_waiting()
    force_state(waiting.approval, state=state)
    assert_refused(waiting, kind)


def test_an_action_that_no_longer_waits() -> None:
    waiting = make_waiting()
    force_state(waiting.action, state="VOIDED", ended_at=database_clock())
    assert_refused(waiting, StaleApproval)


def test_an_approval_that_its_action_has_left_behind() -> None:
    waiting = make_waiting()
    force_state(waiting.action, approval_id=None)
    assert_refused(waiting, StaleApproval)


def test_a_stopping_run() -> None:
    waiting = make_waiting()
    force_state(waiting.run, stop_reason="DEADLINE")
    assert_refused(waiting, RunNotWaiting)


def test_a_run_that_has_ended() -> None:
    waiting = make_waiting()
    force_state(waiting.run, state="CANCELLED", stop_reason="CANCEL", ended_at=database_clock())
    assert_refused(waiting, RunNotWaiting)


# --- repeats and quorum -----------------------------------------------------------------------


@pytest.mark.requirement("R65")
@pytest.mark.parametrize("act", [approve, reject])
def test_the_same_person_saying_the_same_again_is_answered_once(act) -> None:
    waiting = make_waiting()
    first = act(waiting)
    before = snapshot(waiting)
    again = act(waiting)
    assert (first.already, again.already) == (False, True)
    assert (again.approval_state, again.action_state) == (first.approval_state, first.action_state)
    assert snapshot(waiting) == before
    assert ApprovalVote.objects.count() == 1


def test_a_vote_is_not_changed() -> None:
    waiting = make_waiting(required_count=2)
    approve(waiting)
    assert_refused(waiting, AlreadyDecided, decision="REJECT", reason="I changed my mind")


def test_a_second_person_after_the_decision() -> None:
    waiting = make_waiting()
    approve(waiting)
    assert_refused(waiting, AlreadyDecided, who=decider("user:linus"))


def test_two_approvals_of_two_people() -> None:
    waiting = make_waiting(required_count=2)
    first = approve(waiting, decider("user:grace"))
    assert (first.votes, first.required, first.approval_state) == (1, 2, "PENDING")
    waiting.reload()
    assert waiting.action.state == ActionState.AWAITING_APPROVAL
    assert waiting.run.wake_at == waiting.approval.expires_at  # nothing is due
    assert Event.objects.filter(run=waiting.run, data__has_key="votes").count() == 1

    assert approve(waiting, decider("user:grace")).already  # one vote a person
    second = approve(waiting, decider("user:linus"))
    assert (second.votes, second.approval_state) == (2, "APPROVED")
    assert waiting.reload().action.state == ActionState.READY


def test_one_rejection_outweighs_an_approval() -> None:
    waiting = make_waiting(required_count=2)
    approve(waiting, decider("user:grace"))
    reject(waiting, decider("user:linus"))
    assert waiting.reload().action.state == ActionState.REJECTED


# --- failures on both sides of the commit -------------------------------------------------------


@pytest.mark.parametrize("act", [approve, reject])
def test_a_failure_before_the_commit_leaves_nothing(act, monkeypatch) -> None:
    waiting = make_waiting()
    before = snapshot(waiting)
    with monkeypatch.context() as armed:
        armed.setitem(failpoints._ARMED, "decide.before_commit", "raise")
        with pytest.raises(failpoints.FailpointError):
            act(waiting)
    assert snapshot(waiting) == before
    assert act(waiting).already is False


@pytest.mark.parametrize("act", [approve, reject])
def test_a_failure_after_the_commit_is_answered_at_the_next_click(act, monkeypatch) -> None:
    waiting = make_waiting()
    with monkeypatch.context() as armed:
        armed.setitem(failpoints._ARMED, "decide.after_commit", "raise")
        with pytest.raises(failpoints.FailpointError):
            act(waiting)
    assert waiting.reload().action.state in {"READY", "REJECTED"}
    assert waiting.run.wake_at <= database_clock()  # the sweep sees it without a hint
    assert act(waiting).already is True
    assert ApprovalVote.objects.count() == 1


@pytest.mark.requirement("R40")
def test_the_record_of_a_decision() -> None:
    waiting = make_waiting(role="")
    approve(waiting, reason="checked the photos")
    row, vote = waiting.reload().approval, ApprovalVote.objects.get()
    assert row.tool == "refund_desk.submit_refund"
    assert row.arguments == {"order_id": "ORD-77", "amount": "80.00 EUR", "reason": "damaged"}
    assert row.impact["preview"]["summary"] == "Refund 80.00 EUR to Ada Lovelace for order ORD-77"
    assert (row.requester, row.policy_version) == (PRINCIPAL, "1")
    assert row.expires_at > row.created_at
    assert (vote.voter, vote.decision, vote.reason) == (
        "user:grace",
        "APPROVE",
        "checked the photos",
    )
    assert vote.params_hash == row.params_hash
