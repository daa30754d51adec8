"""A time limit for functions of tool developers, which may hang and only read."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MAX_WAIT = min(threading.TIMEOUT_MAX, 86_400.0)
_cleanups: list[Callable[[], None]] = []


class TookTooLong(Exception):  # noqa: N818
    """The function did not return in time. Its thread was left behind and will end alone."""


def at_thread_end(cleanup: Callable[[], None]) -> None:
    """Have `cleanup` called in each helper thread before it ends, e.g. to close connections."""
    if cleanup not in _cleanups:
        _cleanups.append(cleanup)


def run_limited(function: Callable[[], T], *, seconds: float) -> T:
    """Run `function` in a thread of its own and return its result or raise its exception.

    Raises TookTooLong after `seconds`. Only for functions that change nothing: the thread of a
    function that ran too long cannot be stopped, and what it still returns is lost.
    """
    if seconds <= 0:
        raise TookTooLong("no time left")
    result: list[T] = []
    error: list[BaseException] = []
    done = threading.Event()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            result.append(context.run(function))
        except BaseException as exc:  # noqa: BLE001  (raised again in the caller's thread)
            error.append(exc)
        finally:
            try:
                for cleanup in _cleanups:
                    cleanup()
            finally:
                done.set()

    threading.Thread(target=body, name="agentcore-limited", daemon=True).start()
    if not done.wait(_MAX_WAIT if math.isinf(seconds) else min(seconds, _MAX_WAIT)):
        raise TookTooLong(f"no answer within {seconds:.3g} s")
    if error:
        raise error[0]
    return result[0]
