"""Celery's signals around the life of a worker process: queues, beat, sweep, drain, end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Any

import psycopg
from celery import signals
from celery.concurrency.prefork import TaskPool as Prefork
from django.conf import settings
from django.db import DatabaseError, connection

from runs import chores, fleet, isolation, processor, sweeps, worker
from runs.doctor import settings_findings

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds until a worker that began before its database tries again."""


@signals.celeryd_after_setup.connect
def capture(instance: Any, **_: Any) -> None:
    """The `-Q` of this worker, once: `consume_from` means something else in other processes."""
    refuse_broken_promises()
    queues = frozenset(instance.app.amqp.queues.consume_from)
    prefork = issubclass(instance.pool_cls, Prefork)
    if isolation.QUEUE in queues and not (prefork and instance.concurrency == 1 == len(queues)):
        raise SystemExit(
            f"a worker for the queue {isolation.QUEUE!r} drives runs that may kill it: start it "
            f"alone, with `-P processes -c 1 -Q {isolation.QUEUE}` (Celery reads `-P prefork` as"
            " the configured pool, which is threads)"
        )
    slots = instance.concurrency
    # A forked child drives one run: it just exits, and its parent makes a new one.
    on_stuck = None if prefork else _terminate
    worker.configure(queues=queues, slots=slots, consumes=True, on_stuck=on_stuck)


def refuse_broken_promises() -> None:
    """Celery runs Django's system checks and ignores what they say. Raises SystemExit."""
    wrong = [finding for finding in settings_findings() if finding.level == "FAIL"]
    if wrong:
        lines = [f"agentcore.E101 {f.name}: {f.said}. {f.cure}" for f in wrong]
        raise SystemExit("this worker would break a promise:\n" + "\n".join(lines))


def _terminate() -> None:
    """A warm shutdown of this process: it reads no more messages."""
    os.kill(os.getpid(), signal.SIGTERM)


@signals.worker_ready.connect
def start(sender: Any, **_: Any) -> None:
    """The threads beside the drives; they are begun later when the database is not there yet."""
    if not _begun(sender.pool):
        threading.Thread(target=_begin, args=(sender.pool,), name="begin", daemon=True).start()


def _begin(pool: Any) -> None:
    while not worker.is_draining():
        time.sleep(RETRY)
        if _begun(pool):
            return


def _begun(pool: Any) -> bool:
    """False when the database cannot be reached: without a sweep nothing would be delivered."""
    try:
        identity = worker.current()
    except psycopg.Error as error:
        log.warning("this worker cannot begin, trying again in %.0f s: %s", RETRY, error)
        return False
    # Forked children would inherit it, and they may run side by side.
    if settings.AGENTCORE_OPTIONS.one_processor and not isinstance(pool, Prefork):
        _keep_to_one_processor(identity)
    sweeps.start_thread(stop=identity.draining)
    chores.start_threads(stop=identity.draining)
    log.info("worker %s serves %s", identity.id, ", ".join(sorted(identity.queues)))
    return True


def _keep_to_one_processor(identity: worker.WorkerIdentity) -> None:
    try:
        order = fleet.place_on(identity.hostname, identity.id)
    except DatabaseError as error:
        log.info("worker %s does not know its place on this machine: %s", identity.id, error)
        order = identity.pid
    finally:
        connection.close()
    number = processor.keep(order=order)
    if number is not None:
        log.info("worker %s keeps to processor %d", identity.id, number)


@signals.worker_shutting_down.connect
def drain(**_: Any) -> None:
    """TERM: nothing new starts. What is still in flight at the grace limit is cut, and settled by
    whoever claims the run next."""
    worker.drain()
    timer = threading.Timer(settings.AGENTCORE_OPTIONS.grace_seconds, worker.leave)
    timer.daemon = True
    timer.start()


@signals.worker_process_shutdown.connect
def stop_child(**_: Any) -> None:
    """A forked child ends in order."""
    worker.stop()


@signals.worker_shutdown.connect
def stop(**_: Any) -> None:
    """The end in order, or with the code that asks for a new process when threads were stuck."""
    processor.free()  # a program that takes the place of this one would inherit it
    if worker.is_leaving():
        worker.leave()
    worker.stop()
