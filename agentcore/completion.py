"""Is the run done? A final answer is only a signal; this is the check behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from agentcore import claims, schemas
from agentcore.canonical import clean_text, storable
from agentcore.claims import Effect
from agentcore.languages import ENGLISH, Language
from agentcore.values import Json


@dataclass(frozen=True, slots=True)
class Complete:
    """Done; `output` is a JSON object to store."""

    output: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Missing:
    """Not done, and the model may still supply what `reason` names."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotMet:
    """The system of record says otherwise; no words of the model change that."""

    reason: str


def check(
    *,
    text: str,
    output_model: type[BaseModel] | None,
    open_actions: int,
    failed_postconditions: tuple[str, ...],
    effects: Sequence[Effect] = (),
    output_schema: Mapping[str, Json] | None = None,
    languages: Sequence[Language] = (ENGLISH,),
) -> Complete | Missing | NotMet:
    """Judge a final answer `text`.

    With an `output_model` the text must be one JSON document that validates, or else one that fits
    the `output_schema`; without either the output is `{"text": text}`. `open_actions` counts the
    actions of the run that are not terminal, `failed_postconditions` names the tools whose effect
    could not be verified, `effects` the writes that the answer might claim in one of its
    `languages`.
    """
    if open_actions:
        return Missing(f"{open_actions} action(s) are not finished")
    if failed_postconditions:
        return NotMet("not verified: " + ", ".join(failed_postconditions))
    if not text.strip():
        return Missing("the final answer is empty")
    if output_model is not None:
        found = _validated(text, output_model)
    elif output_schema is not None:
        found = _fitting(text, output_schema)
    else:
        found = Complete({"text": clean_text(text)})
    return _supported(found, effects, languages)


def _supported(
    found: Complete | Missing, effects: Sequence[Effect], languages: Sequence[Language]
) -> Complete | Missing:
    """An answer that claims an effect which was not made is not delivered."""
    if isinstance(found, Missing):
        return found
    claimed = claims.unsupported(
        text=claims.statements(found.output), effects=effects, languages=languages
    )
    if not claimed:
        return found
    return Missing(
        f"the answer says that something was done, but there is no completed {', '.join(claimed)} "
        "in this run; say what was really done, what was not, and why"
    )


def _validated(text: str, output_model: type[BaseModel]) -> Complete | Missing:
    try:
        output = output_model.model_validate_json(text).model_dump(mode="json")
    except ValidationError as error:
        return Missing("the final answer does not fit the output schema: " + _problems(error))
    except (ValueError, RecursionError):
        return Missing(_NOT_JSON)
    return _stored(output)


def _fitting(text: str, schema: Mapping[str, Json]) -> Complete | Missing:
    """An answer by a frozen schema whose model is not declared like that any more."""
    try:
        output = json.loads(text)
        wrong = schemas.problems(schema=schema, value=output)
    except (ValueError, RecursionError):
        return Missing(_NOT_JSON)
    if wrong:
        return Missing("the final answer does not fit the output schema: " + wrong)
    return _stored(output)


_NOT_JSON = "the final answer is not JSON that can be stored"


def _stored(output: Json) -> Complete | Missing:
    try:
        written = json.dumps(output, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return Missing(_NOT_JSON)
    if not storable(written) or "\\u0000" in written:
        return Missing("the final answer contains NUL or lone surrogates")
    if not isinstance(output, dict):
        return Missing("the final answer is not a JSON object")
    return Complete(output)


def _problems(error: ValidationError) -> str:
    found = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'document'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)[:5]
    ]
    return clean_text("; ".join(found), 500)
