"""The demo's own parts: it reads forms as a browser does and tells the timeline truly."""

from __future__ import annotations

import io
from typing import Any

import pytest

from examples.refund_desk.admin_client import read_forms
from examples.refund_desk.screen import Screen
from examples.refund_desk.services import ServiceError, spawn, start_payment_service, start_web
from examples.refund_desk.timeline import lines, rows


def event(seconds: float, *moves: dict[str, Any]) -> dict[str, Any]:
    at = f"2026-01-01T00:00:{seconds:06.3f}+00:00"
    return {
        "created_at": at,
        "actor": {"type": "user", "id": "ann"},
        "data": {"transitions": moves},
    }


def run_move(turn: int, step: str, to: str) -> dict[str, Any]:
    return {"object": "run", "turn": turn, "step": step, "to": to}


def action_move(turn: int, to: str, source: str | None) -> dict[str, Any]:
    return {"object": "action", "turn": turn, "tool": "a.pay", "from": source, "to": to}


EVENTS = [
    event(0, {"object": "run", "from": None, "to": "QUEUED"}),
    event(
        0.1,
        run_move(1, "compile", "COMPILING_CONTEXT"),
        run_move(1, "compile", "CALLING_MODEL"),
    ),
    event(
        0.3,
        {"object": "attempt", "kind": "MODEL", "turn": 1, "to": "SUCCESS"},
        action_move(1, "PROPOSED", None),
        run_move(1, "model", "DISPATCHING_TOOLS"),
        action_move(1, "AWAITING_APPROVAL", "PROPOSED"),
        run_move(1, "tools", "WAITING_APPROVAL"),
    ),
    event(8, {"object": "approval", "to": "APPROVED"}, action_move(1, "READY", "PROPOSED")),
    event(
        9,
        {"object": "attempt", "kind": "TOOL", "turn": 1, "to": "SUCCESS"},
        action_move(1, "SUCCEEDED", "RUNNING"),
        run_move(1, "tools", "OBSERVING"),
        run_move(1, "observe", "COMPILING_CONTEXT"),
    ),
]


def test_each_link_is_a_row_and_a_pause_starts_a_new_one() -> None:
    found = [(row.turn, row.link, row.began, row.ended) for row in rows(EVENTS)]
    assert found == [
        (1, "compile", 0.0, 0.1),
        (1, "model", 0.1, 0.3),
        (1, "tools", 0.3, 0.3),
        (1, "tools", 8.0, 9.0),
        (1, "observe", 9.0, 9.0),
    ]


def test_the_timeline_says_who_decided_and_how_it_ended() -> None:
    text = "\n".join(lines(EVENTS))
    assert "approved by ann" in text
    assert "pay SUCCEEDED" in text
    assert "run WAITING_APPROVAL" in text
    assert [line.split()[0] for line in lines(EVENTS)] == [
        "turn",
        "compile_context",
        "call_model",
        "dispatch_tools",
        "(waited)",
        "dispatch_tools",
        "observe",
    ]
    assert lines([]) == []


def test_forms_are_read_with_their_hidden_fields_and_buttons() -> None:
    html = """
    <form method="post"><input type="hidden" name="csrf" value="x&amp;y">
      <input type="checkbox" name="no"><input type="checkbox" name="yes" value="1" checked>
      <textarea name="reason">as is</textarea>
      <button name="decision" value="APPROVE">Approve</button>
      <button type="button" name="other" value="1">No</button></form>
    <form action="/search"><input name="q"></form>"""
    first, second = read_forms(html)
    assert first.fields == {"csrf": "x&y", "yes": "1", "reason": "as is"}
    assert first.buttons == [("decision", "APPROVE")]
    assert (first.method, second.action) == ("post", "/search")


def test_no_colour_outside_a_terminal() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    with screen.step("starting"):
        pass
    screen.check(ok=False, what="it holds")
    assert "\x1b" not in stream.getvalue()
    assert "FAILED  it holds" in stream.getvalue()


def test_a_process_that_ends_while_starting_shows_its_last_words(tmp_path: Any) -> None:
    first = start_payment_service(tmp_path, name="one")
    try:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(ServiceError, match=f"port {port} cannot be used"):
            start_payment_service(tmp_path, name="two", port=port)
        with pytest.raises(ServiceError, match="the port is taken"):
            start_web(tmp_path, env={}, port=port)
    finally:
        first.stop()


def test_stop_ends_a_paused_process(tmp_path: Any) -> None:
    service = spawn(name="sleeper", command=["sleep", "600"], folder=tmp_path)
    service.pause()
    assert service.stop(grace=5) == -15
    assert not service.alive
