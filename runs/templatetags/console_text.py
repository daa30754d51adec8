"""Template filters of the console. None of them marks text from outside as safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.console import text

register = template.Library()

register.filter("visible", text.visible)
register.filter("capped", text.capped)
register.filter("short", text.short)
register.filter("json_text", text.json_text)
register.filter("goal", text.goal)


@register.filter
def words(value: object) -> str:
    """`WRITE_IRREVERSIBLE` -> `write irreversible`."""
    return text.visible(str(value).replace("_", " ").lower())


@register.filter
def slice_end(value: object) -> str:
    """The last eight characters of an id: what tells neighbours apart."""
    return str(value)[-8:]


@register.simple_tag
def chip(state: object) -> SafeString:
    """A state as a labelled chip: shape, words and colour."""
    shown = text.chip(state)
    return format_html(
        '<span class="chip chip-{}">'
        '<span class="chip-shape" aria-hidden="true">{}</span> {}</span>',
        shown.kind,
        shown.shape,
        text.visible(shown.words),
    )


_EXACT = '<time datetime="{}" title="{}">{}</time>'
_RELATIVE = '<time datetime="{}" title="{}" data-relative>{}</time>'


@register.simple_tag
def moment(value: datetime | None, now: datetime | None = None) -> SafeString:
    """A time: relative to `now` in words, absolute in UTC beside it or on hover."""
    if value is None:
        return format_html('<span class="none">{}</span>', "—")
    utc = value.astimezone(UTC)
    absolute = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    if now is None:
        return format_html(_EXACT, utc.isoformat(), absolute, absolute)
    return format_html(_RELATIVE, utc.isoformat(), absolute, text.relative(value, now))


@register.simple_tag
def span_between(start: datetime | None, end: datetime | None) -> str:
    """How long something took; empty while it has not ended."""
    return text.span(end - start) if start is not None and end is not None else ""


register.filter("money", text.money)


@register.filter
def unlocalized(value: object) -> str:
    """A number for an attribute: no thousands separator, whatever the locale."""
    return str(value)


@register.filter
def plain(value: object) -> str:
    """Any column of a row as text: JSON as JSON."""
    return text.json_text(value) if isinstance(value, dict | list) else str(value)


@dataclass(frozen=True, slots=True)
class Steps:
    """A rising line as an SVG path, and the height of its limit, when that is in the picture."""

    path: str
    limit_y: int | None


@register.simple_tag
def cost_steps(lines: Sequence[tuple[object, int]], limit: int | None) -> Steps:
    """The sums so far as steps in a box of 640 by 160."""
    most = max([1, *(total for _, total in lines), limit or 0])
    points = ["M 0 158"]
    for index, (_, total) in enumerate(lines):
        x, y = 640 * (index + 1) // len(lines), 158 - 150 * total // most
        points.append(f"V {y} H {x}")
    return Steps(" ".join(points), None if limit is None else 158 - 150 * limit // most)


NAV = (
    ("Home", "admin:index", ""),
    ("Review", "review:queue", "approvals.view_approval approvals.decide_approval"),
    ("Unknown", "unknown:board", "runs.view_actionjournal runs.reconcile_action"),
    ("Stuck", "console:stuck", "runs.view_run"),
    ("Runs", "admin:runs_run_changelist", "runs.view_run"),
    ("Actions", "admin:runs_actionjournal_changelist", "runs.view_actionjournal"),
    ("Approvals", "admin:approvals_approval_changelist", "approvals.view_approval"),
    ("Agents", "console:agents", "runs.view_run"),
    ("Tools", "console:tools", "runs.view_run"),
    ("Policy", "console:policy", "runs.view_run"),
    ("Events", "admin:runs_event_changelist", "runs.view_event"),
    ("Workers", "console:workers", "runs.view_run"),
)
"""Label, URL name, and the permissions of which one is enough."""


@register.simple_tag(takes_context=True)
def console_nav(context: template.Context) -> list[tuple[str, str]]:
    """The pages that this person may open, as (address, label)."""
    user = context["request"].user
    return [
        (reverse(name), label)
        for label, name, wanted in NAV
        if not wanted or any(user.has_perm(one) for one in wanted.split())
    ]
