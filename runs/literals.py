"""Values as SQL text. There are about 700 of them in a run of five turns, a twelfth of its Python:
psycopg takes three times as long for the commonest kinds, which have a way of their own here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from types import NoneType
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.types.json import Jsonb


def literals(conn: psycopg.Connection[Any], values: Sequence[Any]) -> list[str]:
    """One text a value, each for a place whose type is known. Raises psycopg's errors."""
    quote = Transformer.from_context(conn).as_literal
    return [_WAYS.get(type(value), _other)(value) or quote(value).decode() for value in values]


def _text(value: str) -> str:
    """ "" where something has to be escaped."""
    if "'" in value or "\\" in value or "\0" in value:
        return ""
    return f"'{value}'"


def _json(value: Jsonb) -> str:
    return _text(json.dumps(value.obj)) if value.dumps is None else ""


def _other(value: Any) -> str:
    """Members of an enumeration of texts, such as states."""
    return _text(str.__str__(value)) if isinstance(value, str) else ""


def _time(value: datetime) -> str:
    return f"'{value}'" if value.tzinfo is not None else ""


_WAYS: dict[type, Callable[[Any], str]] = {
    NoneType: lambda _: "NULL",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    str: _text,
    UUID: lambda value: f"'{value.hex}'",
    Jsonb: _json,
    datetime: _time,
}
