"""The only place that publishes: a hint says "this run may be due", nothing more.

A hint may be lost, doubled or late; the row decides and the sweep delivers. So publishing never
fails its caller, is bounded by socket timeouts, and pauses after a failure instead of holding
every caller for a time-out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from celery import chain, current_app
from celery.utils import uuid as task_uuid
from django.db import transaction

from agentcore import failpoints
from agentcore.lifecycle import STEPS, RunState, step_of
from runs import isolation
from runs.models import Run

log = logging.getLogger(__name__)

TASKS = {
    "compile": "runs.compile_context",
    "model": "runs.call_model",
    "tools": "runs.dispatch_tools",
    "observe": "runs.observe",
}
"""Step -> Celery task name. The step is also the name of its queue."""

HINT_EXPIRES = 600
PRIORITY_NEW, PRIORITY_CONTINUATION = 9, 0
PAUSE_AFTER_FAILURE = 5.0

_paused_until = 0.0


def hint_on_commit(run: Run) -> None:
    """Publish a hint for `run` once the open transaction has committed. Never raises."""
    run_id, revision, step = run.id, run.revision, step_of_run(run)
    priority = PRIORITY_NEW if run.state == RunState.QUEUED else PRIORITY_CONTINUATION
    alone = isolation.is_isolated(run.claims)
    transaction.on_commit(
        lambda: _publish_quietly(run_id, revision, step, priority, alone=alone), robust=True
    )


def hint(*, run_id: UUID, revision: int, step: str, new: bool = False, alone: bool = False) -> bool:
    """Publish the chain's tail from `step`; False when the broker did not take it.

    `alone`: to the worker that drives one run at a time, and only this step.
    """
    priority = PRIORITY_NEW if new else PRIORITY_CONTINUATION
    return _publish_quietly(run_id, revision, step, priority, alone=alone)


def step_of_run(run: Run) -> str:
    resume_to = RunState(run.resume_to) if run.resume_to else None
    return step_of(RunState(run.state), resume_to)


def tail_from(step: str) -> tuple[str, ...]:
    """The links of a turn from `step` on."""
    return STEPS[STEPS.index(step) :]


def links_done(*, remaining: Sequence[str], due: str | None) -> int:
    """How many of the chain's `remaining` steps to cut so that its next link is `due`.

    All of them when the run waits or ended (`due` is None) or when the due step is not ahead.
    """
    if due is None or due not in remaining:
        return len(remaining)
    return remaining.index(due)


def _publish_quietly(run_id: UUID, revision: int, step: str, priority: int, *, alone: bool) -> bool:
    global _paused_until  # noqa: PLW0603  (one broker a process)
    if time.monotonic() < _paused_until:
        return False
    try:
        failpoints.hit("hint.before_publish")
        _publish(run_id, revision, step, priority, alone=alone)
        failpoints.hit("hint.after_publish")
    except Exception as error:  # noqa: BLE001  (it says nothing about the run: the sweep delivers)
        _paused_until = time.monotonic() + PAUSE_AFTER_FAILURE
        log.warning("hint for run %s not published, the sweep will: %s", run_id, error)
        return False
    return True


def _publish(run_id: UUID, revision: int, step: str, priority: int, *, alone: bool) -> None:
    links = (step,) if alone else tail_from(step)
    first, *rest = (
        current_app.signature(TASKS[name], queue=isolation.QUEUE if alone else name)
        for name in links
    )
    first = first.clone(args=([str(run_id), revision],))
    options: dict[str, Any] = {
        "task_id": task_uuid(),
        "expires": HINT_EXPIRES,
        "priority": priority,
    }
    if rest:
        chain(first, *rest).apply_async(**options)
    else:
        first.apply_async(**options)


def backlog(*queues: str) -> dict[str, int]:
    """Messages waiting in each queue; raises when the broker cannot be reached."""
    with current_app.connection_for_read() as conn, conn.channel() as channel:
        size = channel._size  # type: ignore[attr-defined]  # noqa: SLF001
        return {name: int(size(name)) for name in queues}
