"""Reading query parameters of lists. Pages are cut by key, so no page repeats or skips a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from runs.refusals import FieldError, Refused

DEFAULT_LIMIT = 20
MAX_LIMIT = 100

Cursor = TypeVar("Cursor")


@dataclass(frozen=True, slots=True)
class Page:
    """`after` is the public id of the last item already seen."""

    limit: int
    after: str | None


def refuse_unknown(query: Any, allowed: tuple[str, ...] = ()) -> None:
    """Refuse parameters that the route does not know, and repeated ones."""
    errors = [
        FieldError(
            f"?{name}", "unknown_parameter", f"Allowed here: {', '.join(allowed) or 'none'}."
        )
        for name in query
        if name not in allowed
    ]
    errors += [
        FieldError(f"?{name}", "repeated_parameter", "Send it once.")
        for name in allowed
        if len(query.getlist(name)) > 1
    ]
    if errors:
        raise Refused(
            code="invalid_input", detail=f"{errors[0].pointer}: {errors[0].code}.", errors=errors
        )


def page_of(query: Any) -> Page:
    """`limit` (1 to 100, default 20) and `after`. Raises `Refused`."""
    refuse_unknown(query, ("after", "limit"))
    text = query.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise _invalid("?limit", "out_of_range", f"must be a number from 1 to {MAX_LIMIT}.")
    return Page(limit=int(text), after=query.get("after"))


def cursor_of(page: Page, parse: Callable[[str], Cursor | None]) -> Cursor | None:
    """The position that `after` names, or None at the start. Raises `Refused`."""
    if page.after is None:
        return None
    found = parse(page.after)
    if found is None:
        raise _invalid("?after", "unknown_cursor", "must be the `last_id` of an earlier page.")
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


def _invalid(pointer: str, code: str, detail: str) -> Refused:
    return Refused(
        code="invalid_input",
        detail=f"{pointer} {detail}",
        errors=[FieldError(pointer, code, detail)],
    )
