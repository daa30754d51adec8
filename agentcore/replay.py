"""One reply of the model and its answers, as items of the next request.

The API refuses a history with a call that nothing answers, an output without its call, an item
that is cut, or reasoning that nothing follows. Items that may be sent go whole, in order and
untouched; of an invalid reply only the note of what was wrong remains.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agentcore.canonical import sha256_hex
from agentcore.decisions import Invalid, ToolCalls, decide
from agentcore.knowledge import Fact, PlannedAction
from agentcore.observed import cap_text
from agentcore.values import Json

Item = dict[str, Json]


class ContextError(ValueError):
    """The request cannot be built; sending it anyway would break the protocol."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply of the model and what was answered.

    `output`: JSON text of the reply's items as received. `observations`: (call_id, text) in call
    order. `note`: a message of the runtime, such as what was wrong with the reply. `invalid`: the
    reply as a whole was no decision, whatever its items look like. The rest is what a summary
    keeps of it: the model's own words, its actions, and the evidence. `size`: characters, about,
    that it adds to a request; counted once, as every turn asks for those of all exchanges.
    """

    turn: int
    output: str
    observations: tuple[tuple[str, str], ...] = ()
    note: str = ""
    invalid: bool = False
    said: str = ""
    actions: tuple[PlannedAction, ...] = ()
    facts: tuple[Fact, ...] = ()
    size: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        shown = sum(len(text) for _, text in self.observations)
        object.__setattr__(self, "size", len(self.output) + len(self.note) + shown)


@dataclass(frozen=True, slots=True)
class Replayed:
    """`items` to send, and what was left out with the reason."""

    items: list[Item]
    dropped: list[Item] = field(default_factory=list)


def replay(exchange: Exchange) -> Replayed:
    """The items of one exchange. Raises `ContextError` where observations do not fit the calls."""
    output = _items(exchange)
    reason = _not_replayable(exchange, output)
    if reason:
        data = exchange.output.encode()
        entry = {"kind": "reply", "sha256": sha256_hex(data), "bytes": len(data)}
        dropped: list[Item] = [{**entry, "turn": exchange.turn, "reason": reason}]
        return Replayed(_note(exchange), dropped)
    kept = _with_followers(output)
    dropped = [
        {"kind": "reasoning", "turn": exchange.turn, "reason": "nothing follows it"}
        for _ in output[len(kept) :]
    ]
    return Replayed([*kept, *_answers(exchange, output), *_note(exchange)], dropped)


def _items(exchange: Exchange) -> list[Item]:
    if not exchange.output:
        return []
    try:
        items = json.loads(exchange.output)
    except ValueError as error:
        raise ContextError(f"turn {exchange.turn}: stored items are not JSON: {error}") from None
    if not isinstance(items, list):
        raise ContextError(f"turn {exchange.turn}: stored items are not a list")
    return items


def _not_replayable(exchange: Exchange, items: list[Item]) -> str:
    """Why the items of a reply may not be sent again, or ""."""
    if not items:
        return ""
    decision = decide(items)
    if isinstance(decision, ToolCalls):
        if exchange.note and not exchange.observations:
            return "invalid: calls that were not accepted"
        return ""
    code = decision.code if isinstance(decision, Invalid) else ""
    if exchange.observations:
        raise ContextError(f"turn {exchange.turn}: observations without calls ({code or 'final'})")
    if exchange.invalid and not code:
        return "invalid: the reply was not complete"
    return f"invalid: {code}" if code not in ("", "commentary_only") else ""


def _with_followers(items: list[Item]) -> list[Item]:
    """`items` without reasoning at the end: sent again it would miss what has to follow it."""
    end = len(items)
    while end and items[end - 1].get("type") == "reasoning":
        end -= 1
    return items[:end]


def _answers(exchange: Exchange, items: list[Item]) -> list[Item]:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    given = [call_id for call_id, _ in exchange.observations]
    if calls != given:
        # Joined by call_id within one exchange only: some providers restart ids in every reply.
        raise ContextError(f"turn {exchange.turn}: {len(given)} observations, {len(calls)} calls")
    return [
        {"type": "function_call_output", "call_id": call_id, "output": cap_text(text)}
        for call_id, text in exchange.observations
    ]


def _note(exchange: Exchange) -> list[Item]:
    if not exchange.note:
        return []
    text = f"Message from the runtime:\n{cap_text(exchange.note)}"
    return [{"type": "message", "role": "developer", "content": text}]
