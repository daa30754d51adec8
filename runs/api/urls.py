"""Routes below `/api/v1/`, and a problem for everything else below `/api/`."""

from __future__ import annotations

from django.urls import path, re_path
from drf_spectacular.views import SpectacularJSONAPIView

from runs.api import errors, views

app_name = "api"

urlpatterns = [
    path("v1/runs", views.RunsView.as_view(), name="runs"),
    path("v1/runs/<str:run_id>", views.RunView.as_view(), name="run"),
    path("v1/runs/<str:run_id>/events", views.RunEventsView.as_view(), name="run-events"),
    path("v1/openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("v1/docs", views.SwaggerView.as_view(url_name="api:openapi"), name="docs"),
    re_path(r"^.*$", errors.not_found),
]
