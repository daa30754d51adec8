"""The lists of what was asked, what contradicts, what happened, and what was told to others."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentcore.lifecycle import ApprovalState
from approvals.models import Approval, ApprovalVote
from runs.console import presenters, text
from runs.console.lists import Filter, Rows
from runs.console.readonly import ReadOnlyAdmin, as_uuid, minute
from runs.models import BulkOperation, Event, Incident, WebhookDelivery
from runs.templatetags.console_text import chip


def _states(values: Any) -> list[tuple[str, str]]:
    return [(str(value), str(value).replace("_", " ").lower()) for value in values]


def _four_eyes(rows: Rows, value: str) -> Rows:
    """Decisions that a second pair of eyes may want to see again."""
    if value == "own":  # must never give a row
        mine = ApprovalVote.objects.filter(
            approval_id=OuterRef("pk"), voter=F("approval__requester")
        )
        return rows.filter(Exists(mine))
    if value == "fast":
        return rows.filter(decided_at__isnull=False, decided_at__lt=F("created_at") + _seconds(5))
    return rows.filter(required_count__gte=2)


def _seconds(number: int) -> Any:
    from datetime import timedelta

    return timedelta(seconds=number)


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Every question ever asked, with what was answered."""

    list_title = "Approvals"
    list_csv = "console:approvals_csv"
    list_lead = "Every question ever asked, who answered it, and how long that took."
    list_display = (
        "subject", "status", "by", "took", "role_", "requester_", "hash_", "checked", "created",
    )  # fmt: skip
    list_display_links = ("subject",)
    search_help_text = "approval, action or run id, hash, resource key, requester (exact)"
    console_views = (
        ("?four=own", "Decided by its requester (must be empty)"),
        ("?four=fast", "Decided within 5 s"),
        ("?four=two", "Asks for two"),
    )
    console_filters = (
        Filter("state", "State", lambda r, v: r.filter(state=v), lambda: _states(ApprovalState)),
        Filter("tool", "Tool", lambda rows, value: rows.filter(tool=value)),
        Filter(
            "voter",
            "Decided by",
            lambda rows, v: rows.filter(
                Exists(ApprovalVote.objects.filter(approval_id=OuterRef("pk"), voter=v))
            ),
            hint="user:olga",
        ),
        Filter(
            "four",
            "Four eyes",
            _four_eyes,
            lambda: [("own", "own request"), ("fast", "within 5 s"), ("two", "asks for two")],
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return Approval.objects.prefetch_related("votes")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if as_id := as_uuid(term):
            return queryset.filter(Q(id=as_id) | Q(action_id=as_id) | Q(run_id=as_id)), False
        found = Q(resource_key=term) | Q(requester=term)
        return queryset.filter(found | Q(params_hash=term.removeprefix("sha256:"))), False

    @admin.display(description="action")
    def subject(self, approval: Approval) -> str:
        return presenters.subject_of(approval)

    @admin.display(description="state")
    def status(self, approval: Approval) -> SafeString:
        return chip(approval.state)

    @admin.display(description="decided by")
    def by(self, approval: Approval) -> str:
        said = [f"{vote.voter} {vote.decision.lower()}" for vote in approval.votes.all()]
        return text.short(", ".join(said) or "—")

    @admin.display(description="took")
    def took(self, approval: Approval) -> str:
        if approval.decided_at is None:
            return "—"
        return text.span(approval.decided_at - approval.created_at)

    @admin.display(description="role")
    def role_(self, approval: Approval) -> str:
        return text.short(approval.role or "—")

    @admin.display(description="requested by")
    def requester_(self, approval: Approval) -> str:
        return text.short(approval.requester, 40)

    @admin.display(description="hash")
    def hash_(self, approval: Approval) -> SafeString:
        return format_html(
            '<code title="sha256:{}">{}…</code>', approval.params_hash, approval.params_hash[:8]
        )

    @admin.display(description="at execution")
    def checked(self, approval: Approval) -> str:
        return validation_words(approval)

    @admin.display(description="asked")
    def created(self, approval: Approval) -> SafeString:
        return minute(approval.created_at)

    def detail(self, request: HttpRequest, found: Approval) -> HttpResponse:
        """One page shows a question, open or decided."""
        return redirect("review:item", approval_id=found.pk)


def validation_words(approval: Approval) -> str:
    """What the check in the start transaction came to: `—` while there was none."""
    stored = approval.validation
    if not isinstance(stored, dict):
        return "—"
    word = str(stored.get("reason") or "refused").replace("_", " ").lower()
    return "ok" if stored.get("ok") else text.short(word)


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin):
    """Evidence that contradicts what was recorded."""

    list_title = "Incidents"
    list_lead = "Evidence that contradicts what was recorded. An incident changes no state."
    list_display = ("kind_", "what", "created")
    list_display_links = ("kind_",)
    console_filters = (Filter("kind", "Kind", lambda rows, value: rows.filter(kind=value)),)

    @admin.display(description="kind")
    def kind_(self, incident: Incident) -> str:
        return text.short(incident.kind)

    @admin.display(description="detail")
    def what(self, incident: Incident) -> str:
        return text.short(incident.detail, 120)

    @admin.display(description="seen")
    def created(self, incident: Incident) -> SafeString:
        return minute(incident.created_at)

    def detail(self, request: HttpRequest, found: Incident) -> HttpResponse:
        """An incident is read on the page of its run."""
        return redirect("admin:runs_run_change", found.run_id)


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """What happened, over all runs: the audit log."""

    list_title = "Events"
    list_lead = "What happened, in the order it was written. The rows are chained by a hash."
    list_display = ("type_", "seq_", "actor_", "what", "run_", "hash_", "created")
    list_display_links = ("type_",)
    search_help_text = "run id (exact)"
    console_filters = (
        Filter("type", "Type", lambda r, v: r.filter(type=v), hint="run.cancelling"),
        Filter("actor", "Actor", lambda r, v: r.filter(actor=v), hint="user:olga"),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        as_id = as_uuid(term)
        return queryset.filter(run_id=as_id) if as_id else queryset.none(), False

    @admin.display(description="type")
    def type_(self, event: Event) -> str:
        return text.short(event.type)

    @admin.display(description="number")
    def seq_(self, event: Event) -> str:
        return str(event.seq)

    @admin.display(description="actor")
    def actor_(self, event: Event) -> str:
        return text.short(event.actor, 40)

    @admin.display(description="moves")
    def what(self, event: Event) -> str:
        data = event.data if isinstance(event.data, dict) else {}
        moves = [m for m in data.get("transitions", []) if isinstance(m, dict)]
        said = [f"{m.get('object')} → {m.get('to')}" for m in moves] or [
            str(data.get("command", ""))
        ]
        return text.short(", ".join(said) or "—", 100)

    @admin.display(description="run")
    def run_(self, event: Event) -> SafeString:
        return format_html("<code>…{}</code>", str(event.run_id)[-8:])

    @admin.display(description="hash")
    def hash_(self, event: Event) -> SafeString:
        return format_html('<code title="{}">{}…</code>', event.hash, event.hash[:8])

    @admin.display(description="at")
    def created(self, event: Event) -> SafeString:
        return minute(event.created_at)

    def detail(self, request: HttpRequest, found: Event) -> HttpResponse:
        """An event is read in the timeline of its run."""
        return redirect(f"/admin/runs/run/{found.run_id}/change/?tab=timeline#event-{found.seq}")


@admin.register(WebhookDelivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """What was told to others, and whether they took it."""

    list_title = "Webhook deliveries"
    list_display = ("type_", "status_", "tries_", "answer", "run_", "created")
    list_display_links = ("type_",)
    console_views = (("?status=DEAD", "Given up"), ("?status=PENDING", "Waiting"))
    console_filters = (
        Filter(
            "status",
            "Status",
            lambda rows, value: rows.filter(status=value),
            lambda: _states(("PENDING", "DELIVERED", "DEAD")),
        ),
    )

    @admin.display(description="event")
    def type_(self, row: WebhookDelivery) -> str:
        return text.short(row.type)

    @admin.display(description="status")
    def status_(self, row: WebhookDelivery) -> SafeString:
        return chip(row.status)

    @admin.display(description="tries")
    def tries_(self, row: WebhookDelivery) -> str:
        return str(row.tries)

    @admin.display(description="last answer")
    def answer(self, row: WebhookDelivery) -> str:
        return text.short(
            " ".join(filter(None, (str(row.last_status or ""), row.last_error))) or "—"
        )

    @admin.display(description="run")
    def run_(self, row: WebhookDelivery) -> SafeString:
        return format_html("<code>…{}</code>", str(row.run_id)[-8:])

    @admin.display(description="made")
    def created(self, row: WebhookDelivery) -> SafeString:
        return minute(row.created_at)

    def detail(self, request: HttpRequest, found: WebhookDelivery) -> HttpResponse:
        return redirect("admin:runs_run_change", found.run_id)


@admin.register(BulkOperation)
class BulkAdmin(ReadOnlyAdmin):
    """One verb for many runs: made and started over REST, read here."""

    list_title = "Bulk operations"
    list_lead = "One verb for a frozen set of runs. They are made and started over REST."
    list_display = ("verb_", "status_", "total_", "reason_", "by", "created")
    list_display_links = ("verb_",)

    @admin.display(description="verb")
    def verb_(self, row: BulkOperation) -> str:
        return text.short(row.verb)

    @admin.display(description="status")
    def status_(self, row: BulkOperation) -> SafeString:
        return chip(row.status)

    @admin.display(description="runs")
    def total_(self, row: BulkOperation) -> str:
        return str(row.total)

    @admin.display(description="reason")
    def reason_(self, row: BulkOperation) -> str:
        return text.short(row.reason or "—")

    @admin.display(description="made by")
    def by(self, row: BulkOperation) -> str:
        return text.short(row.created_by)

    @admin.display(description="made")
    def created(self, row: BulkOperation) -> SafeString:
        return minute(row.created_at)

    def detail(self, request: HttpRequest, found: BulkOperation) -> HttpResponse:
        """The operation with the outcome of each run."""
        items = list(found.items.order_by("ordinal")[:500])
        context = {"title": f"Bulk {text.short(found.verb)}", "operation": found, "items": items}
        return self.page(request, "console/bulk_detail.html", context)
