"""A signature becomes a strict schema, or a finding that says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tools import ToolContext
from tools.parameters import read_signature
from tools.types import Money, Secret


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str = Field(min_length=1, max_length=9)
    count: int
    note: str | None = None


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class WithDefault(BaseModel):
    count: int = 3


class Priced(BaseModel):
    price: float


class FreeForm(BaseModel):
    extra: dict[str, str]


class Row(TypedDict):
    a: int


@dataclass
class Point:
    x: int


def everything(  # noqa: PLR0917  (a tool is called by name)
    ctx: ToolContext,
    order_id: Annotated[str, Field(pattern="^O-[0-9]+$")],
    amount: Money,
    reason: Literal["damaged", "late"],
    lines: list[Line],
    line: Annotated[Line, Field(description="The first line.")],
    tree: Tree,
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    colour: Colour = Colour.RED,
    when: date | None = None,
    token: UUID | None = None,
    note: Secret[str] | None = None,
    limit: int = 10,
    row: Row | None = None,
    point: Point | None = None,
    tags: list[str] | None = None,
) -> None:
    """Do all of it.

    Args:
        order_id: The order,
            as the customer knows it.
        amount (Money): How much.
        nobody: Not a parameter.

    Returns:
        nothing
    """


def walk(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for item in node for found in walk(item)]
    if not isinstance(node, dict):
        return []
    return [node, *(found for item in node.values() for found in walk(item))]


def test_the_schema_is_strict_everywhere() -> None:
    read = read_signature(everything)
    assert read.problems == ()
    jsonschema.Draft202012Validator.check_schema(read.schema)
    objects = [node for node in walk(read.schema) if node.get("type") == "object"]
    assert len(objects) >= 6
    for node in objects:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    names = {key for node in walk(read.schema) for key in node}
    assert not names & {"default", "title", "oneOf", "allOf", "const", "discriminator", "minLength"}
    for node in walk(read.schema):
        if "$ref" in node:
            assert node.keys() == {"$ref"}
            assert node["$ref"].removeprefix("#/$defs/") in read.schema["$defs"]


def test_optional_is_nullable_and_the_docstring_describes() -> None:
    read = read_signature(everything)
    properties = read.schema["properties"]
    for name in ("colour", "when", "token", "note", "limit", "row", "point", "tags"):
        assert {"type": "null"} in properties[name]["anyOf"]
    assert properties["order_id"]["description"] == "The order, as the customer knows it."
    assert properties["amount"]["description"].startswith("How much. An exact amount")
    assert properties["line"]["description"] == "The first line."
    assert read.schema["$defs"]["Line"]["properties"]["sku"]["description"] == "1 to 9 characters."
    assert read.description == "Do all of it."
    assert read.described == {"order_id", "amount", "line"}


def test_a_real_call_fits_the_schema_and_a_wrong_one_does_not() -> None:
    schema = read_signature(everything).schema
    call: dict[str, Any] = dict.fromkeys(schema["properties"])
    call |= {
        "order_id": "O-1",
        "amount": "80.00 EUR",
        "reason": "late",
        "lines": [{"sku": "a", "count": 1, "note": None}],
        "line": {"sku": "a", "count": 1, "note": "x"},
        "tree": {"name": "a", "children": [{"name": "b", "children": []}]},
        "pet": {"kind": "dog"},
    }
    jsonschema.validate(call, schema)
    for wrong in ({"amount": "80,00 EUR"}, {"pet": {"kind": "cow"}}, {"more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**call, **wrong}, schema)


def bare(ctx: ToolContext, order_id) -> None: ...  # type: ignore[no-untyped-def]
def free(ctx: ToolContext, data: dict[str, str]) -> None: ...
def anything(ctx: ToolContext, data: Any) -> None: ...
def listed(ctx: ToolContext, data: list[Any]) -> None: ...
def bare_list(ctx: ToolContext, data: list) -> None: ...  # type: ignore[type-arg]
def nested_free(ctx: ToolContext, data: FreeForm) -> None: ...
def many(ctx: ToolContext, *args: int) -> None: ...
def more(ctx: ToolContext, **kwargs: int) -> None: ...
def no_context(order_id: str) -> None: ...
def empty() -> None: ...
def unresolved(ctx: ToolContext, data: NoSuchName) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def from_context(ctx: ToolContext, tenant: str) -> None: ...
def own_key(ctx: ToolContext, idempotency_key: str) -> None: ...
def yields(ctx: ToolContext) -> Any:
    yield 1


def float_money(ctx: ToolContext, amount: float) -> None: ...
def float_total(ctx: ToolContext, total_price: float | None = None) -> None: ...
def decimal_money(ctx: ToolContext, refund_amount: Decimal) -> None: ...
def nested_money(ctx: ToolContext, item: Priced) -> None: ...
def float_other(ctx: ToolContext, ratio: float) -> None: ...
def raw_bytes(ctx: ToolContext, data: bytes) -> None: ...
def pair(ctx: ToolContext, data: tuple[int, str]) -> None: ...
def some_set(ctx: ToolContext, data: set[int]) -> None: ...
def two_nulls(ctx: ToolContext, size: int | None = 5) -> None: ...
def nested_default(ctx: ToolContext, data: WithDefault) -> None: ...
def no_schema(ctx: ToolContext, data: Callable[[], int]) -> None: ...
def hidden(ctx: ToolContext, _data: int) -> None: ...
def bad_default(ctx: ToolContext, size: int = "x") -> None: ...  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("code", "functions"),
    [
        (
            "E003",
            [bare, free, anything, listed, bare_list, nested_free, many, more, no_context, empty,
             unresolved, from_context, own_key, yields],
        ),
        ("E004", [float_money, float_total, decimal_money, nested_money]),
        (
            "E008",
            [float_other, raw_bytes, pair, some_set, two_nulls, nested_default, no_schema, hidden,
             bad_default],
        ),
    ],
)  # fmt: skip
def test_what_has_no_strict_form_is_a_finding(
    code: str, functions: list[Callable[..., Any]]
) -> None:
    for function in functions:
        read = read_signature(function)
        assert {problem.code for problem in read.problems} == {code}, function.__name__
        assert all(problem.message for problem in read.problems)
        assert read.schema["properties"] == {}
