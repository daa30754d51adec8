"""What a process remembers of a run between two drives: the turns whose rows cannot change.

A turn is *settled* once a later one has begun and each of its calls was observed. The rules of the
database freeze its row and those of its actions then (`runs/db_columns.py`), so what was read of
them once stays true, whoever drives the run in between. A run is given back after every few calls;
without this it would be read whole again each time, and a long run would slow down as it grows.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from agentcore.children import CONTRACT
from agentcore.compaction import Past
from agentcore.lifecycle import ACTION_TERMINAL
from agentcore.replay import Exchange
from agentcore.termination import Condition, Step
from runs.models import ActionJournal, Turn
from tools import registry

KEEP_FROM = 8
"""Settled turns from which a history is worth keeping; a shorter one is read as quickly."""
KEEP_BYTES = 24 * 2**20
"""Text of all kept histories together; in memory they take about three times as much."""
ROW = 2000
"""Characters that a row counts beside its text: its objects take three times as many bytes."""


@dataclass
class Watch:
    """Termination conditions, which remember the turns they were shown: up to turn `through`."""

    terms: object
    condition: Condition
    through: int = 0


@dataclass
class History:
    """The settled turns of one run up to turn `through`, and what was made of them."""

    through: int = 0
    turns: list[Turn] = field(default_factory=list)
    actions: list[ActionJournal] = field(default_factory=list)
    size: int = 0  # characters, about
    intents: set[tuple[str, str]] = field(default_factory=set)  # (tool, intent key)
    strange_from: int | None = None  # the first turn that read what a tool declares untrusted
    steps: list[Step] = field(default_factory=list)
    stepped_turns: int = 0  # how many of the rows stand in `steps` already
    stepped_actions: int = 0
    watches: dict[str, Watch] = field(default_factory=dict)
    exchanges: dict[int, Exchange] = field(default_factory=dict)  # by turn
    past: tuple[int, Past] | None = None  # what lies before this turn, as it is shown

    def add(self, turns: Sequence[Turn], actions: Sequence[ActionJournal], *, through: int) -> None:
        """More settled turns with their actions, in order."""
        self.turns += turns
        self.actions += actions
        self.through = through
        self.size += sum(ROW + len(turn.__dict__.get("output", "")) for turn in turns)
        for action in actions:
            # The result stands in the observation only by its place (`fold`), and is kept whole.
            self.size += ROW + len(action.observation or "") + len(repr(action.result))
            if action.intent_key:
                self.intents.add((action.tool, action.intent_key))
            if self.strange_from is None and is_strange(action):
                self.strange_from = action.turn

    def show(self, exchange: Exchange) -> None:
        """Keep an exchange as it is shown; its rows are settled."""
        self.exchanges[exchange.turn] = exchange
        self.size += exchange.size

    def compact(self, before: int, past: Past) -> None:
        """Keep what stands for the turns before `before`, instead of their exchanges."""
        self.past = (before, past)
        self.exchanges = {n: known for n, known in self.exchanges.items() if n >= before}

    def forget_later(self) -> None:
        """Drop what was made of turns that are not settled: a plan was not written, and their rows
        may say something else now.
        """
        if any(watch.through > self.through for watch in self.watches.values()):
            self.watches.clear()
        self.exchanges = {n: known for n, known in self.exchanges.items() if n <= self.through}


def is_settled(action: ActionJournal, *, turn: int) -> bool:
    """Whether the row of this action can change no more. `turn`: the one under way."""
    done = action.turn < turn and action.observation is not None
    return done and action.state in ACTION_TERMINAL


def is_strange(action: ActionJournal) -> bool:
    """Whether it read what its tool declares untrusted, or the run that it is did."""
    if action.contract == CONTRACT:
        return bool(action.result and action.result.get("untrusted"))
    spec = registry.get(action.tool)
    return action.result is not None and spec is not None and spec.untrusted


_lock = threading.Lock()
_kept: OrderedDict[UUID, History] = OrderedDict()


def known(run_id: UUID) -> int:
    """The turn up to which this process remembers a run: what to read lies after it."""
    with _lock:
        found = _kept.get(run_id)
        return found.through if found is not None else 0


def take(run_id: UUID) -> History | None:
    """The history of a run that this process has driven before; whoever takes it has it alone."""
    with _lock:
        return _kept.pop(run_id, None)


def keep(run_id: UUID, history: History) -> None:
    """Keep it for the next drive of the run here; the least recently kept ones make room."""
    if history.through < KEEP_FROM:
        return
    with _lock:
        _kept[run_id] = history
        _kept.move_to_end(run_id)
        size = sum(item.size for item in _kept.values())
        while size > KEEP_BYTES:
            size -= _kept.popitem(last=False)[1].size


def _forget_parent() -> None:
    """In a forked child: a lock that a thread of the parent held would stay locked here."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget_parent)
