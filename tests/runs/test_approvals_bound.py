"""What an approval is bound to: change any one of it afterwards, and the action does not start.

Each change has a reason of its own, which stands on the approval. What a person can answer again
is asked again, with a fresh preview; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from agentcore.values import Effect, Key, Preview
from approvals.models import Approval
from runs import rights
from runs.models import ActionJournal, Run
from runs.services import add_threshold, decide_approval, retire_threshold
from runs.transitions import StaleDraft
from tests.factories import real_decider
from tests.runs.acting import (
    Done,
    Downstream,
    action,
    go,
    incidents,
    pass_time,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tools import Approval as Asks
from tools import Found, ToolContext, registry, tool

BOSS = "user:boss"


@dataclass
class Case:
    """A write that was approved and has not started."""

    shop: Downstream
    run: UUID = field(init=False)
    version: str = "7"

    def __post_init__(self) -> None:
        self.declare()
        self.run = propose_run((self.tool, {"what": "a"}))
        go(self.run)
        assert state_of(self.run) == "WAITING_APPROVAL"
        self.approve()

    def declare(self, **options: Any) -> None:
        rule = Asks.always(role="boss", ttl=timedelta(hours=1))
        self.tool = write_tool(
            self.shop,
            approval=rule,
            preview=lambda: Preview(summary="pay a", version=self.version),
            **options,
        )

    def approve(self) -> None:
        row = Approval.objects.get(run_id=self.run, state="PENDING")
        decide_approval(
            approval_id=row.pk,
            params_hash=row.params_hash,
            decision="APPROVE",
            decider=real_decider(BOSS, roles=("boss",)),
        )
        assert states(self.run) == ["READY"]

    @property
    def first(self) -> Approval:
        return Approval.objects.filter(run_id=self.run).order_by("created_at")[0]


def _arguments(case: Case) -> None:
    with unguarded():
        rows = ActionJournal.objects.filter(run_id=case.run)
        rows.update(arguments={"what": "a", "amount": 500})


def _approved_arguments(case: Case) -> None:
    """The hash on both rows is that of other arguments."""
    with unguarded():
        ActionJournal.objects.filter(run_id=case.run).update(params_hash="0" * 64)
        Approval.objects.filter(run_id=case.run).update(params_hash="0" * 64)


def _tool_version(case: Case) -> None:
    case.declare(version="2")


def _tool_schema(case: Case) -> None:
    """The same name and version, but the function takes something else."""

    def pay(ctx: ToolContext, what: Literal["a", "b"], amount: int = 1) -> Done | Found:
        """Do it, differently."""
        return case.shop.send(ctx, what)  # type: ignore[return-value]

    registry._declared.clear()  # the next deployment has this one instead
    made = tool(
        effect=Effect.WRITE,
        contract=Key(retention=timedelta(days=2)),
        identity=("what",),
        app_label="shop",
        approval=Asks.always(role="boss"),
    )(pay)
    made.probe(lambda ctx, _: case.shop.ask(ctx))
    made.preview(lambda *_: Preview(summary="pay a", version=case.version))


def _policy(case: Case) -> None:
    add_threshold(by=_admin(), tool="shop.pay", quorum=2, reason="audit week")


def _tenant(case: Case) -> None:
    with unguarded():
        Run.objects.filter(pk=case.run).update(tenant="other")


def _resource(case: Case) -> None:
    case.version = "8"
    row = action(case.run)
    with unguarded():  # the preview of the question is old by now
        rows = ActionJournal.objects.filter(run_id=case.run)
        rows.update(precheck={**row.precheck, "at": "2020-01-01T00:00:00+00:00"})


def _expiry(case: Case) -> None:
    pass_time(case.run, hours=2)


def _permission(case: Case) -> None:
    User.objects.get(username="boss").user_permissions.clear()


def _group(case: Case) -> None:
    User.objects.get(username="boss").groups.clear()


def _account(case: Case) -> None:
    User.objects.filter(username="boss").update(is_active=False)


def _admin() -> Any:
    return real_decider("user:olga", is_superuser=True)


REFUSED = [
    (_arguments, "ARGUMENTS_CHANGED"),
    (_approved_arguments, "ARGUMENTS_CHANGED"),
    (_tool_version, "TOOL_CHANGED"),
    (_tool_schema, "TOOL_SCHEMA_CHANGED"),
    (_tenant, "TENANT_CHANGED"),
    (_resource, "RESOURCE_CHANGED"),
]
ASKED_AGAIN = [
    (_policy, "POLICY_CHANGED"),
    (_expiry, "APPROVAL_EXPIRED"),
    (_permission, "APPROVER_LOST_RIGHT"),
    (_group, "APPROVER_LOST_RIGHT"),
    (_account, "APPROVER_LOST_RIGHT"),
]


def _name(change: Callable[[Case], None]) -> str:
    return change.__name__.lstrip("_")


def test_nothing_changed_and_it_starts(shop: Downstream) -> None:
    case = Case(shop)
    go(case.run)
    assert (states(case.run), len(shop.sent)) == (["SUCCEEDED"], 1)
    assert case.first.state == "CONSUMED"
    assert case.first.validation["ok"] is True


@pytest.mark.requirement("R36", "R41", "R43")
@pytest.mark.parametrize(("change", "reason"), [pytest.param(*c, id=_name(c[0])) for c in REFUSED])
def test_a_changed_action_is_refused(
    shop: Downstream, change: Callable[[Case], None], reason: str
) -> None:
    case = Case(shop)
    change(case)
    go(case.run)

    row = action(case.run)
    assert (row.state, row.reason) == ("DENIED", reason)
    assert shop.sent == []
    assert case.first.state == "VOIDED"
    assert (case.first.validation["ok"], case.first.validation["reason"]) == (False, reason)
    assert state_of(case.run) == "OBSERVING", "the model is told"
    assert incidents(case.run) == (["ARGUMENTS_CHANGED"] if "ARGUMENTS" in reason else [])


@pytest.mark.requirement("R41", "R42", "R43", "R46")
@pytest.mark.parametrize(
    ("change", "reason"), [pytest.param(*c, id=_name(c[0])) for c in ASKED_AGAIN]
)
def test_an_answer_that_does_not_hold_any_more_is_asked_again(
    shop: Downstream, change: Callable[[Case], None], reason: str
) -> None:
    case = Case(shop)
    change(case)
    go(case.run)

    assert (state_of(case.run), states(case.run)) == ("WAITING_APPROVAL", ["AWAITING_APPROVAL"])
    assert shop.sent == []
    before, after = Approval.objects.filter(run_id=case.run).order_by("created_at")
    assert before.state == ("EXPIRED" if reason == "APPROVAL_EXPIRED" else "VOIDED")
    assert (before.validation["ok"], before.validation["reason"]) == (False, reason)
    assert (after.state, after.renewal, after.supersedes) == ("PENDING", 1, before.pk)
    assert after.params_hash == before.params_hash
    assert action(case.run).approval_id == after.pk


@pytest.mark.requirement("R42")
def test_it_is_asked_again_twice_with_a_fresh_preview_and_then_it_has_expired(
    shop: Downstream,
) -> None:
    case = Case(shop)
    for _ in range(2):
        _expiry(case)
        row = action(case.run)
        with unguarded():
            rows = ActionJournal.objects.filter(run_id=case.run)
            rows.update(precheck={**row.precheck, "at": "2020-01-01T00:00:00+00:00"})
        go(case.run)
        asked = Approval.objects.get(run_id=case.run, state="PENDING")
        assert asked.impact["at"] > "2020-01-01T00:00:00+00:00", "read anew before asking"
        case.approve()
    _expiry(case)
    go(case.run)
    row = action(case.run)
    assert (row.state, row.reason, shop.sent) == ("EXPIRED", "APPROVAL_EXPIRED", [])
    assert state_of(case.run) == "OBSERVING"


def test_two_people_are_asked_when_the_policy_wants_two_now(shop: Downstream) -> None:
    case = Case(shop)
    _policy(case)
    go(case.run)
    row = Approval.objects.get(run_id=case.run, state="PENDING")
    assert (row.required_count, row.high_risk) == (2, True)
    assert "audit week" in row.policy_reason
    for name in ("user:one", "user:two"):
        decide_approval(
            approval_id=row.pk,
            params_hash=row.params_hash,
            decision="APPROVE",
            decider=real_decider(name, roles=("boss",)),
        )
    go(case.run)
    assert (states(case.run), len(shop.sent)) == (["SUCCEEDED"], 1)


def test_one_of_two_who_lost_the_right_is_one_too_few(shop: Downstream) -> None:
    case = Case(shop)
    _policy(case)
    go(case.run)
    row = Approval.objects.get(run_id=case.run, state="PENDING")
    for name in ("user:one", "user:two"):
        decide_approval(
            approval_id=row.pk,
            params_hash=row.params_hash,
            decision="APPROVE",
            decider=real_decider(name, roles=("boss",)),
        )
    User.objects.filter(username="two").update(is_active=False)
    go(case.run)
    row.refresh_from_db()
    assert (states(case.run), shop.sent) == (["AWAITING_APPROVAL"], [])
    assert "two" in row.validation["detail"]


def test_a_policy_that_asks_nobody_any_more_lets_it_go_without_the_old_answer(
    shop: Downstream,
) -> None:
    rule = add_rule(shop)
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    assert states(run) == ["AWAITING_APPROVAL"]
    row = Approval.objects.get(run_id=run)
    decide_approval(
        approval_id=row.pk,
        params_hash=row.params_hash,
        decision="APPROVE",
        decider=real_decider(BOSS),
    )
    retire_threshold(threshold_id=rule, by=_admin(), reason="over")
    go(run)
    row.refresh_from_db()
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 1)
    assert (row.state, row.validation["reason"]) == ("VOIDED", "POLICY_CHANGED")


def add_rule(shop: Downstream, **fields: Any) -> UUID:
    write_tool(shop)
    return add_threshold(by=_admin(), tool="shop.pay", reason="new shop", **fields).pk


@pytest.mark.requirement("R39")
def test_a_threshold_set_after_the_verdict_asks_before_the_effect(shop: Downstream) -> None:
    """Allowed when it was judged; the start transaction asks the policy again."""
    first, second = write_tool(shop, name="first"), write_tool(shop)
    run = propose_run((first, {"what": "a"}), (second, {"what": "b"}))
    assert states(run) == ["READY", "READY"]
    shop.during = lambda: add_rule(shop)
    go(run)
    assert states(run) == ["SUCCEEDED", "AWAITING_APPROVAL"]
    asked = Approval.objects.get(run_id=run)
    assert asked.rule.startswith("threshold:")
    assert asked.policy_version == action(run, 1).policy_version
    assert "+" in asked.policy_version


@pytest.mark.requirement("R43", "R47")
def test_a_right_that_is_lost_at_the_last_moment_stops_the_start_too(shop: Downstream) -> None:
    """The rights are read once more inside the transaction that starts the action."""
    case = Case(shop)
    run = Run.objects.get(pk=case.run)
    with transaction.atomic():
        rights.guard(case.first, run)
        _group(case)
        with pytest.raises(StaleDraft, match="boss"):
            rights.guard(case.first, run)
