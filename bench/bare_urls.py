"""The one route of `bench/bare.py`."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, JsonResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from runs.rest_models import Session


class Insert(APIView):
    """POST: one row, committed, and its id."""

    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        row = Session.objects.create(
            tenant="bench",
            metadata=request.data.get("metadata", {}),
            created_by="bench",
            created_at=datetime.now(UTC),
        )
        return Response({"id": str(row.id)}, status=201)


def healthz(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


urlpatterns = [path("api/v1/runs", Insert.as_view()), path("healthz", healthz)]
