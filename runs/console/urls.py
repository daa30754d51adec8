"""`path("admin/review/", include("runs.console.urls"))`, placed before the admin's own URLs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from runs.console import views

app_name = "review"

urlpatterns = [
    path("", admin.site.admin_view(views.queue), name="queue"),
    path("<uuid:approval_id>/", admin.site.admin_view(views.item), name="item"),
]
