"""What the settings must say so that the promises hold. Values in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runs.dispatch import PRIORITY_STEPS

Level = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: what was looked at, what it says, and what to do about it."""

    level: Level
    name: str
    said: str
    cure: str = ""


def _found(good: bool, name: str, said: str, cure: str, *, level: Level = "FAIL") -> Finding:
    return Finding("ok", name, said) if good else Finding(level, name, said, cure)


def celery_findings(celery: Mapping[str, Any], environment: Mapping[str, str]) -> list[Finding]:
    """`celery`: the CELERY_ settings by lower-case name, without the prefix."""
    return [*_pool(celery, environment), *_delivery(celery), *_transport(celery)]


def _pool(celery: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Finding]:
    threads = celery.get("worker_pool") == "threads"
    soft = celery.get("worker_soft_shutdown_timeout") or 0
    idle = bool(celery.get("worker_enable_soft_shutdown_on_idle"))
    yield _found(
        not (threads and (soft or idle)),
        "soft shutdown",
        f"pool {celery.get('worker_pool')}, soft shutdown after {soft} s",
        "unset worker_soft_shutdown_timeout and worker_enable_soft_shutdown_on_idle: a soft"
        " shutdown crashes the thread pool in the middle of calls; TERM is a warm shutdown",
    )
    remap = environment.get("REMAP_SIGTERM", "")
    yield _found(
        not remap,
        "TERM",
        f"REMAP_SIGTERM={remap}" if remap else "a warm shutdown",
        "unset REMAP_SIGTERM: QUIT cuts calls",
    )
    limits = [
        name
        for name in ("task_time_limit", "task_soft_time_limit", "worker_max_tasks_per_child")
        if celery.get(name)
    ]
    yield _found(
        not (threads and limits),
        "time limits",
        f"{', '.join(limits)} with threads" if limits else "each call has its own",
        "remove them: the thread pool ignores them",
        level="warn",
    )


def _delivery(celery: Mapping[str, Any]) -> Iterator[Finding]:
    late = bool(celery.get("task_acks_late") or celery.get("task_reject_on_worker_lost"))
    yield _found(
        not late,
        "acknowledgements",
        "late" if late else "early",
        "unset task_acks_late and task_reject_on_worker_lost: the sweep delivers, and a message"
        " that kills its process would come back for ever",
    )
    backend = celery.get("result_backend")
    yield _found(
        not backend,
        "result backend",
        "one is set" if backend else "none",
        "unset result_backend: results are rows, and a backend holds each task up",
    )
    create = celery.get("task_create_missing_queues", True)
    yield _found(
        not create,
        "queues",
        "a wrong name makes a queue" if create else "only the named ones",
        "set task_create_missing_queues to False: nobody reads a queue made by a typing error",
    )


def _transport(celery: Mapping[str, Any]) -> Iterator[Finding]:
    options = celery.get("broker_transport_options") or {}
    waits = {name: options.get(name) for name in ("socket_timeout", "socket_connect_timeout")}
    yield _found(
        all(waits.values()),
        "broker time-outs",
        ", ".join(f"{name} {value or 'none'}" for name, value in waits.items()),
        "set both in broker_transport_options: a half-open connection holds a thread for ever",
    )
    steps = list(options.get("priority_steps") or [])
    yield _found(
        steps == PRIORITY_STEPS,
        "priorities",
        f"priority_steps {steps}",
        f"set priority_steps to {PRIORITY_STEPS}: runs that have begun go before new ones",
    )


def database_settings_findings(database: Mapping[str, Any]) -> list[Finding]:
    """`database`: the entry of DATABASES."""
    engine = str(database.get("ENGINE", ""))
    if "postgresql" not in engine and engine != "config.pooled":
        return []  # no database is named yet, and that has its own message
    options = database.get("OPTIONS", {})
    age = database.get("CONN_MAX_AGE", 0)
    pool = "a pool" if options.get("pool") else "no pool in this process"
    return [
        _found(
            age == 0,
            "connections",
            f"{pool}, CONN_MAX_AGE {age}",
            "set CONN_MAX_AGE to 0: else each thread keeps a connection while it waits for a call",
        ),
        _found(
            str(options.get("keepalives", "0")) == "1",
            "keepalives",
            f"keepalives {options.get('keepalives', 'not set')}",
            "set keepalives, keepalives_idle, keepalives_interval and keepalives_count",
            level="warn",
        ),
    ]
