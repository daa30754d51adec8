"""The long poll: an answer that waits for the run to change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection

from runs.api.status import TERMINAL
from runs.models import Run
from runs.watching import watching

AT_ONCE = 8
"""Requests of one process that may wait; each holds a thread. Further ones are answered at once."""
_slots = threading.BoundedSemaphore(AT_ONCE)

Body = dict[str, Any]


def tag_of(body: Body) -> str:
    """The ETag of a run's JSON."""
    return f'"rev-{body["revision"]}"'


def watched() -> int:
    """How many requests of this process wait now."""
    return AT_ONCE - _slots._value  # noqa: SLF001  (there is no other way to ask)


def until_changed(*, run: Run, known: str, seconds: int, read: Callable[[], Body]) -> Body:
    """The run once its status is another than now, or it has ended, or `seconds` are over.

    With `known` (an ETag) any other revision is a change. No connection is held while waiting.
    """
    first = read()
    if not seconds or _is_news(first, first, known) or not _slots.acquire(blocking=False):
        return first
    moved = threading.Event()
    until = time.monotonic() + seconds
    try:
        with watching(run.id, seen=run.event_seq, told=moved.set):
            body = first
            while not _is_news(body, first, known):
                connection.close()  # back to the pool
                if not moved.wait(max(0.0, until - time.monotonic())):
                    break
                moved.clear()
                body = read()
            return body
    finally:
        _slots.release()


def _is_news(body: Body, first: Body, known: str) -> bool:
    if body["status"] in TERMINAL:
        return True
    return tag_of(body) != known if known else body["status"] != first["status"]
