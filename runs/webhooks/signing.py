"""Signatures of Standard Webhooks, and the secrets they are made with.

A secret is made from the installation's key and the endpoint's salt, so the database alone does
not give it away. Rotation raises the version; the one before stays valid for a while.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

from django.conf import settings

from runs.rest_models import WebhookEndpoint

OVERLAP = timedelta(hours=24)
"""How long the secret before a rotation is valid."""


def new_salt() -> str:
    return secrets.token_hex(24)


def secret_of(endpoint: WebhookEndpoint, *, version: int | None = None) -> str:
    """The secret of an endpoint as its owner gets it: `whsec_` and base64."""
    return "whsec_" + base64.b64encode(_key(endpoint, version)).decode()


def signatures(
    endpoint: WebhookEndpoint, *, message_id: str, timestamp: int, body: bytes, now: datetime
) -> str:
    """The `webhook-signature` header: one signature for each secret that is valid now."""
    versions = [endpoint.secret_version]
    if endpoint.previous_until is not None and endpoint.previous_until > now:
        versions.append(endpoint.secret_version - 1)
    signed = f"{message_id}.{timestamp}.".encode() + body
    made = [hmac.new(_key(endpoint, v), signed, hashlib.sha256).digest() for v in versions]
    return " ".join("v1," + base64.b64encode(item).decode() for item in made)


def _key(endpoint: WebhookEndpoint, version: int | None) -> bytes:
    number = endpoint.secret_version if version is None else version
    text = f"agentcore/webhook/1\n{endpoint.id.hex}\n{endpoint.salt}\n{number}"
    return hmac.new(settings.AGENTCORE_OPTIONS.event_key, text.encode(), hashlib.sha256).digest()
