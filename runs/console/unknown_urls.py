"""`path("admin/unknown/", include("runs.console.unknown_urls"))`, before the admin's own URLs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from runs.console import unknown_views

app_name = "unknown"

urlpatterns = [
    path("", admin.site.admin_view(unknown_views.board), name="board"),
    path("<uuid:action_id>/", admin.site.admin_view(unknown_views.item), name="item"),
    path("<uuid:action_id>/probe/", admin.site.admin_view(unknown_views.probe), name="probe"),
]
