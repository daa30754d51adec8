"""`manage.py doctor`: is this installation able to keep its promises? It reads and changes nothing.

Each check gives findings; one that cannot be made (no connection) is a finding too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

from agentcore.lifecycle import STEPS
from runs import dispatch, fleet, isolation, sweeps
from runs.doctor_settings import (
    Finding,
    Level,
    celery_findings,
    database_settings_findings,
)

MIN_POSTGRES = 150_000
MAX_SKEW = 2.0
SERVER_SETTINGS = {
    "fsync": "a crash of the server can lose or damage rows that were promised",
    "full_page_writes": "a crash of the server can damage pages",
    "synchronous_commit": "a crash of the server can forget what was sent",
}


def examine() -> Iterator[Finding]:
    """Every finding, in the order of the set-up: settings, database, broker, workers."""
    yield from settings_findings()
    yield from _guarded("database", _database, "start PostgreSQL, or correct DATABASE_URL")
    yield from _guarded("broker", _broker, "start Valkey or Redis, or correct REDIS_URL")
    yield from _guarded("workers", _workers, "run `manage.py migrate`")


def settings_findings() -> list[Finding]:
    """What the settings alone tell; also Django's system checks, and a worker refuses to start."""
    celery = {
        name.removeprefix("CELERY_").lower(): getattr(settings, name)
        for name in dir(settings)
        if name.startswith("CELERY_")
    }
    database = settings.DATABASES["default"]
    return [*celery_findings(celery, os.environ), *database_settings_findings(database)]


def _guarded(name: str, check: Callable[[], Iterator[Finding]], cure: str) -> Iterator[Finding]:
    try:
        yield from check()
    except (DatabaseError, InterfaceError, ImproperlyConfigured, OSError) as error:
        yield Finding("FAIL", name, _one_line(error), cure)
    except Exception as error:  # noqa: BLE001  (the broker's client raises errors of many libraries)
        yield Finding("FAIL", name, f"{type(error).__name__}: {_one_line(error)}", cure)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# --- PostgreSQL ---------------------------------------------------------------------------------


def _database() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, version()")
        number, version = cursor.fetchone()
        good = number >= MIN_POSTGRES
        said = " ".join(version.split()[:2])
        yield Finding("ok" if good else "FAIL", "database", said, "" if good else "use 15 or newer")
        for name, why in SERVER_SETTINGS.items():
            cursor.execute("SELECT current_setting(%s)", [name])
            value = cursor.fetchone()[0]
            good = value not in ("off", "local") if name == "synchronous_commit" else value == "on"
            yield Finding(
                "ok" if good else "FAIL", name, value, "" if good else f"set it to on: {why}"
            )
        yield _statements_in_the_log(cursor)
        yield _rules(cursor)
        yield _clock(cursor)
    plan = _unapplied()
    yield Finding(
        "FAIL" if plan else "ok",
        "migrations",
        f"{len(plan)} not applied: {', '.join(plan[:3])}" if plan else "all applied",
        "run `manage.py migrate`" if plan else "",
    )


def _statements_in_the_log(cursor: Any) -> Finding:
    cursor.execute("SELECT current_setting('log_min_error_statement')")
    value = cursor.fetchone()[0]
    good = value in ("log", "fatal", "panic")
    cure = (
        "as a superuser: ALTER ROLE … SET log_min_error_statement = fatal; a statement that lost a"
        " race is an error, and its values (arguments, replies) would stand in the server's log"
    )
    level: Level = "ok" if good else "warn"
    return Finding(level, "statements in the log", value, "" if good else cure)


def _rules(cursor: Any) -> Finding:
    """What the database refuses is made of triggers, which an owner can switch off."""
    cursor.execute(
        "SELECT string_agg(tgname, ', ' ORDER BY tgname) FROM pg_trigger WHERE tgenabled <> 'O'"
        " AND tgrelid::regclass::text ~ '^(runs|approvals)_'"
    )
    off = cursor.fetchone()[0]
    cure = "ALTER TABLE … ENABLE TRIGGER ALL: the rules of these tables are switched off"
    return Finding("FAIL" if off else "ok", "rules", off or "all on", cure if off else "")


def _clock(cursor: Any) -> Finding:
    before = time.time()
    cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
    skew = abs(float(cursor.fetchone()[0]) - (before + time.time()) / 2)
    good = skew < MAX_SKEW
    cure = "" if good else "synchronize the clocks: times in logs and in rows do not fit together"
    return Finding("ok" if good else "warn", "clock", f"{skew:.2f} s from the database", cure)


def _unapplied() -> list[str]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


# --- the broker ---------------------------------------------------------------------------------


def _broker() -> Iterator[Finding]:
    with current_app.connection_for_write() as conn:
        client = conn.channel().client  # type: ignore[attr-defined]
        info = client.info()
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version") or info.get("redis_version")
        yield Finding("ok", "broker", f"{name} {version}")
        policy = info.get("maxmemory_policy", "unknown")
        yield Finding(
            "ok" if policy == "noeviction" else "FAIL",
            "maxmemory-policy",
            policy,
            "" if policy == "noeviction" else "set it to noeviction: another one drops queues",
        )
        kept = bool(info.get("aof_enabled"))
        yield Finding(
            "ok" if kept else "warn",
            "appendonly",
            "yes" if kept else "no",
            "" if kept else "set it to yes: a restart loses the hints, and runs wait for the sweep",
        )
    waiting = dispatch.backlog(*STEPS, isolation.QUEUE)
    many = sum(waiting.values()) >= sweeps.MAX_BACKLOG
    yield Finding(
        "warn" if many else "ok",
        "queue lengths",
        ", ".join(f"{queue} {length}" for queue, length in waiting.items()),
        "add workers: hints wait longer than runs do" if many else "",
    )


# --- the workers --------------------------------------------------------------------------------


def _workers() -> Iterator[Finding]:
    options = settings.AGENTCORE_OPTIONS
    found = fleet.look()
    for step in STEPS:
        count = found.serving[step]
        cure = "" if count else f"start a worker with `-Q {step}`: runs stop at this step"
        yield Finding("ok" if count else "FAIL", f"workers for {step}", f"{count} alive", cure)
    yield _isolate(found.serving[isolation.QUEUE])
    yield _sweep(found.sweep_age, period=max(options.sweep_period, options.beat_period))


def _isolate(count: int) -> Finding:
    cure = (
        f"start `celery -A config worker -P processes -c 1 -Q {isolation.QUEUE}`; until then the"
        " sweeps of the workers drive such runs in child processes"
    )
    name = f"workers for {isolation.QUEUE}"
    return Finding("ok" if count else "warn", name, f"{count} alive", "" if count else cure)


def _sweep(age: float | None, *, period: float) -> Finding:
    cure = "start a worker, or `manage.py sweep --loop`: a lost message is found by the sweep alone"
    if age is None:
        return Finding("FAIL", "last sweep", "never", cure)
    level: Level = "ok" if age < 5 * period else "warn" if age < 20 * period else "FAIL"
    return Finding(level, "last sweep", f"{age:.0f} s ago", "" if level == "ok" else cure)
