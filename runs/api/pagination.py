"""Reading query parameters of lists. Pages are cut by key, so no page repeats or skips a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agentcore.canonical import storable
from runs.api.bodies import escape
from runs.refusals import FieldError, Refused

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
_METADATA = re.compile(r"metadata\[[^\[\]]{1,64}\]")

Cursor = TypeVar("Cursor")


@dataclass(frozen=True, slots=True)
class Page:
    """`after` is the public id of the last item already seen."""

    limit: int
    after: str | None


def refuse_unknown(query: Any, allowed: tuple[str, ...] = (), *, metadata: bool = False) -> None:
    """Refuse parameters that the route does not know, repeated ones, and what cannot be stored."""
    shown = ", ".join((*allowed, "metadata[key]") if metadata else allowed) or "none"
    errors = [
        FieldError(f"?{escape(name)[:80]}", "unknown_parameter", f"Allowed here: {shown}.")
        for name in query
        if name not in allowed and not (metadata and _METADATA.fullmatch(name))
    ]
    errors += [
        FieldError(f"?{escape(name)[:80]}", "repeated_parameter", "Send it once.")
        for name in query
        if len(query.getlist(name)) > 1
    ]
    errors += [
        FieldError(f"?{escape(name)[:80]}", "not_text", "NUL characters are not allowed.")
        for name in query
        if not storable("".join([name, *query.getlist(name)]))
    ]
    if errors:
        raise Refused(
            code="invalid_input", detail=f"{errors[0].pointer}: {errors[0].code}.", errors=errors
        )


def page_of(query: Any, more: tuple[str, ...] = (), *, metadata: bool = False) -> Page:
    """`limit` (1 to 100, default 20) and `after`, beside the parameters `more`. Raises `Refused`.

    `metadata`: parameters of the form `metadata[key]` are allowed, too.
    """
    refuse_unknown(query, ("after", "limit", *more), metadata=metadata)
    text = query.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise invalid_query("limit", "out_of_range", f"must be a number from 1 to {MAX_LIMIT}.")
    return Page(limit=int(text), after=query.get("after"))


def cursor_of(page: Page, parse: Callable[[str], Cursor | None]) -> Cursor | None:
    """The position that `after` names, or None at the start. Raises `Refused`."""
    if page.after is None:
        return None
    found = parse(page.after)
    if found is None:
        raise invalid_query("after", "unknown_cursor", "must be the `last_id` of an earlier page.")
    return found


def list_json(data: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """The list shape of the API around rendered items."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def invalid_query(name: str, code: str, detail: str) -> Refused:
    """`invalid_input` for one query parameter."""
    pointer = f"?{name}"
    return Refused(
        code="invalid_input",
        detail=f"{pointer} {detail}",
        errors=[FieldError(pointer, code, detail)],
    )
