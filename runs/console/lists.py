"""Lists of rows by key: newest first, never a count, never an offset.

A page of a table with a million rows costs the same as of one with ten. `?before=<id>` is the next
page; filters and the search come from the admin class. A query that would take longer than two
seconds is given up, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict

PAGE = 50
LIMIT_MS = 2000

Rows = QuerySet[Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """One way to narrow a list. Without `choices` it is a text field."""

    name: str
    label: str
    apply: Callable[[Rows, str], Rows]
    choices: Callable[[], Sequence[tuple[str, str]]] | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A filter with what was asked of it."""

    name: str
    label: str
    value: str
    choices: Sequence[tuple[str, str]] | None
    hint: str


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    is_link: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One row: its key and its cells in the order of the columns."""

    key: str
    row: Any
    cells: list[tuple[Column, Any]]


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list."""

    columns: list[Column]
    lines: list[Line]
    filters: list[Shown]
    search: str
    search_hint: str
    older: str
    newest: str
    narrowed: bool
    problem: str = ""
    query: str = ""
    views: Sequence[tuple[str, str]] = field(default_factory=tuple)


def listing_of(request: HttpRequest, admin: Any) -> Listing:
    """The page of `admin`'s list that the request asks for."""
    asked = request.GET
    problem, more = "", False
    rows: list[Any] = []
    try:
        rows, more = _read(request, admin, asked)
        admin.prepare(rows)
    except BadQuestion as error:
        problem = str(error)
    return Listing(
        columns=[column for column, _ in _columns(admin)],
        lines=[_line(admin, row) for row in rows],
        filters=_filters(admin, asked),
        search=asked.get("q", ""),
        search_hint=admin.search_help_text or "",
        older=_link(asked, before=str(rows[-1].pk)) if more else "",
        newest=_link(asked) if "before" in asked else "",
        narrowed=any(asked.get(name) for name in ("q", *(f.name for f in admin.console_filters))),
        problem=problem,
        query=_query(asked),
        views=admin.console_views,
    )


class BadQuestion(Exception):  # noqa: N818  (an answer, not a fault)
    """What is wrong with the question, for the person who asked it."""


def _read(request: HttpRequest, admin: Any, asked: QueryDict) -> tuple[list[Any], bool]:
    rows = narrowed(request, admin)
    if before := asked.get("before"):
        try:
            rows = rows.filter(pk__lt=admin.model._meta.pk.to_python(before))
        except (ValidationError, ValueError, OverflowError):
            raise BadQuestion("This is no place in the list. Start at the newest.") from None
    found = limited(rows.order_by("-pk")[: PAGE + 1])
    return found[:PAGE], len(found) > PAGE


def narrowed(request: HttpRequest, admin: Any) -> Rows:
    """The rows that fit the search and the filters of the request. Raises `BadQuestion`."""
    asked = request.GET
    rows: Rows = admin.get_queryset(request)
    if admin.list_select_related:
        rows = rows.select_related(*admin.list_select_related)
    try:
        rows, _ = admin.get_search_results(request, rows, asked.get("q", ""))
        for item in admin.console_filters:
            if value := asked.get(item.name, "").strip():
                rows = item.apply(rows, value)
    except (ValueError, ValidationError, KeyError):
        raise BadQuestion(
            "One of the filters cannot be read. Correct it and search again."
        ) from None
    return rows


def limited(rows: Rows) -> list[Any]:
    """The rows, or `BadQuestion` when reading them takes too long."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {LIMIT_MS}")
            found = list(rows)
            cursor.execute("SET LOCAL statement_timeout = DEFAULT")
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        raise BadQuestion(
            "That takes too long to find. Narrow it, for example by agent or id."
        ) from error
    return found


def _columns(admin: Any) -> list[tuple[Column, Any]]:
    links = admin.list_display_links or ()
    return [
        (Column(name, str(method.short_description), name in links), method)
        for name in admin.list_display
        if (method := getattr(admin, name))
    ]


def _line(admin: Any, row: Any) -> Line:
    cells = [(column, method(row)) for column, method in _columns(admin)]
    return Line(str(row.pk), row, cells)


def _filters(admin: Any, asked: QueryDict) -> list[Shown]:
    return [
        Shown(
            item.name,
            item.label,
            asked.get(item.name, ""),
            item.choices() if item.choices else None,
            item.hint,
        )
        for item in admin.console_filters
    ]


def _query(asked: QueryDict) -> str:
    kept = asked.copy()
    kept.pop("before", None)
    return kept.urlencode()


def _link(asked: QueryDict, **changed: str) -> str:
    kept = asked.copy()
    kept.pop("before", None)
    for name, value in changed.items():
        kept[name] = value
    return f"?{kept.urlencode()}"
