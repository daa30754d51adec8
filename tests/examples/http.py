"""A plain HTTP caller and fresh order ids for the tests of the example."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ORDERS = itertools.count(100_000)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer with its body as JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


def call(
    method: str, url: str, body: object = None, *, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send one request. Raises OSError when no whole answer came."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            text, status, received = reply.read(), reply.status, reply.headers
    except urllib.error.HTTPError as error:
        text, status, received = error.read(), error.code, error.headers
    return Answer(status, dict(received), json.loads(text) if text[:1] in b"{[" else text.decode())


def fresh_order() -> str:
    """An order that no other test uses."""
    return f"ORD-{next(_ORDERS)}"


def refund_body(order_id: str, amount: str = "80.00", **more: object) -> dict[str, object]:
    """The body of POST /refunds."""
    return {"order_id": order_id, "amount": amount, "currency": "EUR", "reason": "late", **more}


def refund(url: str, *, key: str, body: object, fence: int | None = None) -> Answer:
    """POST /refunds with this idempotency key."""
    headers = {"Idempotency-Key": key} if key else {}
    if fence is not None:
        headers["X-Agentcore-Fence"] = str(fence)
    return call("POST", f"{url}/refunds", body, headers=headers)


def refunds_of(url: str, order_id: str) -> list[dict[str, Any]]:
    """The ledger's refunds of one order."""
    rows: list[dict[str, Any]] = call("GET", f"{url}/ledger").body["data"]
    return [row for row in rows if row["order_id"] == order_id]
