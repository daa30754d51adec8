"""What a worker process does beside driving runs: webhooks, bulk operations, tidying up.

Threads of their own, so that a slow receiver never holds up the sweep. `do_once` is the same for
cron (`manage.py sweep`).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from runs import audit, once, sessions, switches
from runs.bulk import run_due_bulk
from runs.webhooks import sending

log = logging.getLogger(__name__)

TIDY_EVERY = 60.0
"""Seconds between two looks for answers that are too old to keep."""


@dataclass(frozen=True, slots=True)
class Done:
    """What one pass did."""

    sent: int = 0
    bulk: int = 0
    woken: int = 0
    forgotten: int = 0
    let_go: int = 0
    anchored: int = 0


def do_once() -> Done:
    """One pass of every chore, until nothing is due."""
    bulk = 0
    while count := run_due_bulk():
        bulk += count
    return Done(
        sent=sending.deliver_due(),
        bulk=bulk,
        woken=sessions.wake_waiting(),
        forgotten=once.forget_old(),
        let_go=switches.let_go(),
        anchored=audit.anchor_due(),
    )


def start_threads(*, stop: threading.Event) -> list[threading.Thread]:
    """Do the chores in the background until `stop`."""
    threads = [
        threading.Thread(target=target, args=(stop,), name=name, daemon=True)
        for name, target in (("webhooks", sending.run_forever), ("chores", _forever))
    ]
    for thread in threads:
        thread.start()
    return threads


def _forever(stop: threading.Event) -> None:
    period = settings.AGENTCORE_OPTIONS.sweep_period
    tidied = 0.0
    more = False
    while not stop.wait(0 if more else period * random.uniform(0.75, 1.25)):  # noqa: S311  (jitter)
        try:
            more = run_due_bulk() > 0
            sessions.wake_waiting()
            switches.let_go()
            if time.monotonic() - tidied > TIDY_EVERY:
                once.forget_old()
                audit.anchor_due()
                tidied = time.monotonic()
        except Exception:
            more = False
            log.exception("a chore failed; the next pass tries again")
        finally:
            connection.close()
