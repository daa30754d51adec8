"""The lists and pages of runs and actions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentcore.lifecycle import ActionState, RunState, StopReason
from agentcore.values import Effect
from runs.console import admin_records, run_presenters, run_views, text
from runs.console.lists import Filter, Rows
from runs.console.readonly import ReadOnlyAdmin, as_uuid, minute
from runs.console.redaction import redactors_of
from runs.listing import RunFilter, narrowed, status_is
from runs.models import ActionJournal, AgentVersion, Run
from runs.selectors import database_clock
from runs.templatetags.console_text import chip
from tools import registry

__all__ = ["admin_records"]


def _words(values: Any) -> list[tuple[str, str]]:
    return [(str(value), str(value).replace("_", " ").lower()) for value in values]


def _agents() -> list[tuple[str, str]]:
    names = AgentVersion.objects.order_by("name").values_list("name", flat=True).distinct()[:200]
    return [(name, name) for name in names if text.visible(name) == name]


def _by_agent(rows: Rows, value: str) -> Rows:
    name, _, version = value.partition("@")
    rows = rows.filter(agent_version__name=name)
    return rows.filter(agent_version__version=version) if version else rows


def _by_status(rows: Rows, value: str) -> Rows:
    return rows.filter(state=value) if value in set(RunState) else rows.filter(status_is(value))


def _by_tool(rows: Rows, value: str) -> Rows:
    calls = ActionJournal.objects.filter(run_id=OuterRef("pk"), tool=value)
    return rows.filter(Exists(calls))


def _younger(rows: Rows, value: str) -> Rows:
    return rows.filter(created_at__gte=database_clock() - timedelta(hours=float(value)))


def _cost(rows: Rows, value: str) -> Rows:
    return rows.filter(cost_used__gte=round(float(value) * 1_000_000))


def _metadata(rows: Rows, value: str) -> Rows:
    name, sign, wanted = value.partition("=")
    if not sign:
        raise ValueError("a metadata filter reads key=value")
    return rows.filter(metadata__contains={name.strip(): wanted.strip()})


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs: what was asked, where it stands, what it waits for."""

    list_title = "Runs"
    list_display = ("goal", "status", "agent", "principal_", "turns", "spend", "why", "lease")
    list_display_links = ("goal",)
    list_select_related = ("agent_version",)
    search_fields = ("id",)
    search_help_text = "run id, dedupe key, session or requester (exact)"
    console_views = (
        ("?status=requires_action", "Waits for a person"),
        ("?has=unknown", "Unknown outcome"),
        ("?status=SUSPENDED", "Paused"),
        ("?status=FAILED&age=24", "Failed today"),
    )
    console_filters = (
        Filter(
            "status",
            "State",
            _by_status,
            lambda: [
                ("requires_action", "waits for a person"),
                ("in_progress", "in progress"),
                *_words(RunState),
            ],
        ),
        Filter("agent", "Agent", _by_agent, _agents),
        Filter(
            "has",
            "With",
            lambda rows, value: narrowed(rows, RunFilter(has=(value,))),
            lambda: [("pending_approval", "an open question"), ("unknown", "an unknown outcome")],
        ),
        Filter(
            "code", "Stop reason", lambda r, v: r.filter(stop_reason=v), lambda: _words(StopReason)
        ),
        Filter(
            "age",
            "Started",
            _younger,
            lambda: [("1", "last hour"), ("24", "last day"), ("168", "last week")],
        ),
        Filter(
            "requester", "Requested by", lambda rows, v: rows.filter(principal=v), hint="token:shop"
        ),
        Filter(
            "tool", "Used tool", _by_tool, lambda: [(s.name, s.name) for s in registry.all_tools()]
        ),
        Filter("cost", "Cost at least", _cost, hint="USD, 0.50"),
        Filter("metadata", "Metadata", _metadata, hint="key=value"),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only: a substring search would read the whole table."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if as_id := as_uuid(term):
            return queryset.filter(Q(id=as_id) | Q(session_id=as_id)), False
        return queryset.filter(Q(dedupe_key=term) | Q(principal=term)), False

    def prepare(self, rows: list[Run]) -> None:
        """Hide in goal and reason what the tools of the runs keep secret."""
        redactors = redactors_of(runs=[run.pk for run in rows])
        for run in rows:
            if redactor := redactors.get(run.pk):
                redactor.hide(run, "input", "reason")

    @admin.display(description="goal")
    def goal(self, run: Run) -> str:
        return text.short(text.goal(run.input), 60) or str(run.pk)

    @admin.display(description="state")
    def status(self, run: Run) -> SafeString:
        return chip(run.state)

    @admin.display(description="agent")
    def agent(self, run: Run) -> str:
        return text.visible(run.agent_version)

    @admin.display(description="requested by")
    def principal_(self, run: Run) -> str:
        return text.short(run.principal, 40)

    @admin.display(description="turns")
    def turns(self, run: Run) -> str:
        return f"{run.turn}/{run.max_turns}"

    @admin.display(description="spent")
    def spend(self, run: Run) -> str:
        limit = f" / {text.money(run.max_cost)}" if run.max_cost is not None else ""
        return f"{text.money(run.cost_used)}{limit}"

    @admin.display(description="reason")
    def why(self, run: Run) -> str:
        return text.short(" · ".join(filter(None, (run.stop_reason, run.reason))) or "—", 60)

    @admin.display(description="started")
    def lease(self, run: Run) -> SafeString:
        held = "" if run.lease_worker is None else f" · worker …{str(run.lease_worker)[-8:]}"
        return format_html('{}<span class="quiet">{}</span>', minute(run.created_at), held)

    def detail(self, request: HttpRequest, found: Run) -> HttpResponse:
        """One run, a tab at a time."""
        return run_views.run_page(request, found)


@admin.register(ActionJournal)
class ActionAdmin(ReadOnlyAdmin):
    """Actions of all runs: what did we do to this resource, and with which key?"""

    list_title = "Actions"
    list_lead = (
        "Every call of a tool: what was done to an order, with which key, and what came back."
    )
    list_display = ("call", "resource", "status", "kind", "key", "reference", "run_", "created")
    list_display_links = ("call",)
    search_fields = ("idempotency_key",)
    search_help_text = (
        "idempotency key, downstream reference, resource key (order:ORD-77 or ORD-77), "
        "action or run id (exact)"
    )
    console_views = (
        ("?state=UNKNOWN", "Unknown"),
        ("?state=NEEDS_HUMAN", "Needs a person"),
        ("?state=FAILED", "Failed"),
    )
    console_filters = (
        Filter("state", "State", lambda r, v: r.filter(state=v), lambda: _words(ActionState)),
        Filter("effect", "Effect", lambda r, v: r.filter(effect=v), lambda: _words(Effect)),
        Filter(
            "tool",
            "Tool",
            lambda rows, value: rows.filter(tool=value),
            lambda: [(spec.name, spec.name) for spec in registry.all_tools()],
        ),
        Filter("resource", "Resource", lambda r, v: r.filter(resource_key=v), hint="order:ORD-77"),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches; a resource is also found without its kind (`ORD-77`)."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if as_id := as_uuid(term):
            return queryset.filter(Q(id=as_id) | Q(run_id=as_id)), False
        return queryset.filter(
            Q(idempotency_key=term)
            | Q(downstream_ref=term)
            | Q(resource_key__in=[term, *_kinds_of(term)])
        ), False

    @admin.display(description="tool")
    def call(self, action: ActionJournal) -> str:
        return text.short(action.tool)

    @admin.display(description="state")
    def status(self, action: ActionJournal) -> SafeString:
        return chip(action.state)

    @admin.display(description="effect")
    def kind(self, action: ActionJournal) -> str:
        return "read" if action.effect == "READ" else "write"

    @admin.display(description="resource")
    def resource(self, action: ActionJournal) -> str:
        return text.short(action.resource_key or "—", 60)

    @admin.display(description="idempotency key")
    def key(self, action: ActionJournal) -> SafeString:
        key = action.idempotency_key or ""
        shown = f"{key[:9]}…{key[-6:]}" if len(key) > 16 else key or "—"
        return format_html('<code title="{}">{}</code>', key, shown)

    @admin.display(description="reference")
    def reference(self, action: ActionJournal) -> str:
        return text.short(action.downstream_ref or "—", 40)

    @admin.display(description="run")
    def run_(self, action: ActionJournal) -> SafeString:
        url = f"../run/{action.run_id}/change/"
        return format_html('<a href="{}"><code>…{}</code></a>', url, str(action.run_id)[-8:])

    @admin.display(description="proposed")
    def created(self, action: ActionJournal) -> SafeString:
        return minute(action.created_at)

    def detail(self, request: HttpRequest, found: ActionJournal) -> HttpResponse:
        """One action with its attempts and approvals."""
        context = {
            "title": f"Action: {text.short(found.tool)}",
            "view": run_presenters.action_view(action=found),
            "now": database_clock(),
        }
        return self.page(request, "console/action_detail.html", context)


def _kinds_of(term: str) -> list[str]:
    """The term with each kind of resource that is known: kinds are few, keys are many."""
    return [f"{kind}:{term}" for kind in _known_kinds()] if ":" not in term else []


def _known_kinds() -> list[str]:
    """The kinds among the newest actions, as a walk over the distinct prefixes would cost more."""
    keys = ActionJournal.objects.exclude(resource_key="").order_by("-id")
    newest = keys.values_list("resource_key", flat=True)[:2000]
    return sorted({key.partition(":")[0] for key in newest if ":" in key})[:20]
