"""Live text of a streamed answer, for people who watch. Nothing is stored, nothing acts on it.

A listener gets (attempt id, fragment) in the worker that makes the call. One that raises is noted
and left out of the rest of that call: watching must not disturb what is watched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

log = logging.getLogger(__name__)

Listener = Callable[[UUID, str], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Add a listener; the returned function takes it away again."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def sink(attempt_id: UUID) -> Callable[[str], None] | None:
    """Where the fragments of one call go; None when nobody listens."""
    if not _listeners:
        return None
    active = list(_listeners)

    def tell(text: str) -> None:
        for listener in list(active):
            try:
                listener(attempt_id, text)
            except Exception:
                active.remove(listener)
                log.exception("a listener of live text failed")

    return tell
