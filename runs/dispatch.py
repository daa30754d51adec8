"""The only place that publishes: a hint says "this run may be due", nothing more.

A hint may be lost, doubled or late; the row decides and the sweep delivers. So publishing never
fails its caller, is bounded by socket timeouts, and pauses after a failure instead of holding
every caller for a time-out. What follows a commit of a request is published by a thread of its own:
the answer does not wait for the broker.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from celery import current_app
from celery.utils import uuid as task_uuid
from django.db import transaction

from agentcore import failpoints
from agentcore.lifecycle import STEPS, RunState, step_of
from agentcore.values import Priority
from runs import isolation
from runs.background import Background
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
PERSISTENT = 2
"""Delivery mode of AMQP, which Celery uses by default."""
CONTINUATION = 0
NEW = {Priority.HIGH: 3, Priority.NORMAL: 6, Priority.LOW: 9}
"""Broker priority of a new run, by its own; a run that has begun goes before all of them."""
PRIORITY_STEPS = [CONTINUATION, *NEW.values()]
"""What the transport has to tell apart; `config/broker.py` says the same."""
PAUSE_AFTER_FAILURE = 5.0
WAITING = 1000
"""Hints that may wait for the thread of a process; the sweep delivers what is dropped."""
DRAIN_SECONDS = 2.0
PUBLISH_EVERY = 0.02
"""Seconds between two batches of a process that starts many runs."""

_paused_until = 0.0


@dataclass(frozen=True, slots=True)
class _Hint:
    run_id: UUID
    revision: int
    step: str
    priority: int
    alone: bool


def hint_on_commit(run: Run) -> None:
    """Publish a hint for `run` soon after the open transaction has committed. Never raises."""
    found = _Hint(
        run_id=run.id,
        revision=run.revision,
        step=step_of_run(run),
        priority=priority_of(run.state, run.priority),
        alone=isolation.is_isolated(run.claims),
    )
    transaction.on_commit(lambda: _sender.put(found), robust=True)


def priority_of(state: str, priority: str) -> int:
    """The broker priority of a hint for a run: that of the run while it is new."""
    return NEW[Priority(priority)] if state == RunState.QUEUED else CONTINUATION


def hint(
    *,
    run_id: UUID,
    revision: int,
    step: str,
    priority: int = CONTINUATION,
    alone: bool = False,
) -> bool:
    """Publish the chain's tail from `step`; False when the broker did not take it.

    `alone`: to the worker that drives one run at a time, and only this step.
    """
    return _publish_quietly([_Hint(run_id, revision, step, priority, alone)])


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


def _publish_quietly(found: Sequence[_Hint]) -> bool:
    global _paused_until  # noqa: PLW0603  (one broker a process)
    if time.monotonic() < _paused_until:
        return False
    try:
        failpoints.hit("hint.before_publish")
        _publish(found)
        failpoints.hit("hint.after_publish")
    except Exception as error:  # noqa: BLE001  (it says nothing about the runs: the sweep delivers)
        _paused_until = time.monotonic() + PAUSE_AFTER_FAILURE
        runs = ", ".join(str(item.run_id) for item in found[:3])
        log.warning("%d hints not published, the sweep will (%s): %s", len(found), runs, error)
        return False
    return True


_sender: Background[_Hint] = Background(
    name="hints",
    handle=_publish_quietly,
    limit=WAITING,
    patience=DRAIN_SECONDS,
    every=PUBLISH_EVERY,
)


def drain() -> bool:
    """Wait until the hints of this process are published; also done when the process ends."""
    return _sender.drain()


def _publish(found: Sequence[_Hint]) -> None:
    """Each as one message, the first link with the rest of the chain; all in one round trip.

    What is left out here (a client for each message, a declaration of the queue, looking up what
    is the same in each message) is most of what a message costs.
    """
    expires = datetime.now(UTC) + timedelta(seconds=HINT_EXPIRES)
    with current_app.producer_or_acquire() as producer, producer.batch():
        for item in found:
            form, task_id = _form(item.step, item.alone), task_uuid()
            ids = {"id": task_id, "root_id": task_id, "expires": expires.isoformat()}
            producer.publish(
                f'[[["{item.run_id}", {item.revision}]], {{}}, {form.embed}]',
                content_type="application/json",
                content_encoding="utf-8",
                exchange="",
                routing_key=isolation.QUEUE if item.alone else item.step,
                headers={**form.headers, **ids},
                correlation_id=task_id,
                reply_to="",
                delivery_mode=PERSISTENT,
                expiration=HINT_EXPIRES,
                priority=item.priority,
            )


@dataclass(frozen=True, slots=True)
class _Form:
    """What all hints for one step share, as Celery's own protocol has it."""

    headers: dict[str, Any]
    embed: str


@cache
def _form(step: str, alone: bool) -> _Form:
    made = current_app.amqp.create_task_message(
        "",
        TASKS[step],
        args=([],),
        kwargs={},
        argsrepr="",
        kwargsrepr="",
        ignore_result=None,
        chain=None if alone else _links_after(step),
    )
    return _Form(made.headers, json.dumps(made.body[2]))


def _links_after(step: str) -> list[dict[str, Any]] | None:
    """The chain behind `step` as the protocol has it: signatures, the next link last."""
    names = reversed(tail_from(step)[1:])
    return [dict(current_app.signature(TASKS[name], queue=name)) for name in names] or None


def backlog(*queues: str) -> dict[str, int]:
    """Messages waiting in each queue; raises when the broker cannot be reached."""
    with current_app.connection_for_read() as conn, conn.channel() as channel:
        size = channel._size  # type: ignore[attr-defined]  # noqa: SLF001
        return {name: int(size(name)) for name in queues}
