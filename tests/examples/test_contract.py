"""The refund tool keeps its contract at the real payment service, and a broken one is caught."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest
from uuid import uuid4

import pytest

from agentcore.values import AttemptOutcome, OutcomeKind
from examples.refund_desk import agent_tools
from tests.examples.http import call, fresh_order, refund, refund_body, refunds_of
from tools import (
    Absent,
    Approval,
    Effect,
    Found,
    Key,
    Natural,
    NoContract,
    Preview,
    ToolContext,
    registry,
    tool,
)
from tools.contract_tests import Arguments, ToolContractTests
from tools.pytest_plugin import tool_call, tool_context  # noqa: F401  (fixtures)


class RefundContract(ToolContractTests):
    """What both the real and the broken tools are tested with."""

    url: ClassVar[str]

    def arguments(self) -> Arguments:
        return {"order_id": fresh_order(), "amount": "20.00 EUR", "reason": "late"}

    def other_arguments(self, arguments: Arguments) -> Arguments:
        return {**arguments, "amount": "30.00 EUR"}

    def effects(self, arguments: Arguments) -> int:
        return len(refunds_of(self.url, arguments["order_id"]))


@pytest.fixture(autouse=True)
def _address(payment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYMENT_URL", payment)
    RefundContract.url = payment


class TestSubmitRefund(RefundContract):
    """The example's own tool; the reply is thrown away after it came."""

    tool = agent_tools.submit_refund


class TestSubmitRefundWhenTheConnectionBreaks(RefundContract):
    """The same, with a service that really makes the refund and drops the connection."""

    tool = agent_tools.submit_refund

    @contextmanager
    def lose_reply(self, arguments: Arguments) -> Iterator[None]:
        fault = {"mode": "commit_then_drop", "order_id": arguments["order_id"]}
        call("POST", f"{self.url}/faults", fault)
        yield


def test_the_fixtures_call_a_tool_as_a_model_would(
    tool_call: Callable[..., AttemptOutcome],  # noqa: F811
    tool_context: Callable[..., ToolContext],  # noqa: F811
    payment: str,
) -> None:
    order, context = fresh_order(), tool_context()
    outcome = tool_call(
        agent_tools.submit_refund, context=context, order_id=order, amount="5.00 EUR", reason="late"
    )
    assert outcome.kind is OutcomeKind.SUCCESS
    (made,) = refunds_of(payment, order)
    assert made["idempotency_key"] == context.idempotency_key


# --- tools that break it -------------------------------------------------------------------------


@pytest.fixture
def declare() -> Iterator[Callable[..., Any]]:
    """Declares a refund tool that sends under the key that `key_of` makes; gone after the test."""
    before = dict(registry._declared)

    def make(key_of: Callable[[ToolContext, str, str], str], **options: Any) -> Any:
        values = {"contract": Key(retention=timedelta(days=1)), "identity": ("order_id",)}

        @tool(effect=Effect.WRITE, app_label="broken", **{**values, **options})
        def pay_back(ctx: ToolContext, order_id: str, amount: str, reason: str) -> str:
            """Refund. Args: order_id: which. amount: how much. reason: why."""
            body = refund_body(order_id, amount.split(maxsplit=1)[0])
            url = RefundContract.url
            reply = refund(url, key=key_of(ctx, order_id, amount), body=body)
            assert reply.status == 201, reply.body
            return str(reply.body["id"])

        @pay_back.probe
        def _(ctx: ToolContext, p: Any) -> Any:
            key = key_of(ctx, p.order_id, p.amount)
            rows = refunds_of(RefundContract.url, p.order_id)
            mine = [row for row in rows if row["idempotency_key"] == key]
            return Found(mine[0]["id"], mine[0]["id"]) if mine else Absent()

        return pay_back

    yield make
    registry._declared.clear()
    registry._declared.update(before)
    registry._rebuild()


def contract_of(broken: Any) -> RefundContract:
    """The contract tests of one broken tool."""
    return type("Broken", (RefundContract,), {"tool": broken})()


def test_a_tool_that_ignores_the_key_is_caught(declare: Callable[..., Any]) -> None:
    broken = contract_of(declare(lambda _ctx, _order, _amount: uuid4().hex))
    with pytest.raises(AssertionError, match="sent twice: 2 effects instead of 1"):
        broken.test_same_key_twice_gives_one_effect()
    with pytest.raises(AssertionError, match="at once: 2 effects instead of 1"):
        broken.test_same_key_at_the_same_time_gives_one_effect()
    with pytest.raises(AssertionError, match="other arguments: 1 effects instead of 0"):
        broken.test_same_key_with_other_arguments_is_refused()
    with pytest.raises(AssertionError, match="the effect exists, the probe says Absent"):
        broken.test_probe_after_a_lost_reply_finds_the_effect()


def test_a_key_made_of_the_amount_is_caught(declare: Callable[..., Any]) -> None:
    broken = contract_of(declare(lambda ctx, _, amount: ctx.idempotency_key[:40] + amount[:2]))
    broken.test_same_key_twice_gives_one_effect()
    with pytest.raises(AssertionError, match="other arguments: 1 effects instead of 0"):
        broken.test_same_key_with_other_arguments_is_refused()


def test_a_refusal_that_is_not_reported_is_caught(declare: Callable[..., Any]) -> None:
    """The tool raises AssertionError, which nobody can tell from a lost reply."""
    broken = contract_of(declare(lambda ctx, _order, _amount: ctx.idempotency_key))
    with pytest.raises(AssertionError, match="must be refused; the tool says AMBIGUOUS"):
        broken.test_same_key_with_other_arguments_is_refused()


def test_a_probe_that_finds_what_was_never_sent_is_caught(declare: Callable[..., Any]) -> None:
    lying = declare(lambda ctx, _order, _amount: ctx.idempotency_key)
    lying.probe(lambda _ctx, _p: Found({}, "rf_0"))
    with pytest.raises(AssertionError, match="nothing was sent, the probe says Found"):
        contract_of(lying).test_probe_before_any_call_finds_nothing()


def test_a_preview_that_writes_is_caught(declare: Callable[..., Any]) -> None:
    writing = declare(lambda ctx, _order, _amount: ctx.idempotency_key)

    @writing.preview
    def _(ctx: ToolContext, p: Any) -> Preview:
        url = f"{RefundContract.url}/orders/{p.order_id}/touch"
        ctx.http.request("POST", url, json={})
        return Preview("touches the order")

    with pytest.raises(AssertionError, match="the preview sent POST"):
        contract_of(writing).test_preview_writes_nothing()


def test_other_arguments_must_keep_the_identity(declare: Callable[..., Any]) -> None:
    contract = contract_of(declare(lambda ctx, _order, _amount: ctx.idempotency_key))
    contract.other_arguments = lambda given: {**given, "order_id": fresh_order()}  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="must keep the identity"):
        contract.test_same_key_with_other_arguments_is_refused()


@pytest.mark.parametrize("contract", [Natural(), NoContract()])
def test_what_a_contract_does_not_promise_is_not_tested(
    declare: Callable[..., Any], contract: Any
) -> None:
    made = declare(
        lambda ctx, _order, _amount: ctx.idempotency_key,
        contract=contract,
        approval=Approval.always(role="x"),
    )
    tests = contract_of(made)
    with pytest.raises(SkipTest):
        tests.test_same_key_with_other_arguments_is_refused()
    if isinstance(contract, NoContract):
        with pytest.raises(SkipTest):
            tests.test_same_key_twice_gives_one_effect()
    else:
        tests.test_same_key_twice_gives_one_effect()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing-tools.md"


def _of_the_page() -> list[tuple[str, ToolContractTests]]:
    """The tests of the class that the page shows."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = [text for text in blocks if "class" in text]
    shown: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), shown)  # noqa: S102  (our own page)
    tests = shown["TestSubmitRefund"]()
    return [(name, tests) for name in sorted(dir(tests)) if name.startswith("test_")]


@pytest.mark.parametrize(("name", "tests"), _of_the_page())
def test_the_example_of_the_page_passes(name: str, tests: ToolContractTests) -> None:
    getattr(tests, name)()


def test_the_page_names_every_contract_test() -> None:
    for name, _ in _of_the_page():
        words = name.removeprefix("test_").replace("_", " ")
        assert f"| {words} |" in PAGE.read_text("utf-8"), name
