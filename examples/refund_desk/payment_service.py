"""The payment service: a process of its own with its own ledger, as a real provider would be.

python -m examples.refund_desk.payment_service --port 0 --ledger FILE

GET  /orders/{id}                 the order; any ORD-<n> exists with a total of 100.00 EUR
POST /orders/{id}/touch           somebody else changes the order: version + 1 (for tests)
GET  /policy                      the refund policy
POST /refunds                     {order_id, amount, currency, reason, order_version?}
                                  with an Idempotency-Key: one refund for one key
GET  /refunds?idempotency_key=K   the refunds of one key (none or one)
GET  /refunds/{id}                one refund
GET  /ledger                      every refund, in the order they were made
GET  /requests                    how many requests were received, by route
GET|POST|DELETE /faults           see `faults.py`; default target "POST /refunds"
POST|DELETE /webhooks             see `webhooks.py`; also POST /refunds/{id}/notify
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from examples.refund_desk.faults import (
    EFFECT_MODES,
    FaultBox,
    RequestCounter,
    around_effect,
    route_label,
)
from examples.refund_desk.json_http import Reply, Request, serve
from examples.refund_desk.payment_ledger import CURRENCY, PaymentLedger, RefusedError, parse_refund
from examples.refund_desk.webhooks import Notifier

POLICY = {
    "currency": CURRENCY,
    "window_days": 30,
    "approval_above": "50.00",
    "text": "Damaged or late orders are refunded up to the order's refundable amount.",
}
NOT_FOUND = Reply(status=404, body={"error": "not_found", "detail": "no such thing here"})


class PaymentService:
    """The routes of the payment service over one ledger."""

    def __init__(self, ledger: PaymentLedger) -> None:
        self.ledger = ledger
        self.faults = FaultBox(modes=EFFECT_MODES, target="POST /refunds")
        self.requests = RequestCounter()
        self.notifier = Notifier()

    def __call__(self, request: Request) -> Reply:
        """Answer one request; only business routes are counted and can be broken."""
        parts = request.path.strip("/").split("/")
        if parts[0] == "faults":
            return self.faults.endpoint(request)
        if parts[0] == "webhooks":
            return self.notifier.endpoint(request)
        if parts[-1] == "notify":
            return self.notifier.notify(self.ledger.refund_by_id(parts[1]))
        if parts[0] == "requests":
            return Reply(body=self.requests.public())
        if parts[0] == "ledger":
            return _listing(self.ledger.refunds())
        self.requests.enter(route_label(request))
        try:
            fault = self.faults.take(
                label=f"{request.method} {request.path}", order_id=_order_of(request, parts)
            )
            return around_effect(fault=fault, effect=lambda: self._route(request, parts))
        finally:
            self.requests.leave()

    def _route(self, request: Request, parts: list[str]) -> Reply:
        try:
            match (request.method, *parts):
                case ("GET", "orders", order_id):
                    return _found(self.ledger.order(order_id))
                case ("POST", "orders", order_id, "touch"):
                    return _found(self.ledger.touch(order_id))
                case ("GET", "policy"):
                    return Reply(body=POLICY)
                case ("POST", "refunds"):
                    return self._refund(request)
                case ("GET", "refunds"):
                    return self._by_key(request)
                case ("GET", "refunds", refund_id):
                    return _found(self.ledger.refund_by_id(refund_id))
        except RefusedError as refusal:
            return Reply(status=refusal.status, body=refusal.body)
        return NOT_FOUND

    def _refund(self, request: Request) -> Reply:
        key = request.headers.get("idempotency-key", "")
        if not 1 <= len(key) <= 64:
            raise RefusedError(400, "key_missing", "send an Idempotency-Key of 1 to 64 characters")
        try:
            body = request.json()
            fence = int(request.headers.get("x-agentcore-fence", "0"))
        except ValueError:
            raise RefusedError(400, "malformed", "the body is JSON, the fence a number") from None
        refund, replayed = self.ledger.refund(key=key, fence=fence, ask=parse_refund(body))
        if not replayed:
            self.notifier.refund_made(refund)
        headers = {"Idempotent-Replayed": "true"} if replayed else {}
        return Reply(status=201, body=refund, headers=headers)

    def _by_key(self, request: Request) -> Reply:
        key = request.query.get("idempotency_key")
        if not key:
            raise RefusedError(400, "malformed", "ask with ?idempotency_key=")
        return _listing(self.ledger.refunds(key=key))


def _found(body: dict[str, Any] | None) -> Reply:
    return NOT_FOUND if body is None else Reply(body=body)


def _listing(rows: list[dict[str, Any]]) -> Reply:
    return Reply(body={"object": "list", "data": rows})


def _order_of(request: Request, parts: list[str]) -> str | None:
    if parts[0] == "orders" and len(parts) > 1:
        return parts[1]
    try:
        body = request.json()
    except ValueError:
        return None
    return body.get("order_id") if isinstance(body, dict) else None


def main() -> None:
    """Parse the command line and serve until stopped."""
    parser = argparse.ArgumentParser(description="The refund desk's payment service (loopback).")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path, required=True, help="the SQLite file")
    options = parser.parse_args()
    service = PaymentService(PaymentLedger(options.ledger))
    serve(name="payment_service", application=service, port=options.port)


if __name__ == "__main__":
    main()
