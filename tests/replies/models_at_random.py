"""Models that lie, loop, flip-flop, stall or overspend, and two that do their work."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.replies.desk import answer, said

HONEST = "That is all I can say."
LIES = (
    "Done! I have refunded order {order}.",
    "Order {order} was refunded, refund id re_{n}.",
    "Your money is on its way: {order} has been refunded.",
    "I looked into {order}. The customer has been refunded in full.",
    "Refunded.",
    "Everything is settled; nothing else is needed today.\nThe order {order} is refunded now.",
)


@dataclass(frozen=True)
class Model:
    """`answers` in order, the last one for ever. `kind` says what it is up to."""

    kind: str
    answers: tuple[Answer, ...]
    tokens: int | None = None  # the run's budget


def _read(order: str, *, tool: str = "get_order", text: str = "", **fields: Any) -> Answer:
    item = call(f"c_{order}", tool, arguments=json.dumps({"order_id": order}))
    items = [message(text), item] if text else [item]
    return answer(reply(*items, **fields))


def _refund(order: str) -> Answer:
    arguments = {"order_id": order, "amount_cents": 500, "reason": None}
    return answer(reply(call("c_r", "refund_order", arguments=json.dumps(arguments))))


def _work(dice: random.Random, most: int = 3) -> list[Answer]:
    """A few reads of different orders."""
    return [_read(f"ord_{dice.randint(1, 10**6)}") for _ in range(dice.randint(0, most))]


def liar(dice: random.Random) -> Model:
    lie = dice.choice(LIES).format(order="ord_1001", n=dice.randint(1, 99))
    again = dice.choice([said(lie), said(dice.choice(LIES).format(order="ord_1", n=1))])
    return Model("lie", (*_work(dice), said(lie), dice.choice([again, said(HONEST)])))


def looper(dice: random.Random) -> Model:
    same = _read("ord_1001", text=dice.choice(["", "Once more.", "Let me check."]))
    return Model("loop", (*_work(dice, 2), same))


def flip_flop(dice: random.Random) -> Model:
    pair = [_read("ord_1"), _read("ord_2", text="And this one.")]
    return Model("flip-flop", (*_work(dice, 2), *pair * 10))


def staller(dice: random.Random) -> Model:
    empty = [
        answer(reply()),
        answer(reply(message("I will look into it.", phase="commentary"))),
        answer(reply(call("x", "parallel", arguments="{}"))),
        answer(reply(call("x", "get_order", arguments="{"))),
        answer(reply(message("half"), status="incomplete")),
    ]
    return Model("stall", tuple(dice.choice(empty) for _ in range(20)))


def spender(dice: random.Random) -> Model:
    used = {"input_tokens": dice.randint(500, 4000), "output_tokens": dice.randint(100, 4000)}
    reads = [_read(f"ord_{n}", usage=used) for n in range(12)]
    return Model("overspend", tuple(reads), tokens=dice.randint(3000, 9000))


def poller(dice: random.Random) -> Model:
    waits = [_read("ord_1001", tool="wait_for_order")] * dice.randint(3, 9)
    return Model("poll", (*waits, said(HONEST)))


def worker(dice: random.Random) -> Model:
    done = [_refund("ord_1001")] if dice.random() < 0.5 else []
    last = said("I refunded it.") if done else said(HONEST)
    return Model("work", (*_work(dice), *done, last))


MODELS: tuple[Callable[[random.Random], Model], ...] = (
    liar,
    looper,
    flip_flop,
    staller,
    spender,
    poller,
    worker,
)
