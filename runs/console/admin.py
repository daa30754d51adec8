"""Read-only pages of the runtime's rows. Every change goes through a use case, never a form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.models import Approval
from runs.console import presenters, text
from runs.console.paging import CappedPaginator
from runs.models import ActionJournal, Incident, Run
from runs.selectors import database_clock
from runs.templatetags.console_text import chip, moment


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """Lists and pages without any form: nobody adds, changes or deletes, superusers included."""

    actions = None
    change_list_template = "console/change_list.html"
    list_display_links: Any = None
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CappedPaginator
    list_per_page = 50
    ordering = ("-id",)
    list_title = ""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, without the sidebar and with a plain title."""
        extra = {"title": self.list_title, "is_nav_sidebar_enabled": False}
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The detail page; anything but reading is refused."""
        found = self.get_object(request, object_id) if object_id else None
        if request.method not in ("GET", "HEAD") or object_id is None:
            raise PermissionDenied
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        if found is None:
            raise Http404(f"There is no such {self.opts.verbose_name}.")
        return self.detail(request, found)

    def detail(self, request: HttpRequest, found: Any) -> HttpResponse:
        """One row; Django's own read-only form unless a class has a page for it."""
        return super().changeform_view(request, str(found.pk))

    def page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        """One of our templates inside the admin."""
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "is_nav_sidebar_enabled": False,
            "list_title": self.list_title,
        }
        return TemplateResponse(request, template, {**shared, **context})


def _time(value: datetime | None) -> SafeString:
    """To the minute; to the second on hover. UTC."""
    if value is None:
        return moment(None)
    utc = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} {}</time>',
        utc.isoformat(),
        f"{utc:%Y-%m-%d %H:%M:%S}",
        f"{utc:%b} {utc.day}",
        f"{utc:%H:%M}",
    )


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs: what was asked, where it stands, what it waits for."""

    list_title = "Runs"
    list_display = ("goal", "status", "agent", "principal_", "turns", "used", "why", "created")
    list_display_links = ("goal",)
    list_filter = ("state", "stop_reason")
    list_select_related = ("agent_version",)
    search_fields = ("id",)
    search_help_text = "run id, dedupe key or requester (exact)"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only: a substring search would read the whole table."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if as_id := _uuid(term):
            return queryset.filter(id=as_id), False
        return queryset.filter(Q(dedupe_key=term) | Q(principal=term)), False

    @admin.display(description="goal")
    def goal(self, run: Run) -> str:
        return text.short(text.goal(run.input), 60) or str(run.pk)

    @admin.display(description="state", ordering="state")
    def status(self, run: Run) -> SafeString:
        return chip(run.state)

    @admin.display(description="agent")
    def agent(self, run: Run) -> str:
        return text.visible(run.agent_version)

    @admin.display(description="requested by")
    def principal_(self, run: Run) -> str:
        return text.short(run.principal)

    @admin.display(description="turns")
    def turns(self, run: Run) -> str:
        return f"{run.turn}/{run.max_turns}"

    @admin.display(description="actions")
    def used(self, run: Run) -> str:
        return f"{run.actions_used}/{run.max_actions}"

    @admin.display(description="reason")
    def why(self, run: Run) -> str:
        return text.short(" · ".join(filter(None, (run.stop_reason, run.reason))) or "—")

    @admin.display(description="started", ordering="id")
    def created(self, run: Run) -> SafeString:
        return _time(run.created_at)

    def detail(self, request: HttpRequest, found: Run) -> HttpResponse:
        """Overview, timeline, turns, actions and approvals of one run."""
        page = presenters.run_page(run=found)
        title = f"Run: {text.short(text.goal(found.input), 60)}"
        return self.page(request, "console/run_detail.html", {"title": title, "page": page})


@admin.register(ActionJournal)
class ActionAdmin(ReadOnlyAdmin):
    """Actions of all runs: what did we do to this resource, and with which key?"""

    list_title = "Actions"
    list_display = ("call", "resource", "status", "key", "reference", "run_", "created")
    list_display_links = ("call",)
    list_filter = ("state", "effect")
    search_fields = ("idempotency_key",)
    search_help_text = (
        "idempotency key, downstream reference, resource key (order:ORD-77 or ORD-77), "
        "action or run id (exact)"
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches; a resource is also found without its kind (`ORD-77`)."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if as_id := _uuid(term):
            return queryset.filter(Q(id=as_id) | Q(run_id=as_id)), False
        return queryset.filter(
            Q(idempotency_key=term)
            | Q(downstream_ref=term)
            | Q(resource_key=term)
            | Q(resource_key__endswith=f":{term}")
        ), False

    @admin.display(description="tool", ordering="tool")
    def call(self, action: ActionJournal) -> str:
        return text.short(action.tool)

    @admin.display(description="state", ordering="state")
    def status(self, action: ActionJournal) -> SafeString:
        return chip(action.state)

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

    @admin.display(description="proposed", ordering="id")
    def created(self, action: ActionJournal) -> SafeString:
        return _time(action.created_at)

    def detail(self, request: HttpRequest, found: ActionJournal) -> HttpResponse:
        """One action with its attempts and approvals."""
        context = {
            "title": f"Action: {text.short(found.tool)}",
            "view": presenters.action_view(action=found),
            "now": database_clock(),
        }
        return self.page(request, "console/action_detail.html", context)


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Every question ever asked, with what was answered."""

    list_title = "Approvals"
    list_display = ("subject", "status", "role_", "requester_", "decided", "expires", "created")
    list_display_links = ("subject",)
    list_filter = ("state",)

    @admin.display(description="action")
    def subject(self, approval: Approval) -> str:
        return presenters.subject_of(approval)

    @admin.display(description="state", ordering="state")
    def status(self, approval: Approval) -> SafeString:
        return chip(approval.state)

    @admin.display(description="role")
    def role_(self, approval: Approval) -> str:
        return text.short(approval.role or "—")

    @admin.display(description="requested by")
    def requester_(self, approval: Approval) -> str:
        return text.short(approval.requester)

    @admin.display(description="decided")
    def decided(self, approval: Approval) -> SafeString:
        return _time(approval.decided_at)

    @admin.display(description="expires")
    def expires(self, approval: Approval) -> SafeString:
        return _time(approval.expires_at)

    @admin.display(description="asked", ordering="id")
    def created(self, approval: Approval) -> SafeString:
        return _time(approval.created_at)

    def detail(self, request: HttpRequest, found: Approval) -> HttpResponse:
        """One page shows a question, open or decided."""
        return redirect("review:item", approval_id=found.pk)


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin):
    """Evidence that contradicts what was recorded."""

    list_title = "Incidents"
    list_display = ("kind_", "what", "created")
    list_display_links = ("kind_",)

    @admin.display(description="kind")
    def kind_(self, incident: Incident) -> str:
        return text.short(incident.kind)

    @admin.display(description="detail")
    def what(self, incident: Incident) -> str:
        return text.short(incident.detail, 120)

    @admin.display(description="seen", ordering="id")
    def created(self, incident: Incident) -> SafeString:
        return _time(incident.created_at)

    def detail(self, request: HttpRequest, found: Incident) -> HttpResponse:
        """An incident is read on the page of its run."""
        return redirect("admin:runs_run_change", found.run_id)


def _uuid(term: str) -> UUID | None:
    try:
        return UUID(term)
    except ValueError:
        return None
