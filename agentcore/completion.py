"""Is the run done? A final answer is only a signal; this is the check behind it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from agentcore.canonical import clean_text, storable
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
) -> Complete | Missing | NotMet:
    """Judge a final answer `text`.

    With an `output_model` the text must be one JSON document that validates; without one the
    output is `{"text": text}`. `open_actions` counts the actions of the run that are not
    terminal, `failed_postconditions` names the tools whose effect could not be verified.
    """
    if open_actions:
        return Missing(f"{open_actions} action(s) are not finished")
    if failed_postconditions:
        return NotMet("not verified: " + ", ".join(failed_postconditions))
    if not text.strip():
        return Missing("the final answer is empty")
    if output_model is None:
        return Complete({"text": clean_text(text)})
    return _validated(text, output_model)


def _validated(text: str, output_model: type[BaseModel]) -> Complete | Missing:
    try:
        output = output_model.model_validate_json(text).model_dump(mode="json")
        written = json.dumps(output, ensure_ascii=False, allow_nan=False)
    except ValidationError as error:
        return Missing("the final answer does not fit the output schema: " + _problems(error))
    except (ValueError, RecursionError):
        return Missing("the final answer is not JSON that can be stored")
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
