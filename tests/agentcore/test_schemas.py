"""A stored schema judges a value, and its reasons repeat nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from agentcore.completion import Complete, Missing, check
from agentcore.schemas import problems


class Line(BaseModel):
    name: str = Field(pattern="^[a-z]+$")
    rate: float = Field(0.5, le=1.5)


class Order(BaseModel):
    number: int
    lines: list[Line]


SCHEMA = Order.model_json_schema()
GOOD = {"number": 1, "lines": [{"name": "abc"}]}


@pytest.mark.requirement("R76")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (GOOD, ""),
        ({"lines": []}, "document: required: number"),
        ({**GOOD, "number": "s3cret"}, "number: type integer"),
        ({**GOOD, "lines": [{"name": "S3cret"}]}, "lines.0.name: pattern ^[a-z]+$"),
        ({**GOOD, "lines": [{"name": "a", "rate": 99.25}]}, "lines.0.rate: maximum"),
        ([7], "document: type object"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place_and_rule(value: Any, said: str) -> None:
    assert problems(schema=SCHEMA, value=value) == said


def judge(text: str) -> Any:
    return check(
        text=text,
        output_model=None,
        output_schema=SCHEMA,
        open_actions=0,
        failed_postconditions=(),
    )


@pytest.mark.requirement("R76")
@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "{}",
        '{"number": 1, "lines": [], "x": NaN}',
        '{"number": 1, "lines": [], "x": "\\u0000"}',
        '{"number": 1, "lines": [], "x": "\\ud800"}',
        "[" * 100_000,
    ],
)
def test_an_answer_that_does_not_fit_the_frozen_schema_is_missing_something(text: str) -> None:
    assert isinstance(judge(text), Missing)


def test_one_that_fits_completes_with_exactly_what_was_said() -> None:
    assert judge('{"number": 1, "lines": [{"name": "abc"}]}') == Complete(GOOD)
