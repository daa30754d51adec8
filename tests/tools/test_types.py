"""Money has one spelling for one amount; a Secret shows itself only when asked by name."""

from __future__ import annotations

import copy
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tools.types import REVEAL, SCALES, Money, Secret


class Payment(BaseModel):
    amount: Money
    pin: Secret[str] | None = None


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("80.00", "EUR"), "80.00 EUR"),
        (("80.00 EUR",), "80.00 EUR"),
        (("80", "EUR"), "80.00 EUR"),
        ((80, "EUR"), "80.00 EUR"),
        (("80.5 EUR",), "80.50 EUR"),
        ((Decimal("8E1"), "EUR"), "80.00 EUR"),
        (("-0.00", "EUR"), "0.00 EUR"),
        (("1500", "JPY"), "1500 JPY"),
        (("1.234", "KWD"), "1.234 KWD"),
        (("999999999999999.99", "EUR"), "999999999999999.99 EUR"),
    ],
)
def test_money_has_one_spelling(args: tuple[Any, ...], text: str) -> None:
    assert str(Money(*args)) == text
    assert repr(Money(*args)) == f"Money('{text}')"


@pytest.mark.parametrize(
    "args",
    [
        (80.0, "EUR"),
        (True, "EUR"),
        (None, "EUR"),
        ("NaN", "EUR"),
        (Decimal("NaN"), "EUR"),
        (Decimal("Infinity"), "EUR"),
        ("8e1", "EUR"),
        ("80.001", "EUR"),
        ("80.000", "EUR"),
        ("1.5", "JPY"),
        ("080.00", "EUR"),
        ("+80.00", "EUR"),
        ("1,000.00", "EUR"),
        ("80.", "EUR"),
        (".50", "EUR"),
        ("", "EUR"),
        ("\u0668\u0660", "EUR"),
        ("80.00\n", "EUR"),
        ("80.00", "eur"),
        ("80.00", "XYZ"),
        ("80.00",),
        ("80.00  EUR",),
        ("EUR 80.00",),
        ("1" * 16, "EUR"),
    ],
)
def test_money_refuses_what_is_not_exact(args: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Money(*args)


@given(st.integers(1 - 10**15, 10**15 - 1), st.sampled_from(sorted(SCALES)))
def test_money_survives_every_round_trip(units: int, currency: str) -> None:
    money = Money.from_minor(units, currency)
    assert money.minor == units
    for again in (
        Money(str(money)),
        Money(money.amount, currency),
        pickle.loads(pickle.dumps(money)),  # noqa: S301  (our own)
    ):
        assert again == money
        assert hash(again) == hash(money)
        assert str(again) == str(money)
    assert Payment.model_validate_json(Payment(amount=money).model_dump_json()).amount == money


def test_money_is_ordered_and_added_within_a_currency() -> None:
    small, large = Money("9.00 EUR"), Money("80.00 EUR")
    assert small < large
    assert large >= Money("80.00 EUR")
    assert large > small
    assert small <= large
    assert small + large == Money("89.00 EUR")
    assert small - large == -Money("71.00 EUR")
    assert Money("80.00 EUR") != Money("80.00 USD")
    for clash in (lambda: small < Money("1.00 USD"), lambda: small + Money("1.00 USD")):
        with pytest.raises(ValueError, match="two currencies"):
            clash()
    with pytest.raises(TypeError):
        small + 1  # type: ignore[operator]
    with pytest.raises(AttributeError):
        small.amount = Decimal(1)  # type: ignore[misc]
    assert copy.deepcopy(small) == small


@pytest.mark.parametrize("raw", ['{"amount": 80.0}', '{"amount": 80}', '{"amount": "80,00 EUR"}'])
def test_a_model_field_takes_only_the_text_form(raw: str) -> None:
    with pytest.raises(ValidationError):
        Payment.model_validate_json(raw)
    assert Payment.model_validate({"amount": Money("1.00 EUR")}).amount.minor == 100


def test_a_secret_is_hidden_until_it_is_revealed() -> None:
    payment = Payment(amount=Money("1.00 EUR"), pin=Secret("hunter2"))
    assert payment.pin is not None
    assert payment.pin.reveal() == "hunter2"
    for shown in (repr(payment), str(payment.pin), f"{payment.pin:>20}", payment.model_dump_json()):
        assert "hunter2" not in shown
        assert "[redacted]" in shown
    revealed = payment.model_dump_json(context=REVEAL)
    assert json.loads(revealed)["pin"] == "hunter2"
    again = Payment.model_validate_json(revealed)
    assert again.pin == payment.pin
    assert hash(again.pin) == hash(payment.pin)
