"""The account of a run: what a model call may cost, did cost, and what is then left.

Money is counted in millionths of a US dollar (`micros`), tokens one by one: both are integers, so
sums are exact. A call is reserved before it is made and settled once; a call whose usage is not
known costs its reservation until the usage arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from agentcore.values import Usage

MILLION = 1_000_000


class Entry(StrEnum):
    """The three lines that one model call may have in the account."""

    RESERVE = "RESERVE"
    SETTLE = "SETTLE"
    CORRECT = "CORRECT"


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a day on: micros (millionths of a US dollar) for a million tokens."""

    model: str
    since: date
    input: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True)
class Spend:
    """Tokens and money of one call. `cached` is part of `input`, as providers count it."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def __sub__(self, other: Spend) -> Spend:
        return Spend(
            self.input - other.input,
            self.cached - other.cached,
            self.output - other.output,
            self.cost - other.cost,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """Where a run stands: used for good, and held for calls that are not settled."""

    tokens_used: int = 0
    tokens_held: int = 0
    cost_used: int = 0
    cost_held: int = 0

    def reserve(self, spend: Spend) -> Account:
        return Account(
            self.tokens_used,
            self.tokens_held + spend.tokens,
            self.cost_used,
            self.cost_held + spend.cost,
        )

    def settle(self, *, reserved: Spend, actual: Spend) -> Account:
        return Account(
            self.tokens_used + actual.tokens,
            self.tokens_held - reserved.tokens,
            self.cost_used + actual.cost,
            self.cost_held - reserved.cost,
        )

    def correct(self, difference: Spend) -> Account:
        return Account(
            self.tokens_used + difference.tokens,
            self.tokens_held,
            self.cost_used + difference.cost,
            self.cost_held,
        )


def price_of(*, model: str, on: date, prices: Iterable[Price]) -> Price | None:
    """The price in force on a day, or None. A dated name (`gpt-5.2-2025-12-11`) has the price of
    its family unless the table names it itself.
    """
    known = [price for price in prices if price.since <= on]
    exact = [price for price in known if price.model == model]
    family = [price for price in known if model.startswith(price.model + "-2")]
    found = exact or [p for p in family if len(p.model) == max(len(q.model) for q in family)]
    return max(found, key=lambda price: price.since) if found else None


def cost(*, input: int, cached: int, output: int, price: Price | None) -> int:  # noqa: A002
    """Micros of one call, rounded up once; 0 without a price. `cached` is part of `input`."""
    if price is None:
        return 0
    cached = min(cached, input)
    exact = (input - cached) * price.input + cached * price.cached + output * price.output
    return -(-exact // MILLION)


def spend_of(*, usage: Usage, price: Price | None) -> Spend:
    """What a call came to by the provider's count."""
    money = cost(
        input=usage.input_tokens,
        cached=usage.cached_tokens,
        output=usage.output_tokens,
        price=price,
    )
    return Spend(usage.input_tokens, usage.cached_tokens, usage.output_tokens, money)


def reservation(*, input: int, output: int, price: Price | None) -> Spend:  # noqa: A002
    """The most a call may come to: nothing cached, every token of the answer used."""
    return Spend(input, 0, output, cost(input=input, cached=0, output=output, price=price))
