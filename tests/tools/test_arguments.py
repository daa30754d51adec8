"""The first gate: only complete, well-formed, fitting arguments pass, in one normal form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentcore.canonical import canonical_json
from tools import Effect, Tool, ToolContext, registry, tool
from tools.invocation import InvalidArguments, invoke_tool, parse_arguments, redacted
from tools.testing import make_context
from tools.types import Money, Secret


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Line(BaseModel):
    sku: str
    count: int
    note: str | None = None


def order(  # noqa: PLR0917  (a tool is called by name)
    ctx: ToolContext,
    order_id: Annotated[str, Field(pattern="^O-[0-9]+$")],
    amount: Money,
    reason: Literal["damaged", "late"],
    lines: list[Line],
    day: date,
    size: Size = Size.SMALL,
    limit: int = 10,
    note: str | None = None,
    pin: Secret[str] | None = None,
) -> str:
    """Order."""
    kinds = (type(amount), type(lines[0]), type(day), type(size), type(limit))
    return " ".join(kind.__name__ for kind in kinds) + f" {pin.reveal() if pin else ''}"


GOOD: dict[str, Any] = {
    "order_id": "O-1",
    "amount": "80 EUR",
    "reason": "late",
    "lines": [{"sku": "a", "count": 1}],
    "day": "2026-01-02",
}


@pytest.fixture(scope="module")
def declared() -> Iterator[Tool[Any, Any]]:
    with registry.isolated():
        yield tool(effect=Effect.READ, redact=("note",), app_label="shop")(order)


def parse(declared: Tool[Any, Any], raw: str) -> dict[str, Any]:
    return parse_arguments(spec=declared.spec, raw=raw)


def refused(declared: Tool[Any, Any], raw: str) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        parse(declared, raw)
    return caught.value


def test_the_normal_form_fills_defaults_and_spells_money_once(declared: Tool[Any, Any]) -> None:
    assert parse(declared, json.dumps(GOOD)) == {
        "order_id": "O-1",
        "amount": "80.00 EUR",
        "reason": "late",
        "lines": [{"sku": "a", "count": 1, "note": None}],
        "day": "2026-01-02",
        "size": "small",
        "limit": 10,
        "note": None,
        "pin": None,
    }


@given(st.permutations(sorted(GOOD)), st.sets(st.sampled_from(["size", "limit", "note", "pin"])))
def test_key_order_spelling_and_nulls_change_nothing(
    declared: Tool[Any, Any], order_of_keys: list[str], nulls: set[str]
) -> None:
    expected = canonical_json(parse(declared, json.dumps(GOOD)))
    other = {name: GOOD[name] for name in order_of_keys} | {"amount": "80.00 EUR"}
    raw = json.dumps(other | dict.fromkeys(nulls), indent=2)
    assert canonical_json(parse(declared, raw)) == expected


def test_the_normal_form_is_stable_under_itself(declared: Tool[Any, Any]) -> None:
    once = parse(declared, json.dumps(GOOD | {"note": "cafe\u0301", "pin": "hunter2"}))
    assert once["note"] == "caf\u00e9"
    assert once["pin"] == "hunter2"
    assert parse(declared, json.dumps(once)) == once


@pytest.mark.requirement("R14", "R29")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("", "INVALID_JSON"),
        ('{"order_id": "O-1", "amo', "INVALID_JSON"),
        (json.dumps(GOOD)[:-1], "INVALID_JSON"),
        (json.dumps(GOOD) + "{}", "INVALID_JSON"),
        ("[]", "NOT_AN_OBJECT"),
        ("null", "NOT_AN_OBJECT"),
        ('"{}"', "NOT_AN_OBJECT"),
        ('{"a": 1, "a": 1}', "DUPLICATE_KEY"),
        ('{"a": {"b": 1, "b": 2}}', "DUPLICATE_KEY"),
        ('{"caf\u00e9": 1, "cafe\u0301": 2}', "NOT_CANONICAL"),
        ('{"limit": NaN}', "NOT_A_NUMBER"),
        ('{"limit": -Infinity}', "NOT_A_NUMBER"),
        ('{"limit": 1e999}', "INEXACT_NUMBER"),
        ('{"limit": 1.0}', "INEXACT_NUMBER"),
        ('{"limit": 9007199254740993}', "NOT_CANONICAL"),
        ('{"limit": ' + "9" * 5000 + "}", "INVALID_JSON"),
        ('{"note": "\\u0000"}', "NOT_CANONICAL"),
        ('{"note": "\\ud800"}', "NOT_CANONICAL"),
        ('{"note": "\ud800"}', "BAD_TEXT"),
        ('{"note": "' + "x" * 70_000 + '"}', "TOO_LARGE"),
        ("[" * 60_000, "TOO_DEEP"),
        ('{"a":' + "[" * 100 + "]" * 100 + "}", "NOT_CANONICAL"),
        ("{}", "DOES_NOT_FIT"),
    ],
    ids=range(23),
)
def test_what_is_not_one_whole_json_object_is_refused(
    declared: Tool[Any, Any], raw: str, code: str
) -> None:
    error = refused(declared, raw)
    assert error.code == code
    assert error.detail


@pytest.mark.requirement("R29")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order_id": None}, "order_id: Input should be a valid string"),
        ({"order_id": 1}, "order_id: Input should be a valid string"),
        ({"order_id": "X"}, "order_id: String should match pattern"),
        ({"amount": 80}, "amount: Input should be a valid string"),
        ({"amount": "80.001 EUR"}, "amount: 80.001 EUR has more than 2 digits"),
        ({"reason": "other"}, "reason: Input should be 'damaged' or 'late'"),
        ({"limit": "10"}, "limit: Input should be a valid integer"),
        ({"limit": True}, "limit: Input should be a valid integer"),
        ({"day": "2026-13-01"}, "day: "),
        ({"day": 1767312000}, "day: "),
        ({"lines": {}}, "lines: Input should be a valid array"),
        ({"lines": [{"sku": "a"}]}, "lines.0.count: missing"),
        ({"lines": [{"sku": "a", "count": 1, "x": 1}]}, "lines.0.x: Extra inputs"),
        ({"tenant": "other"}, "tenant: not a parameter; the parameters are: order_id, amount"),
        ({"ctx": {}}, "ctx: not a parameter"),
    ],
)
def test_the_refusal_tells_the_model_what_to_change(
    declared: Tool[Any, Any], change: dict[str, Any], told: str
) -> None:
    error = refused(declared, json.dumps(GOOD | change))
    assert error.code == "DOES_NOT_FIT"
    assert told in error.detail


def test_a_missing_parameter_is_named_and_a_value_is_never_repeated(
    declared: Tool[Any, Any],
) -> None:
    error = refused(declared, json.dumps({**GOOD, "pin": ["hunter2"], "limit": "x"}))
    assert "hunter2" not in str(error)
    many = refused(declared, json.dumps(dict.fromkeys("abcdefgh", 1)))
    assert "and 8 more" in many.detail
    assert "order_id: missing" in many.detail


def test_people_see_secrets_and_redacted_parameters_hidden(declared: Tool[Any, Any]) -> None:
    arguments = parse(declared, json.dumps(GOOD | {"note": "private", "pin": "hunter2"}))
    shown = redacted(spec=declared.spec, arguments=arguments)
    assert (shown["note"], shown["pin"]) == ("[redacted]", "[redacted]")
    assert shown["amount"] == "80.00 EUR"
    old = redacted(spec=declared.spec, arguments={"gone": "private"})
    assert old == {"gone": "[redacted]"}


def test_the_function_gets_typed_values(declared: Tool[Any, Any]) -> None:
    arguments = parse(declared, json.dumps(GOOD | {"pin": "hunter2"}))
    outcome = invoke_tool(spec=declared.spec, context=make_context(), arguments=arguments)
    assert outcome.result == "Money Line date Size int hunter2"
