"""`manage.py states`: the transition tables as a page with graphs. `--write` updates the docs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agentcore.lifecycle import (
    ACTION_MOVES,
    ACTION_OPEN,
    ACTION_PATHS,
    ACTION_TERMINAL,
    ACTION_UNDECIDED,
    APPROVAL_MOVES,
    APPROVAL_TERMINAL,
    RUN_LIVE,
    RUN_MOVES,
    RUN_PATHS,
    RUN_TERMINAL,
    ActionState,
    ApprovalState,
    RunState,
    StopReason,
    step_of,
)
from runs.api.status import status_table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "states.md"
Moves = Mapping[Any, str]
Paths = Iterable[tuple[StrEnum, ...]]

HEAD = """\
# States

Written by `python manage.py states --write` from `agentcore/lifecycle.py`; a test compares. The
same tables are checked in Python (`runs/transitions.py`, `approvals/records.py`) and by triggers
in PostgreSQL (`runs/migrations/sql`, `approvals/migrations/sql`).

A *move* is one arrow. A *path* is a chain of moves with no outside call on it: one transaction
writes it at once, and its event names every move. A database write that is neither is refused.
"""


class Command(BaseCommand):
    help = "Print the states of runs, actions and approvals as Markdown with Mermaid graphs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", action="store_true", help="write docs/states.md")

    def handle(self, *_: Any, write: bool, **__: Any) -> None:
        if write:
            PAGE.write_text(page(), encoding="utf-8")
            self.stdout.write(f"wrote {PAGE.parent.name}/{PAGE.name}")
        else:
            self.stdout.write(page(), ending="")


def page() -> str:
    """The whole page as Markdown."""
    sections = [HEAD, _run_section(), _action_section(), _approval_section(), _status_section()]
    return "\n".join(sections)


def _run_section() -> str:
    # "Any live state -> X" would be a third of all arrows; the graph leaves these to the table.
    common = {RunState.SUSPENDED, RunState.CANCELLING, RunState.INCOMPLETE, RunState.FAILED}
    shown = {
        pair: cause
        for pair, cause in RUN_MOVES.items()
        if pair == (RunState.VERIFYING, RunState.INCOMPLETE)
        or (pair[1] not in common and pair[0] not in {RunState.SUSPENDED, RunState.RETRY_WAIT})
    }
    due = [(state, step_of(state)) for state in RunState if state in RUN_LIVE - {"RETRY_WAIT"}]
    due.append((RunState.RETRY_WAIT, "the step of `resume_to`"))
    return "\n".join(
        [
            "## Run\n",
            "Not drawn: every live state but CANCELLING may become SUSPENDED, CANCELLING,",
            "INCOMPLETE or FAILED; RETRY_WAIT and SUSPENDED go back to the state in `resume_to`.\n",
            _graph(shown, first=RunState.QUEUED, terminal=RUN_TERMINAL),
            f"Terminal: {_listed(RunState, RUN_TERMINAL)}.",
            f"Stop reasons: {_listed(StopReason, set(StopReason))}.\n",
            _table("Due state", "Step", due),
            _moves_table(RUN_MOVES),
            "Paths of one transaction:\n",
            _paths(RUN_PATHS),
        ]
    )


def _action_section() -> str:
    return "\n".join(
        [
            "## Action\n",
            _graph(ACTION_MOVES, first=ActionState.PROPOSED, terminal=ACTION_TERMINAL),
            f"Undecided (nothing was sent): {_listed(ActionState, ACTION_UNDECIDED)}.",
            f"Open (an effect may exist): {_listed(ActionState, ACTION_OPEN)}.",
            f"Terminal: {_listed(ActionState, ACTION_TERMINAL)}.\n",
            _moves_table(ACTION_MOVES),
            "Paths of one transaction:\n",
            _paths(path for path in ACTION_PATHS if len(path) > 2),
        ]
    )


def _approval_section() -> str:
    return "\n".join(
        [
            "## Approval\n",
            _graph(APPROVAL_MOVES, first=ApprovalState.PENDING, terminal=APPROVAL_TERMINAL),
            _moves_table(APPROVAL_MOVES),
        ]
    )


def _status_section() -> str:
    return "\n".join(
        [
            "## Public status\n",
            "What REST shows for a run. The first row that applies wins.\n",
            _table("Run", "Status", status_table()),
        ]
    )


def _graph(moves: Moves, *, first: StrEnum, terminal: Iterable[StrEnum]) -> str:
    arrows = [f"    [*] --> {first}"]
    arrows += [f"    {old} --> {new} : {cause}" for (old, new), cause in _sorted(moves)]
    arrows += [f"    {state} --> [*]" for state in type(first) if state in set(terminal)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```\n"])


def _moves_table(moves: Moves) -> str:
    lines = ["| From | To | Cause |", "|---|---|---|"]
    lines += [f"| {old} | {new} | {cause} |" for (old, new), cause in _sorted(moves)]
    return "\n".join([*lines, ""])


def _table(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {left} | {right} |", "|---|---|"]
    lines += [f"| {one} | {other} |" for one, other in rows]
    return "\n".join([*lines, ""])


def _paths(paths: Paths) -> str:
    return "\n".join([*(f"- {' → '.join(path)}" for path in paths), ""])


def _listed(states: type[StrEnum], chosen: Iterable[StrEnum]) -> str:
    wanted = set(chosen)
    return ", ".join(state for state in states if state in wanted)


def _sorted(moves: Moves) -> list[tuple[tuple[StrEnum, StrEnum], str]]:
    """In the order in which the states are declared: some moves come from sets, which have none."""

    def declared(item: tuple[tuple[StrEnum, StrEnum], str]) -> tuple[int, int]:
        (old, new), _ = item
        names = type(old).__members__
        return list(names).index(old.name), list(names).index(new.name)

    return sorted(moves.items(), key=declared)
