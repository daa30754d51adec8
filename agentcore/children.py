"""A run that another run asked for: what it is given of its parent's budget, and what it came to.

A child is given a slice, set aside in its parent before it begins and given back where it is not
used. So children and grandchildren together never have more than their root, and nobody asks the
root while they work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from agentcore.lifecycle import RunState
from agentcore.values import Effect, Json

CONTRACT = "CHILD"
"""The contract of an action that is a child run: no attempt is made, so it is never UNKNOWN."""
LABEL = "agents"
"""A call of the agent `researcher` is the tool `agents.researcher`."""
MAX_DEPTH = 3
"""Levels of children below a root."""
MIN_TOKENS = 1000
"""Fewer pay for no model call."""
_RANK = {Effect.READ: 0, Effect.WRITE: 1, Effect.WRITE_IRREVERSIBLE: 2}


# --- powers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Powers:
    """What an agent may do: the scopes of its tools, and the most that one of them does."""

    scopes: frozenset[str] = frozenset()
    effect: Effect = Effect.READ

    def __or__(self, other: Powers) -> Powers:
        effect = max(self.effect, other.effect, key=_RANK.__getitem__)
        return Powers(self.scopes | other.scopes, effect)

    def beyond(self, granted: Powers) -> str:
        """What of these powers `granted` does not have, in words; "" for nothing."""
        found = [f"the scope {scope}" for scope in sorted(self.scopes - granted.scopes)]
        if _RANK[self.effect] > _RANK[granted.effect]:
            found.append(f"the effect {self.effect}")
        return ", ".join(found)


# --- budget --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """Amounts of one budget. None is no limit (of `turns` and `actions`: nothing is asked for).

    `cost` in millionths of a US dollar; `handoffs`: children that may be started.
    """

    turns: int | None = None
    actions: int | None = None
    handoffs: int | None = None
    tokens: int | None = None
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """What a child may use in all. `handoffs`: what it may start itself, itself not counted."""

    turns: int
    actions: int
    handoffs: int | None
    tokens: int | None
    cost: int | None


@dataclass(frozen=True, slots=True)
class TooLittle:
    """What is left does not make a slice."""

    detail: str


def slice_of(*, left: Share, own: Share, asked: Share, waiting: int) -> Slice | TooLittle:
    """The slice of a child that is about to begin.

    `left` is what its parent still has, `own` the budget of the child's agent, `asked` what the
    parent's declaration says. `waiting`: calls of this reply that still want a slice, this one
    among them; what is not asked for is divided evenly. One turn, and a part of tokens and money,
    stay with the parent, so that it can say what came of it.
    """
    turns = _least(own.turns, _part(_less(left.turns, 1), asked.turns, waiting))
    tokens = _least(own.tokens, _paid(left.tokens, asked.tokens, waiting + 1))
    cost = _least(own.cost, _paid(left.cost, asked.cost, waiting + 1))
    if left.handoffs is not None and left.handoffs < 1:
        return TooLittle("no further agent may be started")
    if turns is not None and turns < 1:
        return TooLittle(f"{left.turns} turns are left, which the run needs itself")
    if tokens is not None and tokens < MIN_TOKENS:
        return TooLittle(f"{left.tokens} tokens are left, which is too little to share")
    if cost is not None and cost < 1:
        return TooLittle(f"{left.cost} micro-dollars are left, which is too little to share")
    starts = _less(left.handoffs, waiting)
    return Slice(
        turns=turns or 1,
        actions=_least(own.actions, _part(_less(left.actions, 0), asked.actions, waiting)) or 0,
        handoffs=_least(own.handoffs, _part(starts, asked.handoffs, waiting)),
        tokens=tokens,
        cost=cost,
    )


def _less(amount: int | None, by: int) -> int | None:
    return None if amount is None else max(0, amount - by)


def _least(*amounts: int | None) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return min(known) if known else None


def _part(left: int | None, asked: int | None, ways: int) -> int | None:
    """What is asked for, never more than is left; else an even part of that."""
    if left is None:
        return asked
    return min(left, asked) if asked is not None else left // ways


def _paid(left: int | None, asked: int | None, ways: int) -> int | None:
    """As `_part`, but one part always stays with the parent."""
    if left is None or asked is None:
        return _part(left, asked, ways)
    return min(left - left // ways, asked)


def deadline_of(*, parent: datetime, now: datetime, wall: timedelta) -> datetime:
    """When a child's time is over: its own, at the latest its parent's."""
    return min(parent, now + wall)


# --- outcome -------------------------------------------------------------------------------


_WARNING = "it did not finish: effects were made all the same, of uncertain ones nobody knows"


def result_of(
    *,
    run: str,
    agent: str,
    agent_version: str,
    state: RunState,
    output: Json,
    stop_reason: str | None,
    reason: str,
    effects: Sequence[Mapping[str, Any]],
    uncertain: Sequence[Mapping[str, Any]],
    untrusted: bool,
) -> dict[str, Json]:
    """What the parent's action has of a child that ended, and its model is shown.

    `effects` are the writes that were made, whatever became of the run; `uncertain` those that
    were given up with their fate unknown. `untrusted`: it has read what strangers wrote.
    """
    value: dict[str, Json] = {
        "run": run,
        "agent": agent,
        "agent_version": agent_version,
        "status": state.lower(),
        "effects": [dict(item) for item in effects],
    }
    if state is RunState.COMPLETED:
        value["output"] = output
    else:
        value["stop_reason"] = stop_reason or ""
        value["reason"] = reason
    if uncertain:
        value["uncertain"] = [dict(item) for item in uncertain]
    if state is not RunState.COMPLETED and (effects or uncertain):
        value["warning"] = _WARNING
    if untrusted:
        value["untrusted"] = True
    return value


def effects_in(result: Json) -> list[dict[str, Any]]:
    """The writes that a stored result names; nothing for a result of another kind."""
    return _listed(result, "effects")


def uncertain_in(result: Json) -> list[dict[str, Any]]:
    """The writes of unknown fate that a stored result names."""
    return _listed(result, "uncertain")


def _listed(result: Json, name: str) -> list[dict[str, Any]]:
    found = result.get(name) if isinstance(result, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
