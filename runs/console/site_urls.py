"""`path("admin/", include("runs.console.site_urls"))`, before the admin's own URLs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from runs.console import export_views, fleet_views, home, policy_views, run_views, stuck_views

app_name = "console"
_own = admin.site.admin_view

urlpatterns = [
    path("", _own(home.home), name="home"),
    path("stuck/", _own(stuck_views.board), name="stuck"),
    path("stuck/<uuid:run_id>/", _own(stuck_views.free), name="free"),
    path("agents/", _own(fleet_views.agents), name="agents"),
    path("tools/", _own(fleet_views.tools), name="tools"),
    path("switch/<str:kind>/<str:name>/", _own(fleet_views.switch), name="switch"),
    path("policy/", _own(policy_views.policy), name="policy"),
    path("policy/add/", _own(policy_views.add), name="add_threshold"),
    path("policy/<uuid:threshold_id>/retire/", _own(policy_views.retire), name="retire"),
    path("policy/standing/", _own(policy_views.stand), name="stand"),
    path("policy/standing/<uuid:standing_id>/revoke/", _own(policy_views.revoke), name="revoke"),
    path("workers/", _own(fleet_views.workers), name="workers"),
    path("help/", _own(fleet_views.keys), name="help"),
    path("approvals.csv", _own(export_views.approvals_csv), name="approvals_csv"),
    path("runs/run/<uuid:run_id>/do/<str:verb>/", _own(run_views.act), name="act"),
    path("runs/run/<uuid:run_id>/reveal/", _own(run_views.reveal), name="reveal"),
    path("runs/run/<uuid:run_id>/verify/", _own(export_views.verify), name="verify"),
    path("runs/run/<uuid:run_id>/events.ndjson", _own(export_views.events), name="events"),
    path("runs/run/<uuid:run_id>/turn/<int:turn>/", _own(export_views.context), name="context"),
]
