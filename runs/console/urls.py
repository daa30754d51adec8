"""`path("admin/review/", include("runs.console.urls"))`, placed before the admin's own URLs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from runs.console import bulk_views, review_views, views

app_name = "review"

urlpatterns = [
    path("", admin.site.admin_view(views.queue), name="queue"),
    path("bulk/", admin.site.admin_view(bulk_views.bulk), name="bulk"),
    path("<uuid:approval_id>/", admin.site.admin_view(views.item), name="item"),
    path("<uuid:approval_id>/edit/", admin.site.admin_view(review_views.edit), name="edit"),
    path("<uuid:approval_id>/claim/", admin.site.admin_view(review_views.claim), name="claim"),
    path(
        "<uuid:approval_id>/escalate/",
        admin.site.admin_view(review_views.escalate),
        name="escalate",
    ),
]
