"""One write under a `Query` contract: each request acts, and shows only some time later.

It is the example's payment service without its keys: every request gets one of its own, which
begins with ours so that the ledger can be read (`desk.py`).
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from tools import Absent, Effect, Found, Query, ToolContext, tool
from tools.types import Money

OrderId = Annotated[str, StringConstraints(pattern=r"^ORD-[0-9]{1,12}$")]
SETTLES = timedelta(seconds=4)
"""What was sent is booked by then: longer than the delay of the story that needs it."""


@tool(
    effect=Effect.WRITE,
    contract=Query(settle=SETTLES),
    identity=("order_id",),
    resource=lambda _, p: f"order:{p.order_id}",
    fenced_sends=True,
    timeout=1.0,
)
def transfer(
    ctx: ToolContext, order_id: OrderId, amount: Money, reason: Literal["damaged", "late"]
) -> dict[str, str]:
    """Transfer money back.

    Args:
        order_id: the number of the order.
        amount: how much.
        reason: why.
    """
    value, currency = str(amount).split()
    without_keys = replace(ctx, key_header="X-Reference")
    reply = without_keys.http.request(
        "POST",
        f"{os.environ['PAYMENT_URL']}/refunds",
        json={"order_id": order_id, "amount": value, "currency": currency, "reason": reason},
        headers={"Idempotency-Key": f"{ctx.idempotency_key}.{secrets.token_hex(2)[:3]}"},
    )
    reply.raise_for_write()
    return {"refund": reply.json()["id"]}


@transfer.probe
def look_it_up(ctx: ToolContext, p: Any) -> Found | Absent:
    reply = ctx.http.request("GET", f"{os.environ['PAYMENT_URL']}/orders/{p.order_id}")
    booked = Money(reply.json()["refunded"], reply.json()["currency"])
    return Found({"refund": ""}) if booked >= p.amount else Absent()
