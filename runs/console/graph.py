"""The state machine of a run as a drawing: places and arrows in plain numbers, for one template."""

from __future__ import annotations

from dataclasses import dataclass

from agentcore.lifecycle import RUN_MOVES, RunState

R = RunState
WIDTH, HEIGHT, BOX, TALL = 1120, 300, 140, 34
_COLUMNS = {0: 10, 1: 170, 2: 330, 3: 490, 4: 650, 5: 810, 6: 970}
_ROWS = {0: 40, 1: 130, 2: 185, 3: 252}
_PLACES: dict[RunState, tuple[int, int]] = {
    R.QUEUED: (0, 0),
    R.COMPILING_CONTEXT: (1, 0),
    R.CALLING_MODEL: (2, 0),
    R.DISPATCHING_TOOLS: (3, 0),
    R.OBSERVING: (4, 0),
    R.VERIFYING: (5, 0),
    R.COMPLETED: (6, 0),
    R.RETRY_WAIT: (2, 1),
    R.WAITING_APPROVAL: (3, 1),
    R.RECONCILING: (4, 1),
    R.WAITING_CHILD: (3, 2),
    R.INCOMPLETE: (6, 1),
    R.FAILED: (6, 2),
    R.SUSPENDED: (0, 3),
    R.CANCELLING: (5, 3),
    R.CANCELLED: (6, 3),
}
_ARROWS = (
    (R.QUEUED, R.COMPILING_CONTEXT),
    (R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS),
    (R.DISPATCHING_TOOLS, R.OBSERVING),
    (R.OBSERVING, R.VERIFYING),
    (R.VERIFYING, R.COMPLETED),
    (R.OBSERVING, R.COMPILING_CONTEXT),
    (R.DISPATCHING_TOOLS, R.WAITING_APPROVAL),
    (R.DISPATCHING_TOOLS, R.RECONCILING),
    (R.CALLING_MODEL, R.RETRY_WAIT),
    (R.VERIFYING, R.INCOMPLETE),
    (R.CANCELLING, R.CANCELLED),
)
"""The arrows that are drawn. The others (pause, cancel, stop) leave any state; words say so."""


@dataclass(frozen=True, slots=True)
class Node:
    """One state. `kind`: current, next (where a paused run goes on), visited or plain."""

    name: str
    words: str
    x: int
    y: int
    kind: str

    @property
    def middle(self) -> int:
        return self.x + BOX // 2

    @property
    def baseline(self) -> int:
        return self.y + TALL // 2 + 4


@dataclass(frozen=True, slots=True)
class Graph:
    """The drawing. `paths` are the `d` of one SVG path each."""

    nodes: list[Node]
    paths: list[str]
    current: str
    follows: list[str]
    width: int = WIDTH
    height: int = HEIGHT
    box: int = BOX
    tall: int = TALL


def graph_of(*, state: str, resume_to: str | None, visited: frozenset[str]) -> Graph:
    """The drawing for a run in `state` that has been in `visited`."""
    nodes = [_node(place, state=state, resume_to=resume_to, visited=visited) for place in _PLACES]
    follows = [str(to) for source, to in RUN_MOVES if source == state]
    return Graph(nodes, [_path(*arrow) for arrow in _ARROWS], state, follows)


def _node(place: RunState, *, state: str, resume_to: str | None, visited: frozenset[str]) -> Node:
    kind = "plain"
    if place in visited or place is R.QUEUED:
        kind = "visited"
    if place == resume_to:
        kind = "next"
    if place == state:
        kind = "current"
    column, row = _PLACES[place]
    words = str(place).replace("_", " ").capitalize()
    return Node(str(place), words, _COLUMNS[column], _ROWS[row], kind)


def _path(source: RunState, to: RunState) -> str:
    (from_column, from_row), (to_column, to_row) = _PLACES[source], _PLACES[to]
    left, right = _COLUMNS[from_column], _COLUMNS[to_column]
    top, bottom = _ROWS[from_row], _ROWS[to_row]
    if from_row == to_row and to_column > from_column:
        y = top + TALL // 2
        return f"M {left + BOX} {y} L {right} {y}"
    if from_row == to_row:  # back to an earlier step: over the top
        return f"M {left + BOX // 2} {top} C {left} 6, {right + BOX} 6, {right + BOX // 2} {top}"
    if from_column == to_column:
        return f"M {left + BOX // 2} {top + TALL} L {left + BOX // 2} {bottom}"
    x = left + BOX - 20
    return f"M {x} {top + TALL} L {right + 20} {bottom}"
