"""The limits of a call are read on a clock that goes on while the machine sleeps."""

from __future__ import annotations

import ast
import socket
import time

import pytest

from tests.architecture.source import nodes, place
from tools import NotSent, clock
from tools.testing import make_context
from tools.wire import GuardedSocket


def test_it_counts_the_time_of_a_suspended_machine_where_the_system_can() -> None:
    there = getattr(time, "CLOCK_BOOTTIME", None)
    read = time.monotonic if there is None else lambda: time.clock_gettime(there)
    assert read() <= clock.now() <= read()


def test_a_prompt_answer_counts_from_now_and_a_late_one_from_its_question() -> None:
    asked = clock.now()
    assert asked <= clock.answered(asked) <= clock.now()
    long_ago = clock.now() - clock.PROMPT - 1
    assert clock.answered(long_ago) == long_ago


def test_a_kernel_without_that_clock_has_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", refuse, raising=False)
    assert clock._clock() is None


def test_a_machine_that_slept_past_send_by_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock has not moved; the call's own clock has."""
    context = make_context()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = GuardedSocket(ours, deadline=context.deadline, send_by=context.send_by)
        woken = clock.now() + 3600
        monkeypatch.setattr(clock, "now", lambda: woken)
        with pytest.raises(NotSent) as caught:
            wire.sendall(b"POST / HTTP/1.1")
        assert not wire.started
        assert context.remaining == 0.0
        with pytest.raises(NotSent):
            context.http.request("POST", "http://127.0.0.1:9/")
    assert caught.value.error_class == "send_by_passed"


def test_no_tool_code_reads_another_clock() -> None:
    others = [
        place(path, node)
        for path, node in nodes("tools")
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("time.monotonic", "time.time", "time.perf_counter")
        and path.name != "clock.py"
    ]
    assert others == []
