"""Hard limits of a run, as code. The model is told what is left and cannot exceed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from agentcore.lifecycle import StopReason


@dataclass(frozen=True, slots=True)
class Budget:
    """`turns`: model calls with a decision; `actions`: proposed tool calls; `wall`: time to the
    deadline. Raises ValueError for a limit that no run could keep.
    """

    turns: int = 12
    actions: int = 20
    wall: timedelta = timedelta(hours=24)  # above an approval's 4 h: the deadline runs on there

    def __post_init__(self) -> None:
        for name in ("turns", "actions"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"budget: {name} is a whole number")  # noqa: TRY004
        if not 1 <= self.turns <= 10_000:
            raise ValueError("budget: turns is between 1 and 10000")
        if not 0 <= self.actions <= 100_000:
            raise ValueError("budget: actions is between 0 and 100000")
        if not isinstance(self.wall, timedelta) or self.wall <= timedelta(0):
            raise ValueError("budget: wall is a positive timedelta")


def exceeded(
    *,
    max_turns: int,
    max_actions: int,
    deadline_at: datetime,
    turns: int,
    actions: int,
    now: datetime,
) -> StopReason | None:
    """Why no further turn may start, or None. `turns` and `actions` are what is used already.

    A run that has used exactly its actions may still answer; one that proposed more stops.
    """
    if now >= deadline_at:
        return StopReason.DEADLINE
    if turns >= max_turns or actions > max_actions:
        return StopReason.BUDGET
    return None


def remaining(
    *,
    max_turns: int,
    max_actions: int,
    deadline_at: datetime,
    turns: int,
    actions: int,
    now: datetime,
) -> dict[str, int]:
    """What is left, as the model is told: `turns_left`, `actions_left`, `seconds_left`."""
    return {
        "turns_left": max(0, max_turns - turns),
        "actions_left": max(0, max_actions - actions),
        "seconds_left": max(0, int((deadline_at - now).total_seconds())),
    }
