"""Standing approvals: explicit, within bounds, for a time, revocable, and never for everything."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from approvals.errors import DecisionError, InvalidRule, NotPermitted, ReasonRequired
from approvals.models import Approval, ApprovalVote, StandingApproval
from runs.selectors import database_clock
from runs.services import add_threshold, grant_standing, revoke_standing
from tests.factories import decider, real_decider
from tests.runs.acting import (
    Downstream,
    action,
    go,
    propose_run,
    read_tool,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tools import Approval as Asks
from tools import Tool

SMALL = [("amount", "<=", 10)]


@pytest.fixture
def pay(shop: Downstream) -> Tool[Any, Any]:
    return write_tool(shop, approval=Asks.always(role="boss"))


def grant(**fields: Any) -> StandingApproval:
    values: dict[str, Any] = {
        "by": real_decider("user:boss", roles=("boss",)),
        "tenant": "acme",
        "tool": "shop.pay",
        "conditions": SMALL,
        "max_uses": 2,
        "expires_at": database_clock() + timedelta(days=1),
        "reason": "small payments of the shop",
    }
    return grant_standing(**{**values, **fields})


def proposed(pay: Tool[Any, Any], what: str = "a", **fields: Any) -> UUID:
    run = propose_run((pay, {"what": what, "amount": fields.pop("amount", 5)}), **fields)
    go(run)
    return run


@pytest.mark.requirement("R46")
def test_it_answers_what_is_within_its_bounds_and_counts(
    shop: Downstream, pay: Tool[Any, Any]
) -> None:
    row = grant()
    run = proposed(pay)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 1)
    asked = Approval.objects.get(run_id=run)
    assert (asked.state, asked.standing, asked.requester) == ("CONSUMED", row.pk, "token:shop")
    assert asked.validation["ok"] is True
    assert not ApprovalVote.objects.exists(), "nobody voted"
    row.refresh_from_db()
    assert row.uses == 1
    over = proposed(pay, "b", amount=11)
    assert states(over) == ["AWAITING_APPROVAL"]


@pytest.mark.requirement("R46")
def test_it_is_used_up_and_then_a_person_is_asked(shop: Downstream, pay: Tool[Any, Any]) -> None:
    grant(max_uses=1)
    assert states(proposed(pay, "a")) == ["SUCCEEDED"]
    assert states(proposed(pay, "b")) == ["AWAITING_APPROVAL"]


@pytest.mark.requirement("R46")
@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "other"},
        {"principal": "token:another"},
        {"conditions": [("what", "in", ["b"])]},
        {"conditions": [("amount", "<", 5)]},
    ],
    ids=["tenant", "principal", "values", "amount"],
)
def test_out_of_its_scope_a_person_is_asked(pay: Tool[Any, Any], fields: Any) -> None:
    grant(**fields)
    assert states(proposed(pay)) == ["AWAITING_APPROVAL"]


def test_of_another_version_of_the_tool_or_after_its_time_a_person_is_asked(
    shop: Downstream, pay: Tool[Any, Any]
) -> None:
    row = grant()
    with unguarded():
        StandingApproval.objects.filter(pk=row.pk).update(tool_version="0")
    assert states(proposed(pay)) == ["AWAITING_APPROVAL"]
    with unguarded():
        StandingApproval.objects.filter(pk=row.pk).update(
            tool_version="1", expires_at=row.created_at
        )
    assert states(proposed(pay, "b")) == ["AWAITING_APPROVAL"]


@pytest.mark.requirement("R46")
def test_a_revoked_one_answers_nothing_also_not_what_it_had_answered(
    shop: Downstream, pay: Tool[Any, Any]
) -> None:
    first = write_tool(shop, name="first")
    row = grant()
    run = propose_run((first, {"what": "a"}), (pay, {"what": "b", "amount": 5}))
    boss = real_decider("user:boss", roles=("boss",))
    shop.during = lambda: revoke_standing(standing_id=row.pk, by=boss, reason="too many")
    go(run)
    assert states(run) == ["SUCCEEDED", "AWAITING_APPROVAL"]
    answered, asked = Approval.objects.filter(run_id=run).order_by("created_at")
    assert (answered.state, answered.validation["reason"]) == ("VOIDED", "STANDING_WITHDRAWN")
    assert (asked.state, asked.standing, asked.renewal) == ("PENDING", None, 1)
    again = revoke_standing(standing_id=row.pk, by=boss, reason="once more")
    assert again.revoke_reason == "too many"


def test_its_giver_needs_the_right_when_it_is_used_and_is_not_the_requester(
    shop: Downstream, pay: Tool[Any, Any]
) -> None:
    grant()
    assert states(proposed(pay, "a", principal="user:boss")) == ["AWAITING_APPROVAL"]
    User.objects.filter(username="boss").update(is_active=False)
    assert states(proposed(pay, "b")) == ["AWAITING_APPROVAL"]


def test_it_answers_no_quorum_and_nothing_after_text_of_strangers(shop: Downstream) -> None:
    pay = write_tool(shop, approval=Asks.always(role="boss"))
    grant()
    admin = real_decider("user:olga", is_superuser=True)
    add_threshold(by=admin, tool="shop.pay", quorum=2, reason="audit week")
    assert states(proposed(pay)) == ["AWAITING_APPROVAL"]


def test_what_it_takes_to_give_one(pay: Tool[Any, Any]) -> None:
    read_tool(lambda: 1)
    for fields, kind in (
        ({"by": decider()}, NotPermitted),
        ({"by": decider("token:x", is_agent=True, is_superuser=True)}, NotPermitted),
        ({"reason": " "}, ReasonRequired),
        ({"tool": "shop.nothing"}, InvalidRule),
        ({"tool": "shop.look"}, InvalidRule),
        ({"agent": "nobody"}, InvalidRule),
        ({"conditions": [], "max_uses": None}, InvalidRule),
        ({"conditions": [("nothing", "=", 1)]}, InvalidRule),
        ({"conditions": [("amount", "always", None)]}, InvalidRule),
        ({"conditions": [("amount", ">", "much")]}, InvalidRule),
        ({"expires_at": database_clock()}, InvalidRule),
    ):
        with pytest.raises(DecisionError) as caught:
            grant(**fields)
        assert type(caught.value) is kind, fields
    assert not StandingApproval.objects.exists()
    assert action(proposed(pay)).state == "AWAITING_APPROVAL"
