"""The first of three gates: the model's argument text -> normalized JSON that fits the schema."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from agentcore.canonical import NotCanonical, normalize_params
from agentcore.values import Json
from tools.errors import InvalidArguments
from tools.spec import ToolSpec
from tools.types import REDACTED, REVEAL

MAX_ARGUMENT_BYTES = 64 * 1024
_SHOWN_ERRORS = 5


def parse_arguments(*, spec: ToolSpec, raw: str) -> dict[str, Json]:
    """Return the normalized arguments of one call, or raise InvalidArguments.

    Normalized: text in NFC, defaults filled in, Money in its one spelling, parameters in the order
    of the signature; so two spellings of the same call give the same JSON. Secrets are revealed,
    because this is what will be executed.
    """
    value = _read(raw)
    if not isinstance(value, dict):
        raise InvalidArguments("NOT_AN_OBJECT", "the arguments must be one JSON object")
    try:
        value = normalize_params(value)
    except NotCanonical as exc:
        raise InvalidArguments("NOT_CANONICAL", f"the arguments have no exact form: {exc}") from exc
    return to_plain(_validate(spec, _with_defaults(spec, value)))


def load_params(*, spec: ToolSpec, arguments: dict[str, Json]) -> BaseModel:
    """The parameter object of stored, normalized arguments, or InvalidArguments."""
    return _validate(spec, arguments)


def to_plain(params: BaseModel) -> dict[str, Json]:
    """A parameter object as the JSON that is stored and executed."""
    plain: dict[str, Json] = json.loads(params.model_dump_json(context=REVEAL))
    return plain


def redacted(*, spec: ToolSpec, arguments: dict[str, Json]) -> dict[str, Json]:
    """The arguments as people may see them: secrets and redacted parameters are hidden."""
    try:
        shown: dict[str, Json] = json.loads(_validate(spec, arguments).model_dump_json())
    except InvalidArguments:
        shown = dict.fromkeys(arguments, REDACTED)  # of an older version: nothing is known of it
    for name in spec.redact:
        if shown.get(name) is not None:
            shown[name] = REDACTED
    return shown


def _read(raw: str) -> Any:
    try:
        size = len(raw.encode())
    except UnicodeEncodeError:
        raise InvalidArguments("BAD_TEXT", "the arguments hold half a surrogate pair") from None
    if size > MAX_ARGUMENT_BYTES:
        raise InvalidArguments(
            "TOO_LARGE",
            f"the arguments are {size} bytes; at most {MAX_ARGUMENT_BYTES} are accepted",
        )
    try:
        return json.loads(
            raw, object_pairs_hook=_object, parse_constant=_constant, parse_float=_fraction
        )
    except RecursionError:
        raise InvalidArguments("TOO_DEEP", "the arguments are nested too deeply") from None
    except ValueError as exc:
        raise InvalidArguments("INVALID_JSON", f"the arguments are not JSON: {exc}") from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidArguments("DUPLICATE_KEY", f"the key {key[:60]!r} appears twice")
        result[key] = value
    return result


def _constant(word: str) -> NoReturn:
    raise InvalidArguments("NOT_A_NUMBER", f"{word} is not JSON")


def _fraction(text: str) -> NoReturn:
    raise InvalidArguments(
        "INEXACT_NUMBER",
        f"{text[:40]}: write whole numbers without a point or exponent, and amounts as text",
    )


def _with_defaults(spec: ToolSpec, value: dict[str, Any]) -> dict[str, Any]:
    """Leave out the nulls that stand for a default (the strict schema has no optional keys)."""
    fields = spec.params_model.model_fields
    return {
        key: item
        for key, item in value.items()
        if item is not None or key not in fields or fields[key].is_required()
    }


def _validate(spec: ToolSpec, value: dict[str, Any]) -> BaseModel:
    try:
        # From JSON text, not from the dict: only so a date may be text while "1" is no integer.
        return spec.params_model.model_validate_json(json.dumps(value), extra="forbid")
    except ValidationError as exc:
        raise InvalidArguments("DOES_NOT_FIT", _explain(spec, exc)) from None


def _explain(spec: ToolSpec, exc: ValidationError) -> str:
    known = ", ".join(spec.params_model.model_fields) or "none"
    lines = []
    errors = exc.errors(include_input=False, include_url=False, include_context=False)
    for error in errors[:_SHOWN_ERRORS]:
        where = ".".join(str(part) for part in error["loc"]) or "arguments"
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            lines.append(f"{where[:60]}: not a parameter; the parameters are: {known}")
        elif error["type"] == "missing":
            lines.append(f"{where}: missing")
        else:
            lines.append(f"{where[:60]}: {error['msg'].removeprefix('Value error, ')}")
    if len(errors) > _SHOWN_ERRORS:
        lines.append(f"and {len(errors) - _SHOWN_ERRORS} more")
    return "; ".join(lines)
