"""docs/states.md is what the transition tables say today."""

from __future__ import annotations

from agentcore.lifecycle import ACTION_MOVES, APPROVAL_MOVES, RUN_MOVES
from runs.management.commands.states import PAGE, page


def test_the_page_is_what_the_tables_say_today() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python manage.py states --write`"


def test_the_page_lists_every_move_with_its_cause() -> None:
    text = page()
    for moves in (RUN_MOVES, ACTION_MOVES, APPROVAL_MOVES):
        for (old, new), cause in moves.items():
            assert f"| {old} | {new} | {cause} |" in text
