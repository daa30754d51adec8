"""Routes below `/api/v1/`, and a problem for everything else below `/api/`."""

from __future__ import annotations

from django.urls import path, re_path
from drf_spectacular.views import SpectacularJSONAPIView

from runs.api import (
    actions,
    approvals,
    bulks,
    catalog,
    errors,
    events,
    operating,
    questions,
    sessions,
    switching,
    verdicts,
    views,
    webhooks,
)
from runs.api.callbacks import CallbackView

app_name = "api"

urlpatterns = [
    path("v1/runs", views.RunsView.as_view(), name="runs"),
    path("v1/runs/<str:run_id>", views.RunView.as_view(), name="run"),
    path("v1/runs/<str:run_id>/cancel", views.CancelView.as_view()),
    path("v1/runs/<str:run_id>/pause", operating.PauseView.as_view()),
    path("v1/runs/<str:run_id>/resume", operating.ResumeView.as_view()),
    path("v1/runs/<str:run_id>/retry", operating.RetryView.as_view()),
    path("v1/runs/<str:run_id>/events", events.RunEventsView.as_view(), name="run-events"),
    path("v1/runs/<str:run_id>/actions", actions.RunActionsView.as_view()),
    path("v1/actions", actions.ActionsView.as_view()),
    path("v1/actions/<str:action_id>", actions.ActionView.as_view()),
    path("v1/actions/<str:action_id>/probe", verdicts.ProbeView.as_view()),
    path("v1/actions/<str:action_id>/reconciliations", verdicts.ReconciliationsView.as_view()),
    path("v1/approvals", approvals.ApprovalsView.as_view()),
    path("v1/approvals/<str:approval_id>", approvals.ApprovalView.as_view()),
    path("v1/approvals/<str:approval_id>/decisions", approvals.DecisionsView.as_view()),
    path("v1/approvals/<str:approval_id>/claim", questions.ClaimView.as_view()),
    path("v1/approvals/<str:approval_id>/escalate", questions.EscalateView.as_view()),
    path("v1/events", events.EventsView.as_view()),
    path("v1/agents", catalog.AgentsView.as_view()),
    path("v1/agents/<str:name>", catalog.AgentView.as_view()),
    path("v1/agents/<str:name>/versions", catalog.AgentVersionsView.as_view()),
    path("v1/agents/<str:name>/pause", switching.AgentPauseView.as_view()),
    path("v1/agents/<str:name>/resume", switching.AgentResumeView.as_view()),
    path("v1/tools", catalog.ToolsView.as_view()),
    path("v1/tools/<str:name>", catalog.ToolView.as_view()),
    path("v1/callbacks/<str:source>", CallbackView.as_view(), name="callbacks"),
    path("v1/sessions", sessions.SessionsView.as_view()),
    path("v1/sessions/<str:session_id>", sessions.SessionView.as_view()),
    path("v1/sessions/<str:session_id>/runs", sessions.SessionRunsView.as_view()),
    path("v1/sessions/<str:session_id>/items", sessions.SessionItemsView.as_view()),
    path("v1/webhook_endpoints", webhooks.EndpointsView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint_id>", webhooks.EndpointView.as_view()),
    path("v1/webhook_endpoints/<str:endpoint_id>/rotate_secret", webhooks.RotateView.as_view()),
    path("v1/webhook_deliveries", webhooks.DeliveriesView.as_view()),
    path("v1/webhook_deliveries/<str:delivery_id>/redeliver", webhooks.RedeliverView.as_view()),
    path("v1/bulk_operations", bulks.BulksView.as_view()),
    path("v1/bulk_operations/<str:operation_id>", bulks.BulkView.as_view()),
    path("v1/bulk_operations/<str:operation_id>/start", bulks.BulkStartView.as_view()),
    path("v1/bulk_operations/<str:operation_id>/abort", bulks.BulkAbortView.as_view()),
    path("v1/openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("v1/docs", views.SwaggerView.as_view(url_name="api:openapi"), name="docs"),
    re_path(r"^.*$", errors.not_found),
]
