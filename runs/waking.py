"""Telling readers that a run has moved: a hint through the broker that may get lost.

Who waits for a run asks the database itself once a second; a hint only makes it ask at once. So
nothing here fails its caller or makes it wait: ids go into a queue, one thread a process publishes
them, several at a time, and drops them while the broker is down.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any
from uuid import UUID

import redis
from django.conf import settings
from django.db import connection, transaction

log = logging.getLogger(__name__)

PAUSE_AFTER_FAILURE = 5.0
GATHER = 0.01
"""Seconds between two messages of a process: what happens in them travels together."""
GATHER_UNHEARD = 0.05
"""The same after a message that nobody listened to: a worker without readers at work tells of 40
runs a second, a message of which took 0.3 ms of CPU."""
TIMEOUT = 0.5


def channel() -> str:
    """The name of the channel; every installation on a server has its own."""
    options: dict[str, Any] = getattr(settings, "CELERY_BROKER_TRANSPORT_OPTIONS")  # noqa: B009
    return channel_of(options["global_keyprefix"])


def channel_of(prefix: str) -> str:
    return f"{prefix}wake"


def client() -> redis.Redis:
    """A client of the broker whose every wait is bounded. Raises redis.RedisError when used."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
    )


def wake_on_commit(run_id: UUID) -> None:
    """Say, once the open transaction has committed, that the run has moved. Never raises."""
    if connection.in_atomic_block:
        transaction.on_commit(lambda: _tell(run_id), robust=True)
    else:  # a transaction that Django does not know of
        _tell(run_id)


def _tell(run_id: UUID) -> None:
    try:
        _publisher().put(run_id)
    except RuntimeError as error:  # no thread can be started
        log.warning("readers are not woken, they look by themselves: %s", error)


class Publisher:
    """The ids to tell of, and the thread that does."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ids: set[UUID] = set()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        threading.Thread(target=self._forever, name="wake", daemon=True).start()

    def put(self, run_id: UUID) -> None:
        with self._lock:
            self._ids.add(run_id)
        if not self._ready.is_set():  # else the thread has not taken the ids yet
            self._ready.set()

    def _forever(self) -> None:
        conn: redis.Redis | None = None
        not_before = 0.0
        while True:
            self._ready.wait()
            time.sleep(max(GATHER, not_before - time.monotonic()))
            self._ready.clear()
            with self._lock:
                ids, self._ids = self._ids, set()
            try:
                conn = conn or client()
                heard = conn.publish(channel(), ",".join(run_id.hex for run_id in ids))
                not_before = time.monotonic() + (GATHER if heard else GATHER_UNHEARD)
            except (redis.RedisError, ValueError, OSError) as error:
                log.info("readers are not woken, they look by themselves: %s", error)
                if conn is not None:
                    conn.close()
                conn = None
                time.sleep(PAUSE_AFTER_FAILURE)


_current: Publisher | None = None
_lock = threading.Lock()


def _publisher() -> Publisher:
    """This process's publisher, also in a forked child."""
    global _current  # noqa: PLW0603  (one a process)
    if _current is None or _current.pid != os.getpid():
        with _lock:
            if _current is None or _current.pid != os.getpid():
                _current = Publisher()
    return _current
