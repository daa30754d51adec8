"""Celery's signals around the life of a worker process: capture queues, beat, sweep, drain."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from celery import signals
from django.conf import settings

from runs import sweeps, worker

log = logging.getLogger(__name__)


@signals.celeryd_after_setup.connect
def capture_queues(instance: Any, **_: Any) -> None:
    """The `-Q` of this worker, once: `consume_from` means something else in other processes."""
    worker.set_queues(instance.app.amqp.queues.consume_from)


@signals.worker_ready.connect
def start(**_: Any) -> None:
    identity = worker.current()
    sweeps.start_thread(stop=identity.draining)
    log.info("worker %s serves %s", identity.id, ", ".join(sorted(identity.queues)))


@signals.worker_shutting_down.connect
def drain(**_: Any) -> None:
    """TERM: nothing new starts. What is still in flight at the grace limit is cut, and settled by
    whoever claims the run next."""
    worker.drain()
    timer = threading.Timer(settings.AGENTCORE_OPTIONS.grace_seconds, os._exit, args=(75,))
    timer.daemon = True
    timer.start()


@signals.worker_shutdown.connect
def stop(**_: Any) -> None:
    worker.stop()
