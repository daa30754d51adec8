"""Hard limits of a run, as code. The model is told what is left and cannot exceed it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from agentcore.ledger import MILLION, Account, Price, Spend, reservation
from agentcore.values import Json

MAX_OUTPUT = 16_384
"""Tokens of an answer that are asked for at most when tokens or money are limited."""
MIN_OUTPUT = 256
"""With less room than this an answer would be cut, so it is not asked for."""
CLOSING_OUTPUT = 1024
"""Tokens of the answer in a closing turn."""
TYPICAL_OUTPUT = 2048
"""What an answer is booked with as long as nobody limits it or says what it had."""
CHARS_A_TOKEN = 3
"""Fewer than most texts have, so that a reservation is rather too large."""
_DOLLARS = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([0-9]{1,6}))? USD")


@dataclass(frozen=True, slots=True)
class Budget:
    """`turns`: model calls with a decision; `actions`: proposed tool calls; `failures`: calls that
    came to nothing; `tool_calls`: proposed calls of one tool, by its name; `parallel`: calls of one
    reply, its branches; `handoffs`: runs of other agents that it and they may start, in all;
    `wall`: time to the deadline; `tokens`: input and output of all model calls; `cost`: such as
    "0.50 USD".

    None is no limit. `on_exhausted`: end the run, or suspend it for a person who may extend it.
    `diagnose`: one call is set aside, without tools, in which the model says how far it came.
    Raises ValueError for a limit that no run could keep.
    """

    turns: int = 12
    actions: int = 20
    wall: timedelta = timedelta(hours=24)  # above an approval's 4 h: the deadline runs on there
    tokens: int | None = None
    cost: str | None = None
    failures: int | None = None
    parallel: int | None = None
    handoffs: int | None = None
    tool_calls: Mapping[str, int] = field(default_factory=dict)
    on_exhausted: Literal["stop", "suspend"] = "stop"
    diagnose: bool = False

    def __post_init__(self) -> None:
        _whole("turns", self.turns, 1, 10_000)
        _whole("actions", self.actions, 0, 100_000)
        if not isinstance(self.wall, timedelta) or self.wall <= timedelta(0):
            raise ValueError("budget: wall is a positive timedelta")
        if self.tokens is not None:
            _whole("tokens", self.tokens, 1000, 10**12)
        if self.failures is not None:
            _whole("failures", self.failures, 0, 100_000)
        if self.parallel is not None:
            _whole("parallel", self.parallel, 1, 1000)
        if self.handoffs is not None:
            _whole("handoffs", self.handoffs, 0, 1000)
        for tool, limit in self.tool_calls.items():
            _whole(f"tool_calls of {tool}", limit, 0, 100_000)
        if self.cost is not None:
            micros(self.cost)
        if self.diagnose and self.turns < 2:
            raise ValueError("budget: a turn set aside for the diagnosis needs a second one")

    def stored(self) -> dict[str, Json]:
        """The limits as part of a frozen agent version. The wall is the run's own deadline."""
        return {
            "turns": self.turns,
            "actions": self.actions,
            "tokens": self.tokens,
            "cost": micros(self.cost) if self.cost is not None else None,
            "failures": self.failures,
            "parallel": self.parallel,
            "tool_calls": dict(self.tool_calls),
            "on_exhausted": self.on_exhausted,
            "diagnose": self.diagnose,
            **({} if self.handoffs is None else {"handoffs": self.handoffs}),
        }


def micros(amount: str) -> int:
    """ "0.50 USD" as 500000 millionths of a dollar. Raises ValueError for anything else."""
    found = _DOLLARS.fullmatch(amount)
    if found is None:
        raise ValueError(f"budget: cost is an exact amount such as '0.50 USD', not {amount!r}")
    return int(found[1]) * MILLION + int((found[2] or "").ljust(6, "0"))


def dollars(amount: int) -> str:
    """Micros as people write them: 500000 is "0.500000 USD"."""
    sign, value = ("-", -amount) if amount < 0 else ("", amount)
    return f"{sign}{value // MILLION}.{value % MILLION:06d} USD"


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"budget: {name} is a whole number")  # noqa: TRY004
    if not least <= value <= most:
        raise ValueError(f"budget: {name} is between {least} and {most}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use in all; None is no limit."""

    tokens: int | None = None
    cost: int | None = None

    @property
    def any(self) -> bool:
        return self.tokens is not None or self.cost is not None

    def left(self, account: Account) -> tuple[int | None, int | None]:
        """(tokens, micros) that are neither used nor held."""
        tokens = self.tokens
        if tokens is not None:
            tokens -= account.tokens_used + account.tokens_held
        money = self.cost
        if money is not None:
            money -= account.cost_used + account.cost_held
        return tokens, money

    def allow(self, account: Account, spend: Spend) -> bool:
        """Whether `spend` may be reserved now."""
        tokens, money = self.left(account)
        return (tokens is None or spend.tokens <= tokens) and (money is None or spend.cost <= money)


def output_room(
    *,
    limits: Limits,
    account: Account,
    input: int,  # noqa: A002
    price: Price | None,
    asked: int | None,
    aside: Spend | None = None,
) -> int | None:
    """How many tokens the next answer may have, so that the call cannot exceed what is left.

    None: tokens and money are not limited. 0: there is not enough left for any answer. `input`:
    tokens of the request, estimated; `asked`: the agent's own limit of an answer; `aside`: what
    has to stay for a later call.
    """
    if not limits.any:
        return None
    most = MAX_OUTPUT if asked is None else asked
    tokens, money = limits.left(account.reserve(aside or Spend()))
    room = most
    if tokens is not None:
        room = min(room, tokens - input)
    if money is not None and price is not None:
        spent = reservation(input=input, output=0, price=price).cost
        # One micro less: a price for input and output together is rounded up once.
        room = min(room, (money - spent - 1) * MILLION // max(price.output, 1))
    return room if room >= min(MIN_OUTPUT, most) else 0


def input_tokens(characters: int) -> int:
    """Tokens to set aside for a request: more than it is likely to have."""
    return -(-characters // CHARS_A_TOKEN)
