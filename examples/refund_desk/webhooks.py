"""How the payment service tells a caller by itself that a refund was made: a signed webhook.

`POST /webhooks {"url", "secret", "on_refund"}` says where to; `on_refund` sends one with each new
refund, before its request is answered. `POST /refunds/{id}/notify` sends one about a refund that
exists. `DELETE /webhooks` stops all of it.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

from examples.refund_desk.json_http import Reply, Request

TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where webhooks go, and with which secret they are signed."""

    url: str
    secret: str
    on_refund: bool = False


class Notifier:
    """The webhooks of one payment service: one receiver, one event for each refund."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._target: Target | None = None

    def endpoint(self, request: Request) -> Reply:
        """POST and DELETE of /webhooks."""
        try:
            target = Target(**request.json()) if request.method == "POST" else None
        except TypeError as error:
            return Reply(status=400, body={"error": "bad_webhook", "detail": str(error)})
        with self._lock:
            self._target = target
        return Reply(status=201 if target else 200, body={})

    def refund_made(self, refund: dict[str, Any]) -> None:
        """Called with each new refund, before its request is answered."""
        target = self._target
        if target is not None and target.on_refund:
            _send(target, refund)

    def notify(self, refund: dict[str, Any] | None) -> Reply:
        """Tell the receiver about one refund now; the reply says what the receiver answered."""
        target = self._target
        if refund is None or target is None:
            return Reply(status=404, body={"error": "not_found", "detail": "no refund or receiver"})
        status, body = _send(target, refund)
        return Reply(body={"status": status, "body": body})


def _send(target: Target, refund: dict[str, Any]) -> tuple[int, Any]:
    """POST the event of this refund: its id is always the same, so a repetition can be told."""
    now = datetime.now(tz=UTC)
    body = json.dumps({"type": "effect.succeeded", "data": _about(refund)})
    event_id = f"evt_{refund['id']}"
    request = urllib.request.Request(target.url, body.encode(), method="POST")  # noqa: S310
    for name, value in {
        "Content-Type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(target.secret).sign(event_id, now, body),
    }.items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:  # noqa: S310
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def _about(refund: dict[str, Any]) -> dict[str, Any]:
    """The refund in the words of the tool that asked for it."""
    return {
        "idempotency_key": refund["idempotency_key"],
        "reference": refund["id"],
        "result": {
            "refund_id": refund["id"],
            "order_id": refund["order_id"],
            "amount": f"{refund['amount']} {refund['currency']}",
            "status": refund["status"],
        },
    }
