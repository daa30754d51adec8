"""Checking a JSON value against a stored JSON schema, with reasons that repeat no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from agentcore.canonical import clean_text
from agentcore.values import Json

_SHOWN = 5


def problems(*, schema: Mapping[str, Json], value: Any) -> str:
    """What does not fit, each with its place; "" when all does. References outside the schema are
    not followed.
    """
    found = sorted(Draft202012Validator(dict(schema)).iter_errors(value), key=_place)
    lines = [f"{_place(error)}: {_said(error)}" for error in found[:_SHOWN]]
    return clean_text("; ".join(lines), 500)


def _place(error: ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path) or "document"


def _said(error: ValidationError) -> str:
    """The rule that is broken. The library's own message repeats the value."""
    if error.validator == "required" and isinstance(error.instance, Mapping):
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"required: {', '.join(missing)}"
    if error.validator in ("type", "enum", "const", "pattern", "format"):
        return f"{error.validator} {error.validator_value}"
    return str(error.validator)
