"""Read-only pages of the runtime's rows. Every change goes through a use case, never a form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.console import lists
from runs.templatetags.console_text import moment


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """Lists and pages without any form: nobody adds, changes or deletes, superusers included."""

    actions = None
    show_full_result_count = False
    list_display_links: Any = None
    list_title = ""
    list_lead = ""
    list_csv = ""
    console_filters: tuple[lists.Filter, ...] = ()
    console_views: tuple[tuple[str, str], ...] = ()
    """Saved views of the list: a query and its name."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list: by key, without counts, and nothing to post."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        listing = lists.listing_of(request, self)
        context = {"title": self.list_title, "lead": self.list_lead, "listing": listing}
        context["csv_url"] = reverse(self.list_csv) if self.list_csv else ""
        status = 400 if listing.problem else 200
        return self.page(request, "console/list.html", context, status=status)

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

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Django's own log knows nothing of these rows: the events do."""
        raise PermissionDenied

    def prepare(self, rows: list[Any]) -> None:
        """What a page of rows needs beside them: at most one more query for all of them."""

    def detail(self, request: HttpRequest, found: Any) -> HttpResponse:
        """One row; each class has a page for it."""
        raise NotImplementedError

    def page(
        self, request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
    ) -> HttpResponse:
        """One of our templates inside the admin."""
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "is_nav_sidebar_enabled": False,
            "list_title": self.list_title,
        }
        return TemplateResponse(request, template, {**shared, **context}, status=status)


def minute(value: datetime | None) -> SafeString:
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


def as_uuid(term: str) -> UUID | None:
    """An id as REST writes it (`run_…`, `act_…`) or as the rows have it."""
    try:
        return UUID(term.rpartition("_")[2])
    except ValueError:
        return None
