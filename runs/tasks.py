"""The four links of a turn as Celery tasks. Each takes one argument, `[run_id, revision]`."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from runs import worker_signals  # noqa: F401  (a worker beats, sweeps and drains)
from runs.links import follow


@shared_task(name="runs.compile_context", bind=True)
def compile_context(self: Task[Any, Any], message: list[str | int]) -> list[str | int]:
    return follow(task=self, message=message)


@shared_task(name="runs.call_model", bind=True)
def call_model(self: Task[Any, Any], message: list[str | int]) -> list[str | int]:
    return follow(task=self, message=message)


@shared_task(name="runs.dispatch_tools", bind=True)
def dispatch_tools(self: Task[Any, Any], message: list[str | int]) -> list[str | int]:
    return follow(task=self, message=message)


@shared_task(name="runs.observe", bind=True)
def observe(self: Task[Any, Any], message: list[str | int]) -> list[str | int]:
    return follow(task=self, message=message)
