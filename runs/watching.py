"""Waiting for runs to move: one thread of a process watches all of them with one query.

It asks the database once a second, and at once for a run that `runs/waking.py` told of. A lost
hint so costs at most a second, and an open reader costs no connection.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import redis
from django.db import DatabaseError, InterfaceError, connection

from runs.models import Run
from runs.waking import channel, client

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at every watched run."""


class Watch:
    """One reader of one run. `seen` is the last head that it was told of."""

    def __init__(self, run_id: UUID, seen: int, told: Callable[[], object]) -> None:
        self.run_id = run_id
        self.seen = seen
        self.told = told


class Watcher:
    """Every watch of a process and the thread that looks after them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._watches: dict[UUID, set[Watch]] = {}
        self._lock = threading.Lock()
        self._any = threading.Event()
        threading.Thread(target=self._forever, name="watch", daemon=True).start()

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.setdefault(watch.run_id, set()).add(watch)
        self._any.set()

    def remove(self, watch: Watch) -> None:
        with self._lock:
            left = self._watches.get(watch.run_id, set())
            left.discard(watch)
            if not left:
                self._watches.pop(watch.run_id, None)
            if not self._watches:
                self._any.clear()

    def _forever(self) -> None:
        ear = _Ear()
        looked = 0.0
        while True:
            if not self._any.is_set():
                ear.close()
                self._any.wait()
            heard = ear.listen(max(0.0, looked + PERIOD - time.monotonic()))
            with self._lock:
                watched = list(self._watches)
            now = time.monotonic()
            if now - looked >= PERIOD:
                looked = now
            else:
                watched = [run_id for run_id in heard if run_id in self._watches]
            if watched:
                self._tell(_heads(watched))

    def _tell(self, heads: dict[UUID, int]) -> None:
        with self._lock:
            moved = [
                watch
                for run_id, head in heads.items()
                for watch in self._watches.get(run_id, ())
                if head > watch.seen
            ]
            for watch in moved:
                watch.seen = heads[watch.run_id]
        for watch in moved:
            watch.told()


def _heads(run_ids: Sequence[UUID]) -> dict[UUID, int]:
    """The newest `seq` of each run; nothing while the database cannot be asked."""
    try:
        return dict(Run.objects.filter(id__in=run_ids).values_list("id", "event_seq"))
    except (DatabaseError, InterfaceError) as error:
        log.warning("watched runs cannot be read: %s", error)
        return {}
    finally:
        connection.close()  # back to the pool


class _Ear:
    """Listens for hints; hears nothing while the broker is down."""

    def __init__(self) -> None:
        self._sub: redis.client.PubSub | None = None
        self._conn: redis.Redis | None = None

    def listen(self, seconds: float) -> set[UUID]:
        """Wait up to `seconds` for one hint; the runs it names."""
        until = time.monotonic() + seconds
        try:
            sub = self._sub or self._open()
            while True:
                left = until - time.monotonic()
                message = sub.get_message(ignore_subscribe_messages=True, timeout=max(left, 0.0))
                if message is not None:
                    return _ids(message["data"])
                if left <= 0:
                    return set()
        except (redis.RedisError, OSError, ValueError) as error:
            log.info("no hints of the broker, looking once a second: %s", error)
            self.close()
            time.sleep(max(0.0, until - time.monotonic()))
            return set()

    def _open(self) -> redis.client.PubSub:
        self._conn = client()
        self._sub = self._conn.pubsub()  # type: ignore[no-untyped-call]
        self._sub.subscribe(channel())
        return self._sub

    def close(self) -> None:
        for item in (self._sub, self._conn):
            if item is not None:
                item.close()
        self._sub = self._conn = None


def _ids(data: bytes) -> set[UUID]:
    """The runs that a hint names; anybody can publish, so nothing of it is believed."""
    found = set()
    for part in data[:4096].split(b","):
        try:
            found.add(UUID(hex=part.decode("ascii")))
        except ValueError:
            log.debug("a hint that names no run")
    return found


_current: Watcher | None = None
_lock = threading.Lock()


def watcher() -> Watcher:
    """This process's watcher, started on first use."""
    global _current  # noqa: PLW0603  (one a process)
    if _current is None or _current.pid != os.getpid():
        with _lock:
            if _current is None or _current.pid != os.getpid():
                _current = Watcher()
    return _current


@contextmanager
def watching(run_id: UUID, *, seen: int, told: Callable[[], object]) -> Iterator[Watch]:
    """Have `told` called, in another thread, each time the run has events after `seen`."""
    watch = Watch(run_id, seen, told)
    watcher().add(watch)
    try:
        yield watch
    finally:
        watcher().remove(watch)
