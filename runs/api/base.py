"""What every view of the API shares: authentication, JSON only, problems, a request id."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from drf_spectacular.openapi import AutoSchema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from runs.api import errors, throttling
from runs.api.auth import HasScope, StaffSession, TokenAuthentication
from runs.api.bodies import JsonBodyParser
from runs.api.throttling import CallerThrottle

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class JsonOnly(BaseContentNegotiation):
    """Answers are JSON whatever `Accept` says: a browser may look at them, too."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        content_type = request.content_type.split(";")[0].strip().lower()
        return next((p for p in parsers if p.media_type == content_type), None)

    def select_renderer(self, *args: Any, **_: Any) -> Any:
        renderers = args[1]
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """Base of the views. `scopes` names the scope each method needs."""

    scopes: ClassVar[dict[str, str]] = {}
    authentication_classes = (TokenAuthentication, StaffSession)
    permission_classes = (HasScope,)
    parser_classes = (JsonBodyParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = JsonOnly
    throttle_classes = (CallerThrottle,)
    metadata_class = None  # OPTIONS is answered with 405
    schema = AutoSchema()

    def get_exception_handler(self) -> Any:
        return errors.handle

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        response["X-Request-Id"] = errors.request_id_of(request)
        response["Cache-Control"] = "no-store"
        throttling.add_headers(request, response)
        return super().finalize_response(request, response, *args, **kwargs)


def trace_id_of(request: Request) -> str:
    """The trace id of a W3C `traceparent` header, or empty."""
    match = _TRACEPARENT.fullmatch(request.META.get("HTTP_TRACEPARENT", "").strip())
    return match[1] if match and match[1] != "0" * 32 else ""
