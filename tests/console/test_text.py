"""How values read: nothing hidden, nothing cut in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agentcore.lifecycle import ActionState, ApprovalState, RunState
from runs.console import text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain, naïve, 日本, 👍", "plain, naïve, 日本, 👍"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u2066b\u200fc", "a⟨U+2066⟩b⟨U+200F⟩c"),
        ("zero\u200bwidth\ufeff", "zero⟨U+200B⟩width⟨U+FEFF⟩"),
        ("bell\x07 esc\x1b[2J", "bell⟨U+0007⟩ esc⟨U+001B⟩[2J"),
        ("cr\rlf\nand\ttab", "cr⟨U+000D⟩lf\nand\ttab"),
        ("nbsp\u00a0wide\u3000", "nbsp⟨U+00A0⟩wide⟨U+3000⟩"),
        ("filler\u3164\u2800", "filler⟨U+3164⟩⟨U+2800⟩"),
        ("tag\U000e0041 variation\ufe0f", "tag⟨U+E0041⟩ variation⟨U+FE0F⟩"),
        ("line\u2028para\u2029", "line⟨U+2028⟩para⟨U+2029⟩"),
        (None, "None"),
        (12, "12"),
    ],
)
def test_visible(raw: object, shown: str) -> None:
    assert text.visible(raw) == shown


def test_long_text_says_what_is_missing() -> None:
    assert text.capped("x" * 30, 10) == "x" * 10 + "\n… 20 more characters are not shown"
    assert text.capped("short", 10) == "short"


def test_a_line_stays_one_line() -> None:
    assert text.short("a\nb   c\u202e") == "a b c⟨U+202E⟩"
    assert text.short("y" * 200, 20) == "y" * 19 + "…"


def test_cells_tell_types_apart() -> None:
    value = {"b": "1", "a": 1, "c": [True, None, {"d": ""}], "e": {}, "f": [], "g": 1.5}
    assert [(c.path, c.kind, c.text) for c in text.cells(value)] == [
        ("a", "whole number", "1"),
        ("b", "text", "1"),
        ("c[0]", "yes/no", "true"),
        ("c[1]", "nothing", "null"),
        ("c[2].d", "text", '""'),
        ("e", "empty object", "{}"),
        ("f", "empty list", "[]"),
        ("g", "number", "1.5"),
    ]


def test_changes_put_what_changes_first() -> None:
    lines = text.changes({"a": 1, "b": 2, "gone": 3}, {"a": 1, "b": 5, "new": True})
    assert [(c.path, c.before, c.after, c.changed) for c in lines] == [
        ("b", "2", "5", True),
        ("gone", "3", "—", True),
        ("new", "—", "true", True),
        ("a", "1", "1", False),
    ]
    assert text.changes(None, {}) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"request": "refund it"}, "refund it"),
        ("just text", "just text"),
        ({"order": 7}, '{"order": 7}'),
        ([1], "[1]"),
    ],
)
def test_goal(value: object, words: str) -> None:
    assert text.goal(value) == words


def test_relative_times() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert text.relative(now - timedelta(seconds=200), now) == "3 min 20 s ago"
    assert text.relative(now + timedelta(hours=4, minutes=5, seconds=9), now) == "in 4 h 5 min"
    assert text.relative(now + timedelta(milliseconds=20), now) == "now"
    assert text.span(timedelta(days=2, seconds=1)) == "2 d 1 s"


def test_a_state_is_words_and_a_shape() -> None:
    for state in (*RunState, *ActionState, *ApprovalState):
        chip = text.chip(state)
        assert chip.words.upper().replace(" ", "_") == state
        assert chip.shape
    assert len({text.chip(s).shape for s in ("COMPLETED", "FAILED", "UNKNOWN", "CANCELLED")}) == 4
