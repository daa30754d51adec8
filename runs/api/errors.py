"""Every error of the API as `application/problem+json` (RFC 9457) that says what to do."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from approvals.errors import DecisionError, InvalidEdit
from runs.api.schemas import Problem, ProblemField
from runs.refusals import FieldError, Refused, invalid

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE_BASE = "urn:agentcore:problem:"

CODES: dict[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not valid JSON"),
    "idempotency_key_missing": (400, "The Idempotency-Key header is missing or unusable"),
    "unauthenticated": (401, "No valid credentials"),
    "signature_invalid": (401, "The message is not signed by this source"),
    "scope_missing": (403, "The caller may not do this"),
    "agent_forbidden": (403, "The token is not for this agent"),
    "role_missing": (403, "The policy asks for somebody else"),
    "self_approval_forbidden": (403, "Who asked may not decide"),
    "self_reconciliation_forbidden": (403, "Who asked gives no verdict"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "The method is not allowed here"),
    "absence_not_proven": (409, "It may still happen"),
    "action_changed": (409, "The action has another revision"),
    "action_not_unknown": (409, "The fate of the action is not open"),
    "already_claimed": (409, "Somebody else looks at the question"),
    "approval_decided": (409, "The approval was decided already"),
    "approval_stale": (409, "What was shown is not what would run"),
    "bulk_not_ready": (409, "The bulk operation cannot do this now"),
    "callback_id_reused": (409, "The webhook-id was used for another body"),
    "dedupe_open_run": (409, "A run with this dedupe_key is open"),
    "idempotency_in_progress": (409, "A request with this key is being answered"),
    "no_probe": (409, "The downstream cannot be asked"),
    "nothing_higher": (409, "There is no higher group"),
    "resend_refused": (409, "The write may not be sent again"),
    "run_not_paused": (409, "The run is not paused"),
    "run_is_child": (409, "The run keeps the limits that its parent gave it"),
    "run_not_retryable": (409, "The run cannot be retried"),
    "run_not_waiting": (409, "The run has ended or is stopping"),
    "run_terminal": (409, "The run has ended"),
    "second_person_required": (409, "Another person must agree"),
    "session_busy": (409, "The session has an open run"),
    "approval_expired": (410, "The approval ran out of time"),
    "event_cursor_expired": (410, "The cursor is too old or unknown"),
    "revision_mismatch": (412, "The run has another revision"),
    "body_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "The body has another media type than JSON"),
    "invalid_input": (422, "The request is not valid"),
    "invalid_arguments": (422, "The tool does not take these arguments"),
    "idempotency_key_reused": (422, "The key was used for another request"),
    "rate_limited": (429, "Too many requests"),
    "internal_error": (500, "The server made a mistake"),
    "agent_paused": (503, "The agent is switched off"),
    "database_unavailable": (503, "The database cannot be reached"),
}
"""Code -> HTTP status and title. The code is the contract; titles and details may change."""

DATABASE_DOWN = Refused(
    code="database_unavailable",
    detail="The database cannot be reached, or did not confirm. Send the same request again after "
    "the time in Retry-After; with the same Idempotency-Key nothing is done twice.",
    retry_after=2,
)


def request_id_of(request: Any) -> str:
    """The id of this request: the caller's `X-Request-Id` if it is a plain word, else a new one."""
    django_request = getattr(request, "_request", request)
    known: str = getattr(django_request, "request_id", "")
    if not known:
        asked = django_request.META.get("HTTP_X_REQUEST_ID", "")
        plain = asked.isascii() and asked.replace("-", "").replace("_", "").isalnum()
        known = asked if plain and len(asked) <= 64 else f"req_{uuid4().hex}"
        django_request.request_id = known
    return known


def problem(request: Any, refused: Refused) -> Problem:
    """The body of the answer to a refusal."""
    status, title = CODES[refused.code]
    return Problem(
        type=TYPE_BASE + refused.code,
        title=title,
        status=status,
        detail=refused.detail,
        code=refused.code,
        request_id=request_id_of(request),
        errors=[
            ProblemField(pointer=e.pointer, code=e.code, detail=e.detail) for e in refused.errors
        ],
        run=refused.context.get("run"),
    )


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler: no exception leaves the API as anything but a problem."""
    request = context["request"]
    refused = as_refusal(error, request)
    if refused.code == "internal_error":
        log.error("request %s failed", request_id_of(request), exc_info=error)
    headers = dict(getattr(error, "headers", None) or {})
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(error.auth_header)  # type: ignore[attr-defined]
    if refused.retry_after is not None:
        headers["Retry-After"] = str(refused.retry_after)
    body = problem(request, refused)
    return Response(
        body.model_dump(mode="json", exclude_none=True),
        status=body.status,
        headers=headers,
        content_type=CONTENT_TYPE,
    )


def as_refusal(error: Exception, request: Any) -> Refused:
    """What an exception means to a caller. Unknown ones are an `internal_error` without details."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DecisionError):
        return _of_decision(error)
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("request %s: database error: %s", request_id_of(request), error)
        return DATABASE_DOWN
    if isinstance(error, exceptions.APIException):
        return _of_framework(error, request)
    return Refused(
        code="internal_error",
        detail=f"Report this with the request id {request_id_of(request)}. With the same "
        "Idempotency-Key the request may be sent again safely.",
    )


DECISION_CODES = {
    "approval_not_found": "not_found",
    "not_found": "not_found",
    "not_permitted": "role_missing",
    "self_approval": "self_approval_forbidden",
    "self_reconciliation": "self_reconciliation_forbidden",
    "already_decided": "approval_decided",
    "approval_stale": "approval_stale",
    "approval_expired": "approval_expired",
    "already_claimed": "already_claimed",
    "nothing_higher": "nothing_higher",
    "run_not_waiting": "run_not_waiting",
    "action_not_unknown": "action_not_unknown",
    "action_changed": "action_changed",
    "no_probe": "no_probe",
    "too_early": "absence_not_proven",
    "resend_refused": "resend_refused",
    "resend_granted": "resend_refused",
    "second_person_required": "second_person_required",
}
"""Code of a `DecisionError` -> code of the API."""

DECISION_FIELDS = {
    "reason_required": ("/reason", "missing"),
    "nothing_changed": ("/arguments", "nothing_changed"),
    "invalid_rule": ("/role", "unknown_group"),
    "evidence_required": ("/reason", "missing"),
    "evidence_too_long": ("/reason", "too_long"),
    "evidence_link_invalid": ("/evidence/0", "not_a_link"),
    "too_long": ("/downstream_ref", "too_long"),
    "reference_required": ("/downstream_ref", "missing"),
    "ground_required": ("/ground", "missing"),
    "next_probe_required": ("/next_probe_in", "missing"),
    "result_unusable": ("/result", "not_storable"),
}
"""Code of a `DecisionError` about one member of the body -> its pointer and code."""


def _of_decision(error: DecisionError) -> Refused:
    if error.code in DECISION_FIELDS:
        pointer, code = DECISION_FIELDS[error.code]
        return invalid(pointer, code, error.message)
    if isinstance(error, InvalidEdit):
        errors = [
            FieldError(f"/arguments/{name}" if name else "/arguments", "invalid", text)
            for name, text in error.errors
        ]
        return Refused(code="invalid_arguments", detail=error.message, errors=errors)
    return Refused(code=DECISION_CODES.get(error.code, "approval_stale"), detail=error.message)


def _of_framework(error: exceptions.APIException, request: Any) -> Refused:
    if isinstance(error, exceptions.NotAuthenticated):
        return Refused(
            code="unauthenticated",
            detail="Send a token as: Authorization: Bearer <token>. `manage.py token create` makes "
            "one.",
        )
    if isinstance(error, exceptions.AuthenticationFailed):
        return Refused(code="unauthenticated", detail=str(error.detail))
    if isinstance(error, exceptions.MethodNotAllowed):
        return Refused(
            code="method_not_allowed",
            detail=f"{request.method} is not allowed here. See /api/v1/openapi.json.",
        )
    if isinstance(error, exceptions.UnsupportedMediaType):
        return Refused(
            code="unsupported_media_type", detail="Send JSON with Content-Type: application/json."
        )
    if isinstance(error, exceptions.PermissionDenied):
        return Refused(code="scope_missing", detail=str(error.detail))
    if isinstance(error, exceptions.NotFound):
        return Refused(code="not_found", detail=str(error.detail))
    return Refused(code="malformed_json", detail=str(error.detail))


def not_found(request: HttpRequest, **_: Any) -> JsonResponse:
    """The answer to every path below /api/ that is no route."""
    refused = Refused(
        code="not_found",
        detail="There is no such path. Paths have no slash at the end; see /api/v1/openapi.json.",
    )
    return plain_problem(request, refused)


def plain_problem(request: HttpRequest, refused: Refused) -> JsonResponse:
    """A problem outside of DRF's views."""
    body = problem(request, refused)
    response = JsonResponse(
        body.model_dump(mode="json", exclude_none=True),
        status=body.status,
        content_type=CONTENT_TYPE,
    )
    response["X-Request-Id"] = body.request_id
    if refused.retry_after is not None:
        response["Retry-After"] = str(refused.retry_after)
    return response
