"""A downstream that calls back: its secret in the settings, and messages as it signs them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.test import Client, override_settings
from standardwebhooks import Webhook

from agentcore.callbacks import CallbackBody, CallbackSource
from runs.selectors import database_clock
from tests.unknown import Unknown

SECRET = "whsec_" + base64.b64encode(b"a secret of the payment service!").decode()
NEXT_SECRET = "whsec_" + base64.b64encode(b"the next secret of the payments!").decode()


@contextmanager
def sources(**more: CallbackSource) -> Iterator[None]:
    """The source `payments`, and others, may call back."""
    known = {"payments": CallbackSource(secrets=(SECRET, NEXT_SECRET)), **more}
    options = settings.AGENTCORE_OPTIONS.model_copy(update={"callbacks": known})
    with override_settings(AGENTCORE_OPTIONS=options):
        yield


def message(made: Unknown | None, word: str = "succeeded", **data: Any) -> dict[str, Any]:
    """The body of a callback about this write, by its key unless `data` names it otherwise."""
    about = {"idempotency_key": made.action.idempotency_key} if made else {}
    return {"type": f"effect.{word}", "data": {**about, **data}}


def body_of(made: Unknown | None, word: str = "succeeded", **data: Any) -> dict[str, Any]:
    """The arguments of `receive_callback`, with an event id of its own."""
    body = message(made, word, **data)
    return {
        "source": "payments",
        "event_id": uuid4().hex,
        "body": CallbackBody.model_validate(body),
        "body_sha256": json.dumps(body)[:64],
        "sent_at": database_clock(),
    }


def headers(
    raw: bytes, *, event_id: str = "", secret: str = SECRET, ago: timedelta = timedelta(0)
) -> dict[str, str]:
    """The headers of a signed message."""
    event_id, at = event_id or uuid4().hex, datetime.now(tz=UTC) - ago
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(event_id, at, raw.decode("utf-8", "replace")),
    }


def post(raw: bytes, given: dict[str, str], *, source: str = "payments") -> Any:
    """The downstream's request."""
    client = Client(raise_request_exception=False)
    path = f"/api/v1/callbacks/{source}"
    return client.post(path, data=raw, content_type="application/json", headers=given)
