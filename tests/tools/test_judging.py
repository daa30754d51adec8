"""The developer's own functions around a call: rules, preview, post-condition."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from agentcore.values import AttemptOutcome, OutcomeKind
from tools import (
    Approval,
    Effect,
    Key,
    Preview,
    Rejected,
    Tool,
    ToolContext,
    limits,
    registry,
    tool,
)
from tools.invocation import (
    PolicyError,
    invoke_postcondition,
    invoke_preview,
    judge,
)
from tools.limits import at_thread_end, run_limited
from tools.testing import call, make_context
from tools.types import Money, Secret

KEY = Key(retention=timedelta(days=1))
OrderId = Annotated[str, Field(pattern="^O-[0-9]+$")]
SUCCESS, NO_EFFECT, REFUSED, AMBIGUOUS, PENDING = OutcomeKind


class Refund(BaseModel):
    refund_id: str
    amount: Money
    pin: Secret[str] | None = None


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def write(body: Callable[[ToolContext], Any], **options: Any) -> Tool[Any, Any]:
    def refund(ctx: ToolContext, order_id: OrderId, pin: Secret[str] | None = None) -> Any:
        return body(ctx)

    sound: dict[str, Any] = {"effect": Effect.WRITE, "contract": KEY, "identity": ("order_id",)}
    return tool(app_label="shop", **{**sound, **options})(refund)


def read(body: Callable[[ToolContext], Any], **options: Any) -> Tool[Any, Any]:
    return write(body, effect=Effect.READ, contract=None, identity=(), **options)


def run(declared: Tool[Any, Any], **context: Any) -> AttemptOutcome:
    return call(declared, context=make_context(**context), order_id="O-1")


def raises(exc: BaseException) -> Callable[[ToolContext], Any]:
    def body(ctx: ToolContext) -> Any:
        raise exc

    return body


# --- judging -------------------------------------------------------------------------------


def judged(declared: Tool[Any, Any], seconds: float = 2.0) -> Any:
    return judge(
        spec=declared.spec,
        context=make_context(),
        arguments={"order_id": "O-1", "pin": None},
        seconds=seconds,
    )


def test_a_judgement_carries_identity_resource_and_rule() -> None:
    rule = Approval.when(
        lambda ctx, p: p.order_id == "O-1", role="approver", count=2, ttl=timedelta(hours=1)
    )
    got = judged(write(str, resource=lambda ctx, p: f"order:{p.order_id}", approval=rule))
    assert got.identity == {"order_id": "O-1"}
    assert (got.resource_key, got.asks, got.role, got.count) == ("order:O-1", True, "approver", 2)
    assert got.ttl == timedelta(hours=1)
    assert got.rule.startswith("when:")
    assert judged(read(str)).identity is None
    assert judged(read(str)).asks is False
    assert judged(write(str, approval=Approval.always(role="x"))).asks is True
    keyed = write(str, identity=(), key=lambda ctx, p: (p.order_id, Money("1 EUR")))
    assert judged(keyed).identity == {"key": ["O-1", "1.00 EUR"]}


@pytest.mark.parametrize(
    "options",
    [
        {"resource": lambda ctx, p: p.nothing},
        {"resource": lambda ctx, p: None},
        {"resource": lambda ctx, p: "x" * 201},
        {"resource": lambda ctx, p: "x\x00"},
        {"approval": Approval.when(lambda ctx, p: None, role="x")},  # type: ignore[arg-type, return-value]
        {"approval": Approval.when(lambda ctx, p: 1 / 0 > 1, role="x")},
        {"identity": (), "key": lambda ctx, p: None},
        {"identity": (), "key": lambda ctx, p: 0.5},
        {"identity": (), "key": lambda ctx, p: [object()]},
        {"identity": (), "key": lambda ctx, p: sys.exit(1)},
    ],
)
def test_a_rule_that_fails_is_a_policy_error(options: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"\S"):
        judged(write(str, **options))


def test_a_rule_that_hangs_is_a_policy_error() -> None:
    gate = threading.Event()
    with pytest.raises(PolicyError, match=r"no answer within 0\.1 s"):
        judged(write(str, resource=lambda ctx, p: str(gate.wait(5))), seconds=0.1)
    gate.set()


def test_helper_threads_end_with_the_cleanup_and_keep_the_context() -> None:
    who: ContextVar[str] = ContextVar("who")
    who.set("ann")
    ended: list[int] = []

    def cleanup() -> None:
        ended.append(threading.get_ident())

    at_thread_end(cleanup)
    try:
        name, ident = run_limited(lambda: (who.get(), threading.get_ident()), seconds=1)
    finally:
        limits._cleanups.remove(cleanup)
    assert name == "ann"
    assert ident in ended
    assert ident != threading.get_ident()


# --- preview and post-condition ------------------------------------------------------------


def test_a_preview_is_read_for_people() -> None:
    declared = write(str)
    declared.preview(
        lambda ctx, p: Preview(
            f"Refund {p.order_id}",
            before={"paid": Money("80 EUR")},
            after={"paid": Money("0 EUR")},
            block="closed",  # type: ignore[arg-type]  # a common slip: one text for a list
            version="7",
        )
    )
    outcome = invoke_preview(
        spec=declared.spec, context=make_context(), arguments={"order_id": "O-1", "pin": None}
    )
    assert outcome.kind is SUCCESS
    assert outcome.result == {
        "summary": "Refund O-1",
        "before": {"paid": "80.00 EUR"},
        "after": {"paid": "0.00 EUR"},
        "block": ["closed"],
        "version": "7",
    }


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (lambda ctx, p: None, NO_EFFECT, "RESULT_UNREADABLE"),
        (lambda ctx, p: Preview("x", version="v" * 201), NO_EFFECT, "TOO_LARGE"),
        (lambda ctx, p: Preview("x" * 300_000), NO_EFFECT, "TOO_LARGE"),
        (lambda ctx, p: raises(Rejected("gone"))(ctx), REFUSED, "rejected"),
        (lambda ctx, p: raises(TimeoutError())(ctx), NO_EFFECT, "transient:timeout"),
        (lambda ctx, p: raises(SystemExit())(ctx), NO_EFFECT, "exception:SystemExit"),
    ],
)
def test_a_failed_preview_says_why(body: Any, kind: OutcomeKind, word: str) -> None:
    declared = write(str)
    declared.preview(body)
    outcome = invoke_preview(
        spec=declared.spec, context=make_context(), arguments={"order_id": "O-1", "pin": None}
    )
    assert (outcome.kind, outcome.error_class) == (kind, word)


def test_a_postcondition_answers_yes_or_no() -> None:
    def refund(ctx: ToolContext, order_id: OrderId) -> Refund:
        raise NotImplementedError

    declared = tool(effect=Effect.WRITE, contract=KEY, identity=("order_id",))(refund)
    declared.postcondition(lambda ctx, p, result: result.amount == Money("80 EUR"))

    def ask(result: Any) -> AttemptOutcome:
        return invoke_postcondition(
            spec=declared.spec,
            context=make_context(),
            arguments={"order_id": "O-1"},
            result=result,
        )

    assert ask({"refund_id": "R", "amount": "80.00 EUR"}).result == {"ok": True}
    assert ask({"refund_id": "R", "amount": "8.00 EUR"}).result == {"ok": False}
    assert ask({"unreadable": True}).kind is NO_EFFECT  # the function saw plain JSON and failed
    declared.postcondition(lambda ctx, p, result: None)  # type: ignore[arg-type, return-value]
    assert ask({"refund_id": "R", "amount": "80.00 EUR"}).error_class == "RESULT_UNREADABLE"
