"""A function's signature -> the pydantic model and the strict JSON schema of its parameters."""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError

from agentcore.values import Found, Json, Pending
from tools.context import ToolContext
from tools.docstrings import parse_docstring
from tools.strict import Problem, is_nullable, strict_schema

FROM_CONTEXT = frozenset(
    {"tenant", "principal", "scopes", "run_id", "action_id", "attempt_id", "idempotency_key",
     "fence", "deadline", "send_by"}
)  # fmt: skip
"""Names that a model may never fill in: their values come from the trusted run."""

_CONFIG = ConfigDict(
    extra="forbid", frozen=True, validate_default=True, protected_namespaces=(), strict=True
)
_NO_SCHEMA = (
    PydanticUserError, SchemaError, NameError, TypeError, ValueError, RecursionError
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a signature says. With problems, `model` and `schema` are empty stand-ins."""

    model: type[BaseModel]
    schema: dict[str, Json]
    description: str
    described: frozenset[str]
    result_type: Any
    problems: tuple[Problem, ...]


def read_signature(function: Callable[..., Any]) -> Parameters:
    """Read a tool function. Never raises for a mistake in its declaration: see `problems`."""
    problems: list[Problem] = []
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problems.append(Problem("E003", "a tool returns one result; it does not yield"))
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as exc:
        return _broken(function, [*problems, Problem("E003", f"annotations not resolved: {exc}")])
    parameters = list(inspect.signature(function).parameters.values())
    fields, found = _fields(parameters, hints)
    problems += found
    text, about = parse_docstring(function.__doc__, fields)
    if problems:
        return _broken(function, problems)
    try:
        model = _model(function.__name__, fields)
        nullable, found = _nullable_defaults(model)
        schema, refused = strict_schema(
            model.model_json_schema(), nullable=nullable, descriptions=about
        )
    except _NO_SCHEMA as exc:
        line = str(exc).splitlines()[0]
        return _broken(function, [Problem("E008", f"no schema for the parameters: {line}")])
    described = frozenset(about) | {
        name for name, info in model.model_fields.items() if info.description
    }
    if found or refused:
        return _broken(function, [*found, *refused])
    return Parameters(model, schema, text, described, _result_type(hints.get("return", Any)), ())


def strict_parameters(
    model: type[BaseModel],
) -> tuple[dict[str, Json], tuple[Problem, ...]]:
    """The strict schema of a model that is used as it is; with problems an empty one."""
    try:
        nullable, found = _nullable_defaults(model)
        schema, refused = strict_schema(
            model.model_json_schema(), nullable=nullable, descriptions={}
        )
    except _NO_SCHEMA as exc:
        return {}, (Problem("E008", f"no schema for the input: {str(exc).splitlines()[0]}"),)
    return schema, (*found, *refused)


def _broken(function: Callable[..., Any], problems: list[Problem]) -> Parameters:
    model = create_model(f"{function.__name__}_parameters", __config__=_CONFIG)
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return Parameters(model, empty, "", frozenset(), Any, tuple(problems))


def _fields(
    parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> tuple[dict[str, tuple[Any, Any]], list[Problem]]:
    problems: list[Problem] = []
    fields: dict[str, tuple[Any, Any]] = {}
    if not parameters or (
        hints.get(parameters[0].name) is not ToolContext and parameters[0].name != "ctx"
    ):
        problems.append(Problem("E003", "the first parameter must be `ctx: ToolContext`"))
    for parameter in parameters[1:]:
        name = parameter.name
        annotation = hints.get(name)
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            problems.append(Problem("E003", f"{name}: *args and **kwargs have no schema"))
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            problems.append(Problem("E003", f"{name}: parameters are passed by name; drop the /"))
        elif annotation is None:
            problems.append(Problem("E003", f"{name}: not annotated"))
        elif name.startswith("_"):
            problems.append(Problem("E008", f"{name}: a name must not start with _"))
        elif name in FROM_CONTEXT or annotation is ToolContext:
            problems.append(Problem("E003", f"{name}: comes from the context, never from a model"))
        elif _is_open(annotation):
            problems.append(Problem("E003", f"{name}: dict, Any and object accept anything"))
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (annotation, default)
    return fields, problems


def _is_open(annotation: Any) -> bool:
    """Whether the annotation, or one inside it, allows any value or any key."""
    if typing.get_origin(annotation) is typing.Literal:
        return False
    plain = typing.get_origin(annotation) or annotation
    if plain is typing.Annotated:
        return _is_open(typing.get_args(annotation)[0])
    if any(plain is kind for kind in (Any, object, dict)):
        return True
    return any(_is_open(item) for item in typing.get_args(annotation) if item is not Ellipsis)


def _model(name: str, fields: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
    with warnings.catch_warnings():
        # A parameter called `copy` or `json` hides a method of BaseModel that nobody calls here.
        warnings.simplefilter("ignore", UserWarning)
        definitions: Any = fields
        model: type[BaseModel] = create_model(
            f"{name}_parameters", __config__=_CONFIG, **definitions
        )
    return model


def _nullable_defaults(model: type[BaseModel]) -> tuple[frozenset[str], list[Problem]]:
    """The parameters for which null means "the default", and those where it means two things."""
    names: set[str] = set()
    problems: list[Problem] = []
    nodes = model.model_json_schema().get("properties", {})
    for name, info in model.model_fields.items():
        if info.is_required() or info.default is None:
            continue
        if is_nullable(nodes.get(name, {})):
            problems.append(
                Problem("E008", f"{name}: null would mean both None and the default {info.default}")
            )
        problems += _bad_default(name, info)
        names.add(name)
    return frozenset(names), problems


def _bad_default(name: str, info: FieldInfo) -> list[Problem]:
    annotation: Any = info.annotation
    if info.metadata:
        annotation = typing.Annotated[(annotation, *info.metadata)]
    try:
        TypeAdapter(annotation).validate_python(
            info.get_default(call_default_factory=True, validated_data={})
        )
    except ValidationError as exc:
        return [Problem("E008", f"{name}: the default is not valid: {exc.errors()[0]['msg']}")]
    return []


def _result_type(annotation: Any) -> Any:
    """The declared result without the words Pending and Found, which the runtime reads itself."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        rest = [item for item in typing.get_args(annotation) if item not in {Pending, Found}]
        return typing.Union[tuple(rest)] if rest else Any  # noqa: UP007  (built from a tuple)
    return Any if annotation in {Pending, Found} else annotation
