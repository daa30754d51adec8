"""The routes of `bench/bare.py`: a bare DRF view that inserts one row, alone and with a token."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from runs.api.auth import TokenAuthentication
from runs.rest_models import Session


class Insert(APIView):
    """POST: one row, committed, and its id."""

    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        body: Any = request.data
        row = Session.objects.create(
            tenant="bench",
            metadata=body.get("metadata", {}),
            created_by="bench",
            created_at=datetime.now(UTC),
        )
        return Response({"id": str(row.id)}, status=201)


class InsertWithToken(Insert):
    """The same for callers with a bearer token, which is looked up."""

    authentication_classes = (TokenAuthentication,)  # type: ignore[assignment]


def healthz(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


urlpatterns = [
    path("bare", Insert.as_view()),
    path("bare_with_token", InsertWithToken.as_view()),
    path("healthz", healthz),
]
