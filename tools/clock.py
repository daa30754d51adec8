"""The clock of a call's limits: it goes on while the machine sleeps.

A paused virtual machine must not send after its time when it goes on. `time.monotonic()` stands
still while the machine is suspended; CLOCK_BOOTTIME does not. Where a system has no such clock it
is the monotonic one.
"""

from __future__ import annotations

import time


def _clock() -> int | None:
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    try:
        if clock is not None:
            time.clock_gettime(clock)
    except OSError:  # the kernel is older than the C library
        return None
    return clock


_CLOCK = _clock()


def now() -> float:
    """Seconds since some fixed moment; never set back, and only good for differences."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


PROMPT = 0.25
"""Seconds within which another clock's time is taken for the present one."""


def answered(asked: float) -> float:
    """The moment on this clock that goes with a time read from another, which was asked at `asked`.

    It is now, after a prompt answer: what is dated with it is early by milliseconds, and never
    after what followed it. When the answer took longer, or this process stood still meanwhile, it
    is the question: rather late, so that a lease outlasts the calls that are made under it.
    """
    at = now()
    return at if at - asked < PROMPT else asked
