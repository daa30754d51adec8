"""When a run has to stop, as objects that can be combined: `MaxTurns(9) | MaxCost(m) & SameCall()`.

A condition is shown every finished turn in order and remembers what it needs; once it has stopped
it stays stopped until `reset`. `a | b` stops with the first that stops, `a & b` when both have. A
run's conditions are made anew and shown its turns again whenever it goes on, so their memory is in
the rows, and any worker comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from agentcore.lifecycle import StopReason


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call, as the conditions see it. `params` and `observed` are hashes.

    `error` is empty for a call that succeeded; `retryable`: waiting may cure it. `effective`: a
    write that changed something. `child`: a run of another agent.
    """

    tool: str
    params: str = ""
    observed: str = ""
    error: str = ""
    retryable: bool = False
    write: bool = False
    effective: bool = False
    polling: bool = False
    invalid: bool = False
    child: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One finished turn. `tokens` and `cost` are what the run has used and holds up to here."""

    turn: int
    calls: tuple[Call, ...] = ()
    tokens: int = 0
    cost: int = 0
    at: datetime | None = None

    @property
    def changed(self) -> bool:
        return any(call.effective for call in self.calls)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why: the stop reason for code, `detail` for people."""

    reason: StopReason
    detail: str


class Condition:
    """Base of all conditions. A subclass looks at one step and says whether the run must stop."""

    def __init__(self) -> None:
        self.stopped: Stop | None = None

    def look(self, step: Step) -> Stop | None:
        """Judge one more turn. Called once for each, in order."""
        raise NotImplementedError

    def feed(self, step: Step) -> Stop | None:
        """Show one more finished turn; the answer stays once it is a stop."""
        found = self.look(step)
        self.stopped = self.stopped or found
        return self.stopped

    def run(self, steps: Iterable[Step]) -> Stop | None:
        """Show all turns of a run."""
        for step in steps:
            self.feed(step)
        return self.stopped

    def __or__(self, other: Condition) -> Condition:
        return AnyOf(self, other)

    def __and__(self, other: Condition) -> Condition:
        return AllOf(self, other)


class AnyOf(Condition):
    """Stops as soon as one of its parts does."""

    def __init__(self, *parts: Condition) -> None:
        super().__init__()
        self.parts = parts

    def look(self, step: Step) -> Stop | None:
        found = [part.feed(step) for part in self.parts]
        return next((stop for stop in found if stop is not None), None)


class AllOf(Condition):
    """Stops once every part has stopped, not necessarily in the same turn."""

    def __init__(self, *parts: Condition) -> None:
        super().__init__()
        self.parts = parts

    def look(self, step: Step) -> Stop | None:
        found = [part.feed(step) for part in self.parts]
        stops = [stop for stop in found if stop is not None]
        if len(stops) < len(self.parts):
            return None
        return Stop(stops[0].reason, "; ".join(stop.detail for stop in stops))


class _Counting(Condition):
    """Stops when a count goes beyond `limit` (`inclusive`: when it reaches it)."""

    what = ""
    inclusive = False

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.count = 0

    def add(self, step: Step) -> int:
        raise NotImplementedError

    def look(self, step: Step) -> Stop | None:
        self.count += self.add(step)
        over = self.count >= self.limit if self.inclusive else self.count > self.limit
        if not over:
            return None
        return Stop(StopReason.BUDGET, f"{self.count} {self.what}, {self.limit} are allowed")


class MaxTurns(_Counting):
    """No further turn after `limit`."""

    what, inclusive = "turns used", True

    def add(self, step: Step) -> int:  # noqa: ARG002
        return 1


class MaxActions(_Counting):
    """A run that has used exactly its actions may still answer; one that proposed more stops."""

    what = "actions proposed"

    def add(self, step: Step) -> int:
        return len(step.calls)


class MaxParallel(Condition):
    """Calls of one turn, its branches."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def look(self, step: Step) -> Stop | None:
        if len(step.calls) <= self.limit:
            return None
        detail = f"{len(step.calls)} calls in one reply, {self.limit} are allowed"
        return Stop(StopReason.BUDGET, detail)


class MaxFailures(_Counting):
    """Calls that came to nothing, for whatever reason."""

    what = "calls failed"

    def add(self, step: Step) -> int:
        return sum(bool(call.error) for call in step.calls)


class MaxToolCalls(_Counting):
    """Calls of one tool."""

    def __init__(self, tool: str, limit: int) -> None:
        super().__init__(limit)
        self.tool = tool
        self.what = f"calls of {tool}"

    def add(self, step: Step) -> int:
        return sum(call.tool == self.tool for call in step.calls)


class MaxHandoffs(_Counting):
    """Runs of other agents."""

    what = "runs of other agents asked for"

    def add(self, step: Step) -> int:
        return sum(call.child for call in step.calls)


class MaxInvalidCalls(_Counting):
    """`limit` turns in a row with a call that could not be read or that names no tool."""

    what, inclusive = "replies in a row with an invalid call", True

    def add(self, step: Step) -> int:
        return 1 if any(call.invalid for call in step.calls) else -self.count

    def look(self, step: Step) -> Stop | None:
        found = super().look(step)
        return Stop(StopReason.MODEL_ERROR, found.detail) if found else None


class MaxTokens(Condition):
    """Tokens of all model calls so far."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def look(self, step: Step) -> Stop | None:
        if step.tokens < self.limit:
            return None
        return Stop(StopReason.BUDGET, f"{step.tokens} of {self.limit} tokens used")


class MaxCost(Condition):
    """Money of all model calls so far, in micros."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def look(self, step: Step) -> Stop | None:
        if step.cost < self.limit:
            return None
        return Stop(StopReason.BUDGET, f"{step.cost} of {self.limit} micro-dollars used")


class Deadline(Condition):
    """A point in time, judged by the time of each turn."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self.at = at

    def look(self, step: Step) -> Stop | None:
        if step.at is None or step.at < self.at:
            return None
        return Stop(StopReason.DEADLINE, f"the deadline {self.at.isoformat()} has passed")


@dataclass(frozen=True, slots=True)
class Hard:
    """The hard limits of a run as one condition."""

    turns: int
    actions: int
    failures: int | None = None
    parallel: int | None = None
    handoffs: int | None = None
    tool_calls: dict[str, int] = field(default_factory=dict)

    def condition(self) -> Condition:
        """All of them, for the beginning of a turn."""
        parts: list[Condition] = [MaxTurns(self.turns), self.of_calls()]
        if self.failures is not None:
            parts.append(MaxFailures(self.failures))
        return AnyOf(*parts)

    def of_calls(self) -> Condition:
        """Those that a reply can exceed by what it proposes."""
        parts: list[Condition] = [MaxActions(self.actions)]
        if self.parallel is not None:
            parts.append(MaxParallel(self.parallel))
        if self.handoffs is not None:
            parts.append(MaxHandoffs(self.handoffs))
        parts += [MaxToolCalls(tool, limit) for tool, limit in sorted(self.tool_calls.items())]
        return AnyOf(*parts)
