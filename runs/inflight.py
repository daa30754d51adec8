"""What this process is busy with, and whether a thread of it is stuck.

A thread cannot be stopped from outside. Each call has a time limit of its own, and its lease lapses
a margin after that; a thread still in its call then is *stuck*: its slot is lost until the process
is replaced. The beat looks here and ends the process (`runs/worker.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_drives: dict[int, float] = {}
"""Thread -> until when its call may take (monotonic s); infinity between two calls."""


@contextmanager
def driving() -> Iterator[None]:
    """This thread drives a run."""
    me = threading.get_ident()
    with _lock:
        outer = _drives.get(me)
        _drives[me] = math.inf
    try:
        yield
    finally:
        with _lock:
            if outer is None:
                _drives.pop(me, None)
            else:
                _drives[me] = outer


@contextmanager
def calling(*, seconds: float) -> Iterator[None]:
    """This thread makes an outside call that is over, or stuck, within `seconds`."""
    with driving():
        with _lock:
            _drives[threading.get_ident()] = time.monotonic() + seconds
        yield


def overdue() -> list[float]:
    """For each stuck thread, how long its call has been too late (s), longest first."""
    now = time.monotonic()
    with _lock:
        late = [now - until for until in _drives.values() if until < now]
    return sorted(late, reverse=True)


def busy() -> int:
    """Threads that drive a run and are not stuck."""
    now = time.monotonic()
    with _lock:
        return sum(until >= now for until in _drives.values())


def must_leave(*, slots: int, share: float, seconds: float) -> str:
    """Why this process must be replaced: too many stuck threads, or one for too long; else ""."""
    late = overdue()
    if late and late[0] >= seconds:
        return f"a call is {late[0]:.0f} s past its deadline"
    if late and len(late) >= share * slots:
        return f"{len(late)} of {slots} threads are stuck in a call"
    return ""


def forget() -> None:
    """In a forked child: the threads of the parent are not here."""
    global _lock  # noqa: PLW0603  (a lock that a thread of the parent held stays locked here)
    _lock = threading.Lock()
    _drives.clear()
