"""Who this process is: its row, its beat, its queues and whether it is draining.

A lease is live while the beat of its worker is fresh, so one write a beat keeps all runs of the
process. The beat has a connection of its own: a full pool must not let every lease lapse at once.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.types.json import Jsonb

from agentcore import lifecycle
from agentcore.version import CODE_VERSION

log = logging.getLogger(__name__)


class WorkerIdentity:
    """One incarnation of a worker process."""

    def __init__(self, queues: frozenset[str]) -> None:
        self.id: UUID = uuid4()
        self.pid = os.getpid()
        self.queues = queues
        self.draining = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_forever, name="beat", daemon=True)

    @property
    def actor(self) -> str:
        return f"worker:{self.id}"

    @property
    def inline(self) -> frozenset[str]:
        """The steps this process goes on with in place: those whose queue it consumes."""
        return self.queues & frozenset(lifecycle.STEPS)

    def start(self) -> None:
        """Write the row, then keep it fresh. Raises when the database cannot be reached."""
        with _own_connection() as conn:
            self._beat(conn)
        self._thread.start()

    def stop(self) -> None:
        """End the beat and say so in the row; every lease of this process lapses at once."""
        self.draining.set()
        self._stop.set()
        try:
            with _own_connection() as conn:
                conn.execute(
                    "UPDATE runs_worker SET stopped_at = clock_timestamp(),"
                    " beat_at = 'epoch' WHERE id = %s",
                    [self.id],
                )
        except psycopg.Error as error:
            log.warning("worker %s could not say that it stops: %s", self.id, error)

    def _beat_forever(self) -> None:
        period = settings.AGENTCORE_OPTIONS.beat_period
        conn: psycopg.Connection | None = None
        while not self._stop.wait(period):
            try:
                conn = conn or _own_connection()
                self._beat(conn)
            except psycopg.Error as error:
                log.warning("beat of worker %s failed: %s", self.id, error)
                if conn is not None:
                    conn.close()
                conn = None
        if conn is not None:
            conn.close()

    def _beat(self, conn: psycopg.Connection) -> None:
        conn.execute(
            "INSERT INTO runs_worker (id, hostname, pid, queues, version, started_at, beat_at)"
            " VALUES (%s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp())"
            " ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp()",
            [
                self.id,
                socket.gethostname(),
                self.pid,
                Jsonb(sorted(self.queues)),
                CODE_VERSION,
            ],
        )


def _own_connection() -> psycopg.Connection:
    """A connection outside the pool, not waiting for the disk: a lost beat costs one period."""
    params = connection.get_connection_params()
    keep = {
        key: value
        for key, value in params.items()
        if key in {"dbname", "user", "password", "host", "port", "sslmode", "connect_timeout"}
    }
    conn = psycopg.connect(**keep, autocommit=True, application_name="agentcore-beat")
    conn.execute("SET synchronous_commit = off; SET lock_timeout = '1s'")
    return conn


_current: WorkerIdentity | None = None
_queues: frozenset[str] = frozenset(lifecycle.STEPS)
_lock = threading.Lock()


def set_queues(queues: Iterable[str]) -> None:
    """The queues this process consumes; captured once, before it starts."""
    global _queues  # noqa: PLW0603  (one identity a process)
    _queues = frozenset(queues)


def current() -> WorkerIdentity:
    """This process's identity, started on first use (also in a forked child)."""
    global _current  # noqa: PLW0603  (one identity a process)
    with _lock:
        if _current is None or _current.pid != os.getpid():
            identity = WorkerIdentity(_queues)
            identity.start()
            _current = identity
        return _current


def is_draining() -> bool:
    return _current is not None and _current.draining.is_set()


def drain() -> None:
    """Start nothing new; what is in flight ends. Set on TERM."""
    if _current is not None:
        _current.draining.set()


def stop() -> None:
    if _current is not None and _current.pid == os.getpid():
        _current.stop()
