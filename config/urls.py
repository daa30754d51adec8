"""The front doors: review console, REST, health."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from config.health import healthz, readyz

admin.site.site_header = admin.site.site_title = "agentcore console"
admin.site.index_title = "Records"
admin.site.site_url = None  # there is no other site to view

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("api/", include("runs.api.urls")),
    path("admin/review/", include("runs.console.urls")),
    path("admin/unknown/", include("runs.console.unknown_urls")),
    path("admin/", include("runs.console.site_urls")),
    path("admin/", admin.site.urls),
]
