"""What the refund desk can do: two reads and one write, all at the payment service.

`PAYMENT_URL` in the environment is the address of the payment service.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, StringConstraints

from agentcore.values import Json
from tools import (
    Absent,
    Ambiguous,
    Approval,
    Effect,
    Found,
    Inconclusive,
    Key,
    NotSent,
    Preview,
    Rejected,
    ToolContext,
    tool,
)
from tools.types import Money

OrderId = Annotated[str, StringConstraints(pattern=r"^ORD-[0-9]{1,12}$")]
APPROVAL_ABOVE = Money("50.00", "EUR")


class Order(BaseModel):
    """An order as the payment service has it now."""

    order_id: str
    customer: str
    total: Money
    refunded: Money
    refundable: Money
    version: int


class Policy(BaseModel):
    """What may be refunded."""

    window_days: int
    approval_above: Money
    text: str


class Refund(BaseModel):
    """A refund that the payment service made."""

    refund_id: str
    order_id: str
    amount: Money
    status: Literal["succeeded"]


@tool(effect=Effect.READ, version="1", timeout=10)
def get_order(ctx: ToolContext, order_id: OrderId) -> Order:
    """Read an order: customer, total, what was refunded and what can still be refunded.

    Args:
        order_id: the number of the order, such as ORD-1001.
    """
    return _order(ctx, order_id)


@tool(effect=Effect.READ, version="1", timeout=10)
def get_policy(ctx: ToolContext) -> Policy:
    """Read the refund policy of the shop."""
    body = _get(ctx, "/policy")
    return Policy(
        window_days=body["window_days"],
        approval_above=Money(body["approval_above"], body["currency"]),
        text=body["text"],
    )


@tool(
    effect=Effect.WRITE,
    version="1",
    contract=Key(retention=timedelta(days=30)),
    identity=("order_id",),  # not the amount: a re-planned refund of another amount is refused
    resource=lambda _, p: f"order:{p.order_id}",
    approval=Approval.when(lambda _, p: p.amount > APPROVAL_ABOVE, role="agent_approver"),
    timeout=10,
    scopes=("refunds.write",),
)
def submit_refund(
    ctx: ToolContext, order_id: OrderId, amount: Money, reason: Literal["damaged", "late"]
) -> Refund | Found:
    """Refund part or all of an order to its customer. One refund for each order.

    Args:
        order_id: the number of the order, such as ORD-1001.
        amount: how much, such as "80.00 EUR"; at most the refundable amount of the order.
        reason: why.
    """
    value, currency = str(amount).split()
    reply = ctx.http.request(
        "POST",
        _url("/refunds"),
        json={"order_id": order_id, "amount": value, "currency": currency, "reason": reason},
    )
    if reply.status == 409 and b'"stale_fence"' in reply.body:
        # Another attempt with this key has been seen: this reply says nothing about that one.
        raise Ambiguous("a later attempt holds this key", error_class="stale_fence")
    reply.raise_for_write()
    refund = _refund(reply.json())
    return Found(result=refund, reference=refund.refund_id)


@submit_refund.preview
def _preview(ctx: ToolContext, p: Any) -> Preview:
    order = _order(ctx, p.order_id)
    too_much = p.amount > order.refundable
    return Preview(
        summary=f"Refund {p.amount} to {order.customer} for order {p.order_id}",
        before={"refunded": str(order.refunded), "refundable": str(order.refundable)},
        after={
            "refunded": str(order.refunded + p.amount),
            "refundable": str(order.refundable - p.amount),
        },
        block=(f"only {order.refundable} can be refunded",) if too_much else (),
        version=str(order.version),
    )


@submit_refund.probe(after=[2, 5, 30, 120, 600])
def _probe(ctx: ToolContext, p: Any) -> Found | Absent | Inconclusive:
    refunds = _by_key(ctx)
    if not refunds:
        return Absent()  # the service looks in its own ledger: what it does not know is not there
    if len(refunds) > 1:
        return Inconclusive(f"{len(refunds)} refunds carry this key")
    refund = refunds[0]
    return Found(
        result=refund.model_dump(mode="json"),
        reference=refund.refund_id,
        fingerprint_matches=(refund.order_id, refund.amount) == (p.order_id, p.amount),
    )


@submit_refund.postcondition
def _postcondition(ctx: ToolContext, p: Any, _result: Any) -> bool:
    rows = _by_key(ctx)  # by our key, so that also a refund with an unreadable receipt is checked
    return len(rows) == 1 and (rows[0].order_id, rows[0].amount) == (p.order_id, p.amount)


def _by_key(ctx: ToolContext) -> list[Refund]:
    path = f"/refunds?idempotency_key={quote(ctx.idempotency_key)}"
    return [_refund(row) for row in _get(ctx, path)["data"]]


def _url(path: str) -> str:
    base = os.environ.get("PAYMENT_URL", "")
    if not base:
        raise NotSent("PAYMENT_URL is not set in the environment", error_class="not_configured")
    return base.rstrip("/") + path


def _get(ctx: ToolContext, path: str) -> Json:
    reply = ctx.http.request("GET", _url(path))
    if reply.status == 404:
        raise Rejected("the payment service knows nothing by that name", error_class="not_found")
    reply.raise_for_write()  # the same reading of status codes serves a read
    return reply.json()


def _order(ctx: ToolContext, order_id: str) -> Order:
    body = _get(ctx, f"/orders/{quote(order_id)}")
    amounts = ("total", "refunded", "refundable")
    return Order(**{**body, **{name: Money(body[name], body["currency"]) for name in amounts}})


def _refund(body: Json) -> Refund:
    return Refund(
        refund_id=body["id"],
        order_id=body["order_id"],
        amount=Money(body["amount"], body["currency"]),
        status=body["status"],
    )
