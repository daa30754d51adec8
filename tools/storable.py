"""What a tool returned, as JSON that PostgreSQL can store and that has a bounded size."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from agentcore.canonical import clean_text
from agentcore.values import Json

MAX_RESULT_BYTES = 256 * 1024
PREVIEW_CHARS = 2_000


class NotStorable(Exception):  # noqa: N818
    """The value is not JSON."""


class TooLarge(Exception):  # noqa: N818
    """The JSON is larger than the cap. `preview` is its beginning."""

    def __init__(self, size: int, preview: str) -> None:
        super().__init__(f"{size} bytes of JSON; at most {MAX_RESULT_BYTES} are kept")
        self.preview = preview


def one_line(value: object, *, limit: int = 300) -> str:
    """A short, storable, single-line form of any text."""
    return clean_text(" ".join(str(value).split()))[:limit]


def to_json(value: object) -> Json:
    """`value` as storable JSON of at most 256 KB, or NotStorable / TooLarge.

    Dates, UUIDs, models, Money and the like become text; a Secret is redacted; NaN and infinities
    become text, because JSON has no word for them.
    """
    try:
        plain = _clean(to_jsonable_python(value, fallback=_known_type, inf_nan_mode="constants"))
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise NotStorable(one_line(exc)) from exc
    size = len(text.encode())
    if size > MAX_RESULT_BYTES:
        raise TooLarge(size, text[:PREVIEW_CHARS])
    return plain


def dump_json(adapter: TypeAdapter[Any], value: object) -> Any:
    """A validated value as JSON by the rules of its declared type; Secrets stay hidden."""
    return adapter.dump_python(value, mode="json", fallback=_known_type)


def _known_type(value: object) -> str:
    from tools.types import Money, Secret

    if isinstance(value, Money | Secret):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _clean(value: Any) -> Json:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
