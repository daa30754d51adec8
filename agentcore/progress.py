"""Signs that a run gets nowhere: the same again, back and forth, one error, nothing new.

Each condition looks at finished turns, one after the other, and remembers what it has seen. Calls
of tools declared as polling count nowhere: asking again is what they are for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agentcore.lifecycle import StopReason
from agentcore.termination import Call, Condition, Step, Stop
from agentcore.values import Json


@dataclass(frozen=True, slots=True)
class NoProgress:
    """`same_call`: how often one call may be repeated; `same_error`: how often one error of one
    tool may come in a row; `turns_without_fact`: turns in which nothing new was found out or done.
    """

    same_call: int = 2
    same_error: int = 3
    turns_without_fact: int = 5

    def __post_init__(self) -> None:
        if min(self.same_call, self.same_error, self.turns_without_fact) < 1:
            raise ValueError("no_progress: every limit is at least 1")

    def condition(self) -> Condition:
        return (
            FlipFlop()
            | SameCall(self.same_call)
            | SameError(self.same_error)
            | NoNewFact(self.turns_without_fact)
        )

    def stored(self) -> dict[str, Json]:
        return {
            "same_call": self.same_call,
            "same_error": self.same_error,
            "turns_without_fact": self.turns_without_fact,
        }


def _counted(step: Step) -> list[Call]:
    return [call for call in step.calls if not call.polling]


def signature(step: Step) -> frozenset[tuple[str, str]]:
    """What a turn did, whatever its order: tools and normalized arguments, polling left out."""
    return frozenset((call.tool, call.params) for call in _counted(step))


class SameCall(Condition):
    """One call made more than `repeats` times again. A read counts anew after an effective write,
    as the world may answer differently then.
    """

    def __init__(self, repeats: int = 2) -> None:
        super().__init__()
        self.repeats = repeats
        self._reads: Counter[tuple[str, str]] = Counter()
        self._writes: Counter[tuple[str, str]] = Counter()

    def look(self, step: Step) -> Stop | None:
        found = None
        for key in dict.fromkeys((call.tool, call.params, call.write) for call in _counted(step)):
            tool, params, write = key
            counter = self._writes if write else self._reads
            counter[tool, params] += 1
            if counter[tool, params] > self.repeats:
                times = counter[tool, params]
                found = Stop(StopReason.NO_PROGRESS, f"{tool}: the same call {times} times")
        if step.changed:
            self._reads.clear()
        return found


class FlipFlop(Condition):
    """Two turns in alternation, A B A B, that lead to nothing new the second time."""

    def __init__(self) -> None:
        super().__init__()
        self._last: list[tuple[frozenset[tuple[str, str]], frozenset[str]]] = []

    def look(self, step: Step) -> Stop | None:
        done = signature(step)
        if not done:
            return None
        seen = frozenset(call.observed for call in _counted(step) if not call.write)
        self._last = [*self._last, (done, seen)][-4:]
        if len(self._last) < 4:
            return None
        (a, seen_a), (b, seen_b), (again_a, again_seen_a), (again_b, again_seen_b) = self._last
        same = (a, b) == (again_a, again_b) and a != b
        if not same or (seen_a, seen_b) != (again_seen_a, again_seen_b):
            return None
        tools = " and ".join(sorted({tool for tool, _ in a | b}))
        return Stop(StopReason.NO_PROGRESS, f"back and forth between two turns ({tools})")


class SameError(Condition):
    """One tool failing with one error `times` times in a row, an error that waiting cannot cure."""

    def __init__(self, times: int = 3) -> None:
        super().__init__()
        self.times = times
        self._errors: Counter[tuple[str, str]] = Counter()

    def look(self, step: Step) -> Stop | None:
        found = None
        for call in _counted(step):
            if not call.error:
                self._forget(call.tool)
                continue
            if call.retryable:
                continue
            self._errors[call.tool, call.error] += 1
            if self._errors[call.tool, call.error] >= self.times:
                times = self._errors[call.tool, call.error]
                found = Stop(StopReason.NO_PROGRESS, f"{call.tool}: {call.error} {times} times")
        return found

    def _forget(self, tool: str) -> None:
        for key in [key for key in self._errors if key[0] == tool]:
            del self._errors[key]


class NoNewFact(Condition):
    """`turns` turns in a row without a new observation and without an effect."""

    def __init__(self, turns: int = 5) -> None:
        super().__init__()
        self.turns = turns
        self._known: set[str] = set()
        self._empty = 0

    def look(self, step: Step) -> Stop | None:
        if step.calls and not _counted(step):
            return None  # it only waited
        seen = {call.observed for call in _counted(step) if call.observed and not call.error}
        new = seen - self._known
        self._known |= seen
        self._empty = 0 if new or step.changed else self._empty + 1
        if self._empty < self.turns:
            return None
        return Stop(StopReason.NO_PROGRESS, f"nothing new in {self._empty} turns")
