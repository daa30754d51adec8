"""The refund desk's tools against the real payment service, broken on purpose."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from agentcore.values import Absent, Found, Inconclusive, OutcomeKind
from examples.refund_desk import agent_tools
from tests.examples.http import call, fresh_order, refund, refund_body, refunds_of
from tools import ToolContext, clock, registry
from tools.invocation import invoke_postcondition, invoke_preview, invoke_tool, judge
from tools.probes import invoke_probe

SUBMIT = agent_tools.submit_refund.spec


@pytest.fixture(autouse=True)
def _address(payment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYMENT_URL", payment)


def context(key: str = "", seconds: float = 5.0, fence: int = 1) -> ToolContext:
    now = clock.now()
    return ToolContext(
        run_id=uuid4(),
        tenant="t",
        principal="token:t",
        idempotency_key=key,
        fence=fence,
        deadline=now + seconds,
        send_by=now + seconds,
    )


def arguments(order: str, amount: str = "80.00 EUR") -> dict[str, Any]:
    return {"order_id": order, "amount": amount, "reason": "late"}


def test_the_tools_pass_every_check() -> None:
    specs = [registry.get(f"refund_desk.{n}") for n in ("get_order", "get_policy", "submit_refund")]
    assert all(spec is not None and spec.problems == () for spec in specs)


def test_reads_give_the_order_and_the_policy() -> None:
    order = fresh_order()
    spec = agent_tools.get_order.spec
    outcome = invoke_tool(spec=spec, context=context(), arguments={"order_id": order})
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.result["refundable"] == "100.00 EUR"
    policy = invoke_tool(spec=agent_tools.get_policy.spec, context=context(), arguments={})
    assert policy.result["approval_above"] == "50.00 EUR"


@pytest.mark.parametrize(("amount", "asks"), [("50.00 EUR", False), ("50.01 EUR", True)])
def test_only_a_large_refund_asks_a_person(amount: str, asks: bool) -> None:
    found = judge(spec=SUBMIT, context=context(), arguments=arguments("ORD-7", amount))
    assert found.asks is asks
    assert (found.resource_key, found.identity) == ("order:ORD-7", {"order_id": "ORD-7"})


def test_a_refund_has_the_downstream_reference(payment: str) -> None:
    order = fresh_order()
    outcome = invoke_tool(spec=SUBMIT, context=context(order), arguments=arguments(order))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.reference == refunds_of(payment, order)[0]["id"]
    assert outcome.result["amount"] == "80.00 EUR"


@pytest.mark.parametrize(
    ("mode", "kind", "refunds"),
    [
        ("commit_then_drop", OutcomeKind.AMBIGUOUS, 1),
        ("drop_before_commit", OutcomeKind.AMBIGUOUS, 0),
        ("error_before_commit", OutcomeKind.AMBIGUOUS, 0),
        ("error_after_commit", OutcomeKind.AMBIGUOUS, 1),
        ("cut_after_commit", OutcomeKind.AMBIGUOUS, 1),
        ("html_after_commit", OutcomeKind.SUCCESS, 1),
    ],
)
def test_a_broken_reply_is_never_taken_for_no_effect(
    payment: str, mode: str, kind: OutcomeKind, refunds: int
) -> None:
    order = fresh_order()
    call("POST", f"{payment}/faults", {"mode": mode, "order_id": order})
    outcome = invoke_tool(spec=SUBMIT, context=context(order), arguments=arguments(order))
    assert outcome.kind is kind
    verdict = invoke_probe(spec=SUBMIT, context=context(order), arguments=arguments(order))
    assert isinstance(verdict, Found if refunds else Absent)
    held = invoke_postcondition(
        spec=SUBMIT, context=context(order), arguments=arguments(order), result=outcome.result
    )
    assert held.result == {"ok": bool(refunds)}


def test_a_business_refusal_is_refused() -> None:
    order = fresh_order()
    outcome = invoke_tool(
        spec=SUBMIT, context=context(order), arguments=arguments(order, "100.01 EUR")
    )
    assert (outcome.kind, outcome.error_class) == (OutcomeKind.REFUSED, "http_409")


def test_a_stale_fence_says_nothing_about_the_refund(payment: str) -> None:
    order = fresh_order()
    refund(payment, key=order, body=refund_body(order), fence=9)
    outcome = invoke_tool(spec=SUBMIT, context=context(order), arguments=arguments(order))
    assert (outcome.kind, outcome.error_class) == (OutcomeKind.AMBIGUOUS, "stale_fence")


def test_the_probe_tells_another_amount_under_our_key(payment: str) -> None:
    order = fresh_order()
    refund(payment, key=order, body=refund_body(order, "10.00"))
    verdict = invoke_probe(spec=SUBMIT, context=context(order), arguments=arguments(order))
    assert isinstance(verdict, Found)
    assert verdict.fingerprint_matches is False


def test_a_probe_without_an_answer_is_inconclusive(payment: str) -> None:
    call("POST", f"{payment}/faults", {"mode": "error_before_commit", "target": "GET /refunds"})
    verdict = invoke_probe(spec=SUBMIT, context=context("k"), arguments=arguments("ORD-1"))
    assert isinstance(verdict, Inconclusive)


def test_the_preview_comes_from_the_order_and_blocks_too_much(payment: str) -> None:
    order = fresh_order()
    refund(payment, key=order, body=refund_body(order, "30.00"))
    seen = invoke_preview(spec=SUBMIT, context=context(), arguments=arguments(order)).result
    assert seen["before"] == {"refunded": "30.00 EUR", "refundable": "70.00 EUR"}
    assert seen["block"] == ["only 70.00 EUR can be refunded"]
    assert seen["version"] == "2"
    less = arguments(order, "70.00 EUR")
    seen = invoke_preview(spec=SUBMIT, context=context(), arguments=less).result
    assert (seen["after"]["refundable"], seen["block"]) == ("0.00 EUR", [])


def test_without_an_address_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAYMENT_URL")
    outcome = invoke_tool(spec=SUBMIT, context=context("k"), arguments=arguments("ORD-1"))
    assert (outcome.kind, outcome.error_class) == (OutcomeKind.NO_EFFECT, "not_configured")
