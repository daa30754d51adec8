"""The downstream of the state machine: honest, with books of its own, and no better than most.

It may lose replies, refuse, accept now and act later, be unreachable, and be told to close a key.
What it says about a key (when asked, in a callback, to a person) is what its books have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from agentcore.values import ProbeVerdict
from tests.properties import stepping
from tests.runs.acting import Done
from tools import (
    Absent,
    Ambiguous,
    Found,
    Inconclusive,
    NotDone,
    NotSent,
    Pending,
    Rejected,
    ToolContext,
    clock,
)

Behaviour = Literal["ok", "lost", "dropped", "refused", "not_sent", "accepted", "accepted_lost"]
BEHAVIOURS: tuple[Behaviour, ...] = (
    "ok", "lost", "dropped", "refused", "not_sent", "accepted", "accepted_lost",
)  # fmt: skip
Word = Literal["succeeded", "failed", "pending", ""]


@dataclass
class Shop:
    """See the module. `dedupes`: one effect for one key, as a `Key` contract promises."""

    behaves: list[Behaviour] = field(default_factory=list)
    dedupes: bool = True
    reachable: bool = True
    effects: list[tuple[str, str]] = field(default_factory=list)  # (key, what)
    accepted: dict[str, str] = field(default_factory=dict)  # key -> what, not acted on yet
    refused: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)

    def send(self, ctx: ToolContext, what: str) -> Any:
        """One request. As by the runtime's transport nothing arrives after `send_by`."""
        if clock.now() + stepping.passed_since_planned() > ctx.send_by:
            raise NotSent("too late to begin", error_class="send_by_passed")
        behaves, key = self.behaves.pop(0) if self.behaves else "ok", ctx.idempotency_key
        if behaves == "not_sent":
            raise NotSent("refused", error_class="connection_refused")
        if behaves == "dropped":
            raise Ambiguous("no reply", error_class="read_timeout")
        replayed = self.dedupes and self._knows(key)
        no = key in self.refused if replayed else behaves == "refused"
        if no or key in self.closed:
            self.refused.add(key)
            raise Rejected("no", error_class="http_422")
        if behaves.startswith("accepted") and not replayed:
            self.accepted[key] = what
        elif key not in self.accepted:
            self._act(key, what)
        if behaves in ("lost", "accepted_lost"):
            raise Ambiguous("the reply was lost", error_class="read_timeout")
        if key in self.accepted:
            return Pending("in the queue")
        return Found(Done(id=reference_of(key)), reference_of(key))

    def ask(self, ctx: ToolContext) -> ProbeVerdict:
        """What became of a key."""
        if not self.reachable:
            return Inconclusive("nobody answers")
        key = ctx.idempotency_key
        if self._made(key):
            return Found({"id": reference_of(key)}, reference_of(key))
        if key in self.accepted:
            return Pending("in the queue")
        return NotDone("it was cancelled") if key in self.closed else Absent()

    def word(self, key: str) -> Word:
        """What a callback about the key would say now; "" while there is no final word."""
        if self._made(key):
            return "succeeded"
        if key in self.accepted:
            return "pending"
        return "failed" if key in self.closed or (self.dedupes and key in self.refused) else ""

    def work_off(self) -> None:
        """Act on what was accepted."""
        for key, what in list(self.accepted.items()):
            self._act(key, what)

    def close(self, key: str) -> bool:
        """Use the key up without an effect; False when it has had one."""
        if self._made(key):
            return False
        self.accepted.pop(key, None)
        self.closed.add(key)
        return True

    def _act(self, key: str, what: str) -> None:
        self.accepted.pop(key, None)
        if not (self.dedupes and self._made(key)):
            self.effects.append((key, what))

    def _made(self, key: str) -> bool:
        return any(known == key for known, _ in self.effects)

    def _knows(self, key: str) -> bool:
        return self._made(key) or key in self.accepted or key in self.refused


def reference_of(key: str) -> str:
    return f"ref-{key[-8:]}"
