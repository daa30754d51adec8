"""Prices, costs and accounts: exact, whatever the order."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.budgets import (
    MAX_OUTPUT,
    Budget,
    Limits,
    dollars,
    input_tokens,
    micros,
    output_room,
)
from agentcore.ledger import Account, Price, Spend, cost, price_of, reservation, spend_of
from agentcore.prices import DEFAULT_PRICES
from agentcore.values import Usage

PRICE = Price("m", date(2026, 1, 1), 2_000_000, 500_000, 8_000_000)
TABLE = (
    PRICE,
    Price("m", date(2026, 6, 1), 1_000_000, 250_000, 4_000_000),
    Price("m-mini", date(2026, 1, 1), 100, 10, 400),
)


@pytest.mark.requirement("R67")
@pytest.mark.parametrize(
    ("model", "on", "since"),
    [
        ("m", date(2026, 1, 1), date(2026, 1, 1)),
        ("m", date(2026, 5, 31), date(2026, 1, 1)),
        ("m", date(2026, 6, 1), date(2026, 6, 1)),
        ("m-2026-03-01", date(2026, 7, 1), date(2026, 6, 1)),
        ("m-mini-2026-03-01", date(2026, 7, 1), date(2026, 1, 1)),
    ],
)
def test_the_price_of_a_model_on_a_day(model: str, on: date, since: date) -> None:
    found = price_of(model=model, on=on, prices=TABLE)
    assert found is not None
    assert found.since == since


@pytest.mark.parametrize(
    ("model", "on"),
    [("m", date(2025, 12, 31)), ("x", date(2026, 7, 1)), ("m-max", date(2027, 1, 1))],
)
def test_no_price_is_no_price(model: str, on: date) -> None:
    assert price_of(model=model, on=on, prices=TABLE) is None


def test_the_price_list_is_in_millionths_of_a_dollar_for_a_million() -> None:
    price = price_of(model="gpt-5.2", on=date(2026, 9, 1), prices=DEFAULT_PRICES)
    assert cost(input=1_000_000, cached=0, output=0, price=price) == 1_750_000


def test_cached_tokens_are_part_of_the_input_and_cheaper() -> None:
    assert cost(input=1000, cached=0, output=0, price=PRICE) == 2000
    assert cost(input=1000, cached=400, output=0, price=PRICE) == 1200 + 200
    assert cost(input=1000, cached=9999, output=0, price=PRICE) == 500
    assert cost(input=1, cached=0, output=1, price=PRICE) == 10
    assert cost(input=1, cached=1, output=0, price=Price("m", PRICE.since, 1, 1, 1)) == 1
    assert cost(input=5, cached=0, output=5, price=None) == 0


def test_a_spend_is_what_the_provider_counted() -> None:
    usage = Usage(input_tokens=100, cached_tokens=40, output_tokens=10, reasoning_tokens=4)
    assert spend_of(usage=usage, price=PRICE) == Spend(100, 40, 10, 120 + 20 + 80)
    assert spend_of(usage=usage, price=PRICE).tokens == 110


@pytest.mark.requirement("R68")
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=9))
def test_what_is_settled_is_no_longer_held(calls: list[tuple[int, int, int]]) -> None:
    account = Account()
    reserves = [reservation(input=a, output=b, price=PRICE) for a, b, _ in calls]
    for spend in reserves:
        account = account.reserve(spend)
    for spend, (_, _, used) in zip(reserves, calls, strict=True):
        account = account.settle(reserved=spend, actual=Spend(used, 0, 0, used))
    total = sum(used for _, _, used in calls)
    assert account == Account(total, 0, total, 0)


@pytest.mark.requirement("R68")
def test_a_correction_replaces_the_estimate() -> None:
    held = reservation(input=100, output=100, price=PRICE)
    account = Account().reserve(held).settle(reserved=held, actual=held)
    actual = Spend(10, 0, 10, 100)
    assert account.correct(actual - held) == Account(20, 0, 100, 0)


@pytest.mark.requirement("R67")
@given(
    tokens=st.none() | st.integers(0, 60_000),
    money=st.none() | st.integers(0, 300_000),
    input=st.integers(0, 40_000),
    asked=st.none() | st.integers(16, 30_000),
)
def test_an_answer_never_has_more_room_than_is_left(
    tokens: int | None,
    money: int | None,
    input: int,  # noqa: A002
    asked: int | None,
) -> None:
    limits, account = Limits(tokens, money), Account(100, 0, 100, 0)
    room = output_room(limits=limits, account=account, input=input, price=PRICE, asked=asked)
    if room is None:
        assert tokens is None
        assert money is None
        return
    assert 0 <= room <= (asked or MAX_OUTPUT)
    if room:
        spend = reservation(input=input, output=room, price=PRICE)
        assert limits.allow(account, spend)


def test_a_budget_in_words() -> None:
    assert micros("0.50 USD") == 500_000
    assert micros("12 USD") == 12_000_000
    assert micros("0.000001 USD") == 1
    assert dollars(500_000) == "0.500000 USD"
    assert dollars(-1) == "-0.000001 USD"
    assert Budget(cost="1.25 USD").stored()["cost"] == 1_250_000
    assert input_tokens(10) == 4


@pytest.mark.parametrize(
    "amount", ["0.5", "0.5 EUR", "-1 USD", "1.1234567 USD", "1e3 USD", "01 USD"]
)
def test_an_inexact_amount_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="USD"):
        Budget(cost=amount)
