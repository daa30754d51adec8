"""The runs that are broken: variants of the refund story, each another path through the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.invariants import Expected

SECOND = 500_000_000
"""Added to an order's number: the other order of a story with two writes."""


@dataclass(frozen=True, slots=True)
class Story:
    """One run. `payment` and `model` are faults of the outside services, armed for its order.

    `cancel_in`: it is cancelled when an action of it, or the run, is seen in this state. `linger`:
    seconds after its last send until the downstream is done with it. Not `listed`: only for trials
    that name it.
    """

    name: str
    agent: str = "refund_desk"
    amount: str = "20.00 EUR"
    script: str = ""
    approve: str = ""
    cancel_in: str = ""
    payment: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    effects: int = 1
    second: bool = False
    linger: float = 0.0
    listed: bool = True

    def body(self, number: int) -> dict[str, Any]:
        """The input of the run for order `number`."""
        message = "arrived broken"
        if self.script:
            orders = (f"ORD-{number}", f"ORD-{number + SECOND}")
            message = self.script.replace("ORD-A", orders[0]).replace("ORD-B", orders[1])
        return {"order_id": f"ORD-{number}", "message": message, "amount": self.amount}

    def expected(self, number: int) -> Expected:
        effects = {f"ORD-{number}": self.effects}
        if self.second:
            effects[f"ORD-{number + SECOND}"] = 1
        states = ("CANCELLED", "COMPLETED") if self.cancel_in else ("COMPLETED",)
        return Expected(states=states, effects=effects)


def _refund(order: str, amount: str) -> dict[str, Any]:
    arguments = {"order_id": order, "amount": amount, "reason": "damaged"}
    return {"tool": "refund_desk__submit_refund", "arguments": arguments}


def _transfer(order: str, amount: str) -> dict[str, Any]:
    return {**_refund(order, amount), "tool": "lookup_desk__transfer"}


def _read(order: str) -> dict[str, Any]:
    return {"tool": "refund_desk__get_order", "arguments": {"order_id": order}}


def _ask(order: str, amount: str) -> dict[str, Any]:
    """A call of the refund desk by another agent."""
    arguments = {"order_id": order, "message": "arrived broken", "amount": amount}
    return {"tool": "agents__refund_desk", "arguments": arguments}


def _script(*turns: list[Any]) -> str:
    return json.dumps({"script": turns})


_ONCE = _script([_refund("ORD-A", "20.00 EUR")], ["done"])

STORIES = {
    story.name: story
    for story in (
        Story("small"),
        Story("large", amount="80.00 EUR", approve="APPROVE"),
        Story("rejected", amount="80.00 EUR", approve="REJECT", effects=0),
        Story("lost_reply", script=_ONCE, payment={"mode": "commit_then_drop"}),
        Story("never_arrived", script=_ONCE, payment={"mode": "drop_before_commit"}),
        Story(
            "batch",
            second=True,
            script=_script(
                [_read("ORD-A"), _refund("ORD-A", "20.00 EUR"), _refund("ORD-B", "30.00 EUR")],
                ["done"],
            ),
        ),
        Story("model_error", script=_ONCE, model={"mode": "error_500"}),
        Story(
            "again",
            script=_script(
                [_refund("ORD-A", "20.00 EUR")],
                [_refund("ORD-A", "20.00 EUR"), _read("ORD-A")],
                ["done"],
            ),
        ),
        Story(
            "cancelled",
            script=_ONCE,
            payment={"mode": "delay_after_commit", "seconds": 0.3},
            cancel_in="RUNNING",
        ),
        Story("withdrawn", amount="80.00 EUR", cancel_in="WAITING_APPROVAL", effects=0),
        Story("child", agent="front_desk", script=_script([_ask("ORD-A", "20.00 EUR")], ["done"])),
        Story(
            "child_cancelled",
            agent="front_desk",
            script=_script([_ask("ORD-A", "20.00 EUR")], ["done"]),
            payment={"mode": "delay_after_commit", "seconds": 0.3},
            cancel_in="WAITING_CHILD",
        ),
        Story(
            "tampered",
            script=_script([_refund("ORD-A", "80.00 EUR")], ["done"]),
            approve="APPROVE",
            effects=0,
            listed=False,
        ),
        Story(
            "looked_up",
            agent="lookup_desk",
            script=_script([_transfer("ORD-A", "20.00 EUR")], ["done"]),
            payment={"mode": "delay", "seconds": 2.5},
            linger=3.5,
            listed=False,
        ),
        Story("thinking", model={"mode": "delay", "seconds": 0.4, "times": 20}, listed=False),
        Story("slow", script=_ONCE, payment={"mode": "delay_after_commit", "seconds": 0.9}),
    )
}

LISTED = tuple(story.name for story in STORIES.values() if story.listed)
