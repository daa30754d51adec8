"""Template filters of the console. None of them marks text from outside as safe."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
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


@register.simple_tag
def moment(value: datetime | None, now: datetime | None = None) -> SafeString:
    """A time: relative to `now` in words, absolute in UTC beside it or on hover."""
    if value is None:
        return format_html('<span class="none">{}</span>', "—")
    utc = value.astimezone(UTC)
    absolute = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    words = text.relative(value, now) if now is not None else absolute
    return format_html('<time datetime="{}" title="{}">{}</time>', utc.isoformat(), absolute, words)


@register.simple_tag
def span_between(start: datetime | None, end: datetime | None) -> str:
    """How long something took; empty while it has not ended."""
    return text.span(end - start) if start is not None and end is not None else ""
