"""Who this process is: its row, its beat, its queues and whether it is draining.

A lease is live while the beat of its worker is fresh, so one write a beat keeps all runs of the
process. The beat has a connection of its own: a full pool must not let every lease lapse at once.
The beat also looks for stuck threads and has the process replaced when there are too many, and
whether the process keeps to the right processor.
"""

from __future__ import annotations

import logging
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from django.db import connection, connections
from psycopg.types.json import Jsonb

from agentcore import lifecycle
from agentcore.version import CODE_VERSION
from runs import inflight, isolation, processor

log = logging.getLogger(__name__)

EXIT_REPLACE = 75
"""Exit code that asks the supervisor for a new process (EX_TEMPFAIL)."""
KEEP_ROWS = "7 days"
"""How long the row of a process that has ended is kept."""


class WorkerIdentity:
    """One incarnation of a worker process."""

    def __init__(self, queues: frozenset[str], *, consumes: bool = False) -> None:
        self.id: UUID = uuid4()
        self.pid = os.getpid()
        self.hostname = socket.gethostname()
        self.queues = queues
        self.consumes = consumes
        self.draining = threading.Event()
        self.swept_at: datetime | None = None
        self._leaving_since: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_forever, name="beat", daemon=True)

    @property
    def actor(self) -> str:
        return f"worker:{self.id}"

    @property
    def isolating(self) -> bool:
        """This process drives one run at a time, also one that kills it."""
        return isolation.QUEUE in self.queues

    @property
    def inline(self) -> frozenset[str]:
        """The steps this process goes on with in place: those whose queue it consumes, and all of
        them where a run is driven alone."""
        steps = frozenset(lifecycle.STEPS)
        return steps if self.isolating else self.queues & steps

    def start(self) -> None:
        """Write the row, then keep it fresh. Raises when the database cannot be reached."""
        with _own_connection() as conn:
            self._beat(conn)
            conn.execute(
                "DELETE FROM runs_worker"
                " WHERE greatest(beat_at, stopped_at) < clock_timestamp() - %s::interval",
                [KEEP_ROWS],
            )
        self._thread.start()

    def note_sweep(self) -> None:
        """A sweep has come through here; the next beat says so."""
        self.swept_at = datetime.now(UTC)

    def stop(self) -> None:
        """End the beat and say so in the row; every lease of this process lapses at once."""
        self.draining.set()
        self._stop.set()
        if self._thread.is_alive() and not self.is_leaving:
            self._thread.join(2.0)  # a beat after the row is stopped would revive it
        try:
            with _own_connection() as conn:
                conn.execute(
                    "UPDATE runs_worker SET stopped_at = clock_timestamp(), beat_at = 'epoch',"
                    " swept_at = greatest(swept_at, %s) WHERE id = %s",
                    [self.swept_at, self.id],
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
            processor.look()
            self._watch()
        if conn is not None:
            conn.close()

    def _beat(self, conn: psycopg.Connection) -> None:
        conn.execute(
            "INSERT INTO runs_worker (id, hostname, pid, queues, version, started_at, beat_at)"
            " VALUES (%s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp())"
            " ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp(), swept_at = %s",
            [
                self.id,
                self.hostname,
                self.pid,
                Jsonb(sorted(self.queues) if self.consumes else []),
                CODE_VERSION,
                self.swept_at,
            ],
        )

    def _watch(self) -> None:
        """Too many stuck threads: claim nothing more, let the others finish, then exit."""
        options = settings.AGENTCORE_OPTIONS
        if self._leaving_since is None:
            why = inflight.must_leave(
                slots=_slots, share=options.stuck_share, seconds=options.stuck_seconds
            )
            if not why:
                return
            log.critical("worker %s drains and exits %d: %s", self.id, EXIT_REPLACE, why)
            self._leaving_since = time.monotonic()
            drain()
            if _on_stuck is not None:
                _on_stuck()
        if not inflight.busy() or time.monotonic() - self._leaving_since > options.grace_seconds:
            leave()

    @property
    def is_leaving(self) -> bool:
        return self._leaving_since is not None


def _own_connection() -> psycopg.Connection:
    """A connection outside the pool, not waiting for the disk: a lost beat costs one period."""
    # What libpq knows, so that a dead network is noticed here too; what is Django's own is left.
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    params = {k: v for k, v in connection.get_connection_params().items() if k in known}
    params["application_name"] = "agentcore-beat"
    conn = psycopg.connect(**params, autocommit=True)
    conn.execute("SET synchronous_commit = off; SET lock_timeout = '1s'")
    return conn


_current: WorkerIdentity | None = None
_queues: frozenset[str] = frozenset(lifecycle.STEPS)
_consumes: bool = False
_slots: int = settings.AGENTCORE_OPTIONS.threads
_on_stuck: Callable[[], None] | None = None
_lock = threading.Lock()
_shared_drain = mmap.mmap(-1, 1)  # shared with forked children: a TERM reaches only their parent
_inherited: list[object] = []


def configure(
    *,
    queues: Iterable[str],
    slots: int,
    consumes: bool = False,
    on_stuck: Callable[[], None] | None = None,
) -> None:
    """What this process is; captured once, before it starts.

    `queues` name the steps it takes; `consumes`: it also reads their messages. `slots`: how many
    runs it drives at once. `on_stuck` ends it in order; without, it just exits.
    """
    global _queues, _slots, _consumes, _on_stuck
    _queues, _slots, _consumes, _on_stuck = frozenset(queues), slots, consumes, on_stuck


def current() -> WorkerIdentity:
    """This process's identity, started on first use (also in a forked child)."""
    global _current  # noqa: PLW0603  (one identity a process)
    with _lock:
        if _current is None or _current.pid != os.getpid():
            identity = WorkerIdentity(_queues, consumes=_consumes)
            identity.start()
            _current = identity
        return _current


def is_draining() -> bool:
    if _shared_drain[0]:
        return True
    return _current is not None and _current.draining.is_set()


def is_leaving() -> bool:
    """Stuck threads have condemned this process."""
    return _current is not None and _current.is_leaving


def drain() -> None:
    """Start nothing new; what is in flight ends. Set on TERM, for children too."""
    _shared_drain[0] = 1
    if _current is not None:
        _current.draining.set()


def stop() -> None:
    if _current is not None and _current.pid == os.getpid():
        _current.stop()


def note_sweep() -> None:
    """A sweep came through in this process."""
    if _current is not None and _current.pid == os.getpid():
        _current.note_sweep()


def leave() -> None:
    """End this process now and ask for a new one; its leases lapse with it."""
    last_word = threading.Thread(target=stop, name="last-word", daemon=True)
    last_word.start()
    last_word.join(3.0)  # the database may be what hangs
    os._exit(EXIT_REPLACE)


def _forget_parent() -> None:
    """In a forked child: nothing of the parent's threads and connections may be used.

    The parent's connections are kept, unused: to close one here would end the parent's session.
    """
    global _current, _lock, _slots, _on_stuck
    _inherited.append(_current)
    _current, _lock, _slots, _on_stuck = None, threading.Lock(), 1, None
    inflight.forget()
    for wrapper in connections.all(initialized_only=True):
        _inherited.append(wrapper.connection)
        wrapper.connection = None
        pools = getattr(type(wrapper), "_connection_pools", None)
        if pools:
            _inherited.append(dict(pools))
            pools.clear()


os.register_at_fork(after_in_child=_forget_parent)
