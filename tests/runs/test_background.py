"""What a request does not wait for: done in order by one thread, bounded, and before the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import dispatch, services
from runs.background import Background
from runs.models import Run
from tests.runs.api_support import Api, caller, declare_agent, make_token, request_for
from tests.world import ROOT


def test_items_are_done_in_their_order_by_one_thread() -> None:
    done: list[tuple[int, str]] = []
    work = Background[int](
        name="work",
        handle=lambda batch: done.extend((n, threading.current_thread().name) for n in batch),
        limit=100,
        patience=10,
    )
    assert all(work.put(number) for number in range(50))
    assert work.drain()
    assert done == [(number, "work") for number in range(50)]
    assert work.put(50)  # it goes on after a drain
    assert work.drain()
    assert len(done) == 51


def test_more_than_fit_are_dropped_and_a_failure_stops_nothing() -> None:
    begun, leave, done = threading.Event(), threading.Event(), []

    def handle(batch: list[int]) -> None:
        begun.set()
        assert leave.wait(10)
        done.append(batch)
        if batch == [0]:
            raise ValueError("the first one")

    work = Background[int](name="work", handle=handle, limit=2, patience=10)
    assert work.put(0)
    assert begun.wait(10)
    assert [work.put(number) for number in (1, 2, 3)] == [True, True, False]
    leave.set()
    assert work.drain()
    assert done == [[0], [1, 2]]


_PROGRAM = """
import sys, threading, time
from runs.background import Background
inside = threading.Event()
def handle(batch):
    inside.wait(5)
    sys.stdout.write("\\n".join(batch) + "\\n")
    sys.stdout.flush()
work = Background(name="work", handle=handle, limit=10, patience=10)
for text in ("one", "two", "three"):
    work.put(text)
inside.set()
"""


def test_what_waits_is_done_before_the_process_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["one", "two", "three"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own() -> None:
    done: list[int] = []
    work = Background[int](name="work", handle=done.extend, limit=10, patience=10)
    work.put(1)
    assert work.drain()
    work.put(2)
    pid = os.fork()
    if pid == 0:
        work.put(3)
        os._exit(0 if work.drain() and 3 in done else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert work.drain()
    assert done == [1, 2]


# --- starting a run ------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_answer_does_not_wait_for_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_agent()
    inside, leave = threading.Event(), threading.Event()
    sent = []

    def slow(hints: list[dispatch._Hint]) -> None:
        inside.set()
        assert leave.wait(10)
        sent.extend(hint.run_id for hint in hints)

    monkeypatch.setattr(dispatch, "_paused_until", 0.0)
    monkeypatch.setattr(dispatch, "_publish", slow)
    runs = [services.start_run(caller=caller(), request=request_for()) for _ in range(3)]
    assert inside.wait(10)
    assert sent == []
    leave.set()
    assert dispatch.drain()
    assert sent == [run.id for run in runs]


@pytest.mark.django_db(transaction=True)
def test_a_start_costs_few_statements() -> None:
    """Each is a round trip; `bench/rest.py` measures what they come to."""
    declare_agent()
    api = Api(make_token())
    api.post_run()  # the version of the agent is stored, the use of the token noted
    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert api.post_run(key="k").status_code == 201
    shown = [query["sql"].split(None, 2)[:2] for query in seen]
    assert len(seen) <= 4, shown  # BEGIN, key and clock and token, rows, COMMIT
    with CaptureQueriesContext(connection) as seen:
        assert api.post_run(key="k")["Idempotency-Replayed"] == "true"
    assert len(seen) <= 6
    assert Run.objects.count() == 2


def test_what_is_put_after_a_drain_that_did_not_wait_is_done() -> None:
    leave, done = threading.Event(), threading.Event()

    def handle(batch: list[int]) -> None:
        assert leave.wait(10)
        if 2 in batch:
            done.set()

    work = Background[int](name="work", handle=handle, limit=100, patience=0.01)
    work.put(1)
    thread = work._thread
    assert thread is not None
    assert not work.drain()  # its mark still waits for the thread
    leave.set()
    thread.join(10)
    assert work.put(2)
    assert done.wait(10)
