"""Reading a request body: JSON within limits, and only text that PostgreSQL can store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from agentcore.values import Json
from runs.refusals import FieldError, Refused

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 7493)."""


class JsonBodyParser(BaseParser):
    """`application/json` in UTF-8, at most 1 MB, 32 levels deep, without repeated member names."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,  # noqa: ARG002
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Json:
        raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise Refused(
                code="body_too_large",
                detail=f"The body is larger than {MAX_BYTES} bytes. Send less, or a reference.",
            )
        return read_json(raw)


def read_json(raw: bytes) -> Json:
    """The value in `raw`. Raises `Refused` (malformed_json, or invalid_input with pointers)."""
    try:
        value = json.loads(
            raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique_members
        )
    except RecursionError:
        raise _too_deep("") from None
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        raise _malformed(str(error)) from None
    errors = list(faults(value))
    if errors:
        raise Refused(code="invalid_input", detail=errors[0].detail, errors=errors[:20])
    return value


def faults(value: Json) -> Iterator[FieldError]:
    """Everything in `value` that could not be stored or compared exactly, with its pointer."""
    stack: list[tuple[str, Json, int]] = [("", value, 1)]
    while stack:
        pointer, item, depth = stack.pop()
        if isinstance(item, dict | list):
            if depth > MAX_DEPTH:
                raise _too_deep(pointer)
            pairs = item.items() if isinstance(item, dict) else enumerate(item)
            for name, child in pairs:
                below = f"{pointer}/{escape(str(name))}"
                if isinstance(name, str):
                    yield from _text_faults(pointer, name)
                stack.append((below, child, depth + 1))
        elif isinstance(item, str):
            yield from _text_faults(pointer, item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield from _number_faults(pointer, item)


def escape(name: str) -> str:
    """`name` as one token of a JSON pointer, with what cannot be printed replaced."""
    safe = name.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return safe.replace("~", "~0").replace("/", "~1")


def _text_faults(pointer: str, text: str) -> Iterator[FieldError]:
    if "\x00" in text:
        yield FieldError(
            pointer, "nul_character", "The text holds a NUL character (\\u0000). Remove it."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        yield FieldError(
            pointer,
            "lone_surrogate",
            "The text holds half of a surrogate pair (\\ud800 to \\udfff). Send the whole "
            "character or remove it.",
        )


def _number_faults(pointer: str, number: float) -> Iterator[FieldError]:
    if isinstance(number, int):
        if abs(number) > MAX_INTEGER:
            yield FieldError(
                pointer,
                "number_too_large",
                "Integers beyond 2^53 - 1 are not exact in JSON. Send the number as a string.",
            )
    elif not math.isfinite(number):
        yield FieldError(
            pointer, "not_finite", "The number is too large for JSON. Send it as a string."
        )


def _unique_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member {twice[:60]!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON; leave the value out or send null")


def _malformed(why: str) -> Refused:
    return Refused(code="malformed_json", detail=f"The body is not valid JSON: {why}.")


def _too_deep(pointer: str) -> Refused:
    detail = f"The body is nested deeper than {MAX_DEPTH} levels. Flatten it."
    return Refused(
        code="invalid_input", detail=detail, errors=[FieldError(pointer, "too_deep", detail)]
    )
