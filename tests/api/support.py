"""Doing in a test's own process what a worker does."""

from __future__ import annotations

from runs import worker
from runs.driver import drive
from runs.models import Run


def work_on(run: Run) -> None:
    """Drive a run as far as it goes, as a worker of all queues that then stops."""
    try:
        drive(run_id=run.id, revision=None)
    finally:
        worker.stop()
        worker._current = None
