"""What a Celery link does with its message: drive, cut the done links, pass on the rest."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Task
from celery.exceptions import Ignore

from runs import dispatch
from runs.driver import drive

_STEP_OF_TASK = {task: step for step, task in dispatch.TASKS.items()}


def follow(*, task: Task[Any, Any], message: list[str | int]) -> list[str | int]:
    """Drive the run of `message` = [run_id, revision]; the return value is the next link's.

    Raises `Ignore` for a stale message, so that it publishes nothing.
    """
    run_id = UUID(str(message[0]))
    driven = drive(run_id=run_id, revision=int(message[1]))
    if driven is None:
        raise Ignore
    ahead: list[dict[str, Any]] = task.request.chain or []  # type: ignore[assignment]
    remaining = [_STEP_OF_TASK[link["task"]] for link in reversed(ahead)]
    cut = dispatch.links_done(remaining=remaining, due=driven.due)
    if cut:
        del ahead[-cut:]  # the list is reversed: the next link stands last
    if driven.due is not None and driven.due not in remaining:
        dispatch.hint(run_id=run_id, revision=driven.revision, step=driven.due)
    return [str(run_id), driven.revision]
