"""Sending the same key again takes two people, a contract that allows it, and its retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentcore.lifecycle import ActionState
from agentcore.reconciling import Verdict
from agentcore.values import Effect
from runs import sends
from runs.approving import Decider
from runs.reconcile_models import Reconciliation
from runs.reconciliations import PERMISSION
from runs.transitions import locked_run
from runs.verdict_errors import VerdictError
from runs.view import load_view
from tests.factories import force_state
from tests.runs.test_verdicts_record import refused, say
from tests.unknown import HEIDI, Unknown, make_sent
from tools import Approval, NoContract, Query, ToolContext, registry, tool

pytestmark = pytest.mark.django_db

A, V = ActionState, Verdict
SAME = V.RESEND_SAME_KEY


@pytest.fixture
def other_contracts() -> Iterator[None]:
    """Tools of the other two contracts."""
    before = dict(registry._declared)

    @tool(
        effect=Effect.WRITE,
        contract=NoContract(),
        identity=("to",),
        approval=Approval.always(role="x"),
        app_label="tests",
    )
    def send_mail(ctx: ToolContext, to: str) -> str:
        """Send. Args: to: whom."""
        return to

    @tool(
        effect=Effect.WRITE,
        contract=Query(settle=timedelta(hours=1)),
        identity=("to",),
        app_label="tests",
    )
    def book(ctx: ToolContext, to: str) -> str:
        """Book. Args: to: whom."""
        return to

    @book.probe
    def _(ctx: ToolContext, p: Any) -> Any:
        return None

    yield
    registry._declared.clear()
    registry._declared.update(before)
    registry._rebuild()


def granted(made: Unknown) -> bool:
    """What the driver sees."""
    view = load_view(made.run.pk)
    (action,) = view.actions
    return action.state == A.NEEDS_HUMAN and sends.resend_is_granted(view, action)


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("state", [A.UNKNOWN, A.NEEDS_HUMAN])
def test_two_people_grant_exactly_one_attempt(state: ActionState) -> None:
    made = make_sent(state)
    first = say(made, SAME)
    assert (first.waits_for_second, first.action_state) == (True, A.NEEDS_HUMAN)
    assert not granted(made), "one person is not enough"
    made.reload()
    second = say(made, SAME, HEIDI)
    assert (second.waits_for_second, granted(made)) == (False, True)
    first_row, second_row = Reconciliation.objects.order_by("created_at")
    assert second_row.agrees_with_id == first_row.pk
    assert made.reload().action.reason == "RESEND_GRANTED"

    another = type(made.attempt)(
        **{
            **{f.attname: getattr(made.attempt, f.attname) for f in made.attempt._meta.fields},
            "id": first_row.pk,
            "n": 2,
        }
    )
    another.save(force_insert=True)
    assert not granted(made), "the attempt uses the grant up"


def test_the_same_person_is_not_a_second_one() -> None:
    made = make_sent()
    say(made, SAME)
    made.reload()
    with pytest.raises(VerdictError) as caught:
        say(made, SAME, Decider(name="GRACE", permissions=frozenset({PERMISSION})))
    assert caught.value.code == "second_person_required"
    assert not granted(made)


def test_another_verdict_between_takes_the_first_request_back() -> None:
    made = make_sent()
    say(made, SAME)
    say(made.reload(), V.STILL_UNKNOWN)
    assert say(made.reload(), SAME, HEIDI).waits_for_second
    assert not granted(made)


def test_a_granted_resend_is_not_granted_again() -> None:
    made = make_sent()
    say(made, SAME)
    say(made.reload(), SAME, HEIDI)
    made.reload()
    with pytest.raises(VerdictError, match="granted this resend already"):
        say(made, SAME)


def test_a_verdict_after_the_grant_takes_it_back() -> None:
    made = make_sent()
    say(made, SAME)
    say(made.reload(), SAME, HEIDI)
    say(made.reload(), V.STILL_UNKNOWN)
    force_state(made.action, state="NEEDS_HUMAN")
    assert not granted(made)


def test_the_retention_of_the_key_is_asked_twice() -> None:
    """At the verdict, and again when the driver would send."""
    old = make_sent(sent_ago=timedelta(days=30))
    assert "forgotten our key" in refused(old, SAME, "resend_refused").message
    made = make_sent()
    say(made, SAME)
    say(made.reload(), SAME, HEIDI)
    assert granted(made)
    force_state(made.action, first_sent_at=made.action.first_sent_at - timedelta(days=30))
    assert not granted(made)


def test_a_stopping_run_sends_nothing_again() -> None:
    made = make_sent()
    say(made, SAME)
    say(made.reload(), SAME, HEIDI)
    with locked_run(made.run.pk, actor="user:ada", event="run.cancelling") as draft:
        draft.set_run(stop_reason="CANCEL")
    assert not granted(made)


def test_a_stopping_run_refuses_the_verdict() -> None:
    made = make_sent()
    with locked_run(made.run.pk, actor="user:ada", event="run.cancelling") as draft:
        draft.set_run(stop_reason="CANCEL")
    assert "stopping" in refused(made.reload(), SAME, "resend_refused").message


def test_a_conflict_is_not_sent_again() -> None:
    made = make_sent(A.NEEDS_HUMAN)
    force_state(made.action, reason="CONFLICT")
    refused(made, SAME, "resend_refused")


def test_a_request_on_its_way_is_not_sent_again() -> None:
    refused(make_sent(outcome=None, lost=True, sent_ago=timedelta(0)), SAME, "resend_refused")


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({"tool": "tests.book", "contract": "QUERY"}, True),
        ({"tool": "tests.send_mail", "contract": "NONE"}, False),
        ({"tool": "tests.gone", "contract": "KEY"}, False),
        ({"tool_version": "7"}, False),
    ],
)
def test_the_contract_decides(other_contracts: None, fields: dict[str, Any], may: bool) -> None:
    made = make_sent(A.NEEDS_HUMAN, **fields)
    if may:
        assert say(made, SAME).waits_for_second
    else:
        refused(made, SAME, "resend_refused")


def test_the_settle_window_of_a_looked_up_write_counts_from_its_end(other_contracts: None) -> None:
    made = make_sent(A.NEEDS_HUMAN, tool="tests.book", contract="QUERY")
    absent = {"ground": "ABSENT_AFTER_SETTLING"}
    message = refused(made, V.EFFECT_DOES_NOT_EXIST, "too_early", **absent).message
    assert "settle window" in message
    earlier = made.attempt.ended_at - timedelta(hours=1)
    force_state(made.attempt, ended_at=earlier)
    say(made, V.EFFECT_DOES_NOT_EXIST, **absent)
    assert made.reload().action.state == A.FAILED
