"""`POST /callbacks/{source}`: a downstream's own word on an effect, signed by the downstream.

The signature (Standard Webhooks: HMAC-SHA256 over id, time and body) is the authentication. It is
checked on the bytes as they came, before anything in them is read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from standardwebhooks import Webhook, WebhookVerificationError

from agentcore.callbacks import CallbackBody, CallbackSource
from agentcore.canonical import sha256_hex, storable
from runs import services
from runs.api.base import ApiView
from runs.api.bodies import read_json
from runs.api.docs import PROBLEM
from runs.api.ids import public_id
from runs.api.schemas import Problem
from runs.refusals import Refused, invalid
from runs.starting import refused_fields

MAX_BYTES = 256 * 1024
MAX_ID = 255
_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


class CallbackReceipt(BaseModel):
    """What became of a callback. `repeated`: it had been received before, and nothing was done."""

    id: str
    object: str = "callback"
    outcome: str
    repeated: bool


def _header(name: str, description: str) -> OpenApiParameter:
    return OpenApiParameter(
        name=name,
        location=OpenApiParameter.HEADER,
        required=True,
        type=str,
        description=description,
    )


_DOCS = extend_schema(
    operation_id="receive_callback",
    auth=[],
    summary="Receive a downstream's word on an effect",
    description="For downstreams, not for callers: the signature is the authentication. The effect "
    "is named by our idempotency key or by the downstream's own reference. A message that fits no "
    "action yet is kept and matched later (`outcome` is `parked`).",
    tags=["callbacks"],
    request={"application/json": CallbackBody},
    parameters=[
        OpenApiParameter(
            name="source",
            location=OpenApiParameter.PATH,
            required=True,
            type=str,
            description="The name of the downstream in the option `callbacks`.",
        ),
        _header("webhook-id", "The id of the event; the same in every repetition."),
        _header("webhook-timestamp", "Seconds since 1970; at most five minutes from now."),
        _header("webhook-signature", "`v1,` and the base64 of the HMAC-SHA256; one or several."),
    ],
    responses={
        (200, "application/json"): OpenApiResponse(
            response=CallbackReceipt, description="Received, now or before."
        ),
        **{
            (status, PROBLEM): OpenApiResponse(response=Problem, description=text)
            for status, text in (
                (400, "`malformed_json`"),
                (401, "`signature_invalid`"),
                (404, "`not_found`: no such source"),
                (409, "`callback_id_reused`"),
                (413, "`body_too_large`"),
                (422, "`invalid_input`"),
                (503, "`database_unavailable`, with `Retry-After`"),
            )
        },
    },
)


class CallbackView(ApiView):
    """`/callbacks/{source}`"""

    authentication_classes = ()  # type: ignore[assignment]  # the signature says who calls
    permission_classes = ()  # type: ignore[assignment]

    @_DOCS
    def post(self, request: Request, source: str) -> Response:
        raw = _raw_body(request)
        sender = settings.AGENTCORE_OPTIONS.callbacks.get(source)
        if sender is None:
            raise Refused(code="not_found", detail="There is no source with this name.")
        event_id, sent_at = _verified(sender, request, raw)
        received = services.receive_callback(
            source=source,
            event_id=event_id,
            body=_body(raw),
            body_sha256=sha256_hex(raw),
            sent_at=sent_at,
        )
        return Response(_receipt(received.callback_id, received.did, received.repeated))


def _receipt(callback_id: UUID, did: str, repeated: bool) -> dict[str, Any]:
    shown = CallbackReceipt(id=public_id("cb", callback_id), outcome=did.lower(), repeated=repeated)
    return shown.model_dump(mode="json")


def _raw_body(request: Request) -> bytes:
    """The bytes as they came: the signature is over them."""
    raw: bytes = request._request.read(MAX_BYTES + 1)  # noqa: SLF001  (DRF documents it)
    if len(raw) > MAX_BYTES:
        raise Refused(code="body_too_large", detail=f"A callback has at most {MAX_BYTES} bytes.")
    return raw


def _verified(sender: CallbackSource, request: Request, raw: bytes) -> tuple[str, datetime]:
    """Event id and time of a message that one of the source's secrets signed. Raises `Refused`."""
    given = {name: request.headers.get(name, "") for name in _HEADERS}
    if not any(_signed(secret, given, raw) for secret in sender.secrets):
        raise Refused(
            code="signature_invalid",
            detail="The message is not signed by this source, or its time is more than five "
            "minutes from ours. Sign webhook-id, webhook-timestamp and the exact body.",
        )
    event_id = given["webhook-id"]
    if len(event_id) > MAX_ID or not storable(event_id):
        raise invalid("", "webhook_id_invalid", f"webhook-id has at most {MAX_ID} characters.")
    return event_id, datetime.fromtimestamp(float(given["webhook-timestamp"]), tz=UTC)


def _signed(secret: str, headers: dict[str, str], raw: bytes) -> bool:
    try:
        Webhook(secret).verify(raw, headers, json_parse=False)
    except (WebhookVerificationError, ValueError):  # ValueError: not UTF-8, not base64, no version
        return False
    return True


def _body(raw: bytes) -> CallbackBody:
    try:
        return CallbackBody.model_validate(read_json(raw))
    except ValidationError as error:
        raise refused_fields(error) from None
