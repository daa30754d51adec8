"""`manage.py doctor`: each finding on a real installation, and the settings that are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from config.broker import celery_settings
from config.database import databases
from config.embedded import Stack
from runs.doctor_settings import celery_findings, database_settings_findings
from tests.workers import start_isolate_worker
from tests.world import ROOT, World, open_world, wait_for


def _celery(**changes: Any) -> dict[str, Any]:
    return {**celery_settings(broker_url="redis://x", prefix="t:", threads=16), **changes}


def _failed(celery: dict[str, Any], **environment: str) -> dict[str, str]:
    """What is not ok: name -> level."""
    found = celery_findings(celery, environment)
    return {f.name: f.level for f in found if f.level != "ok"}


def test_our_own_settings_are_all_right() -> None:
    assert _failed(_celery()) == {}


STEPS = [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"worker_soft_shutdown_timeout": 10}, "soft shutdown", "FAIL"),
        ({"worker_enable_soft_shutdown_on_idle": True}, "soft shutdown", "FAIL"),
        ({"task_acks_late": True}, "acknowledgements", "FAIL"),
        ({"task_reject_on_worker_lost": True}, "acknowledgements", "FAIL"),
        ({"result_backend": "redis://x"}, "result backend", "FAIL"),
        ({"task_create_missing_queues": True}, "queues", "FAIL"),
        ({"broker_transport_options": {"priority_steps": STEPS}}, "broker time-outs", "FAIL"),
        ({"task_time_limit": 60}, "time limits", "warn"),
    ],
)
def test_a_setting_that_breaks_a_promise_is_named(
    changes: dict[str, Any], name: str, level: str
) -> None:
    assert _failed(_celery(**changes)) == {name: level}


def test_soft_shutdown_is_only_refused_with_threads() -> None:
    assert _failed(_celery(worker_pool="prefork", worker_soft_shutdown_timeout=5)) == {}


def test_a_remapped_term_is_refused() -> None:
    assert _failed(_celery(), REMAP_SIGTERM="SIGQUIT") == {"TERM": "FAIL"}


def test_priorities_and_connections() -> None:
    options = {**_celery()["broker_transport_options"], "priority_steps": [0, 9]}
    assert _failed(_celery(broker_transport_options=options)) == {"priorities": "FAIL"}
    ours = databases(url="postgres://a@b/c", application_name="t")["default"]
    assert [f.level for f in database_settings_findings(ours)] == ["ok", "ok"]
    kept = {**ours, "CONN_MAX_AGE": 60, "OPTIONS": {}}
    assert [f.level for f in database_settings_findings(kept)] == ["FAIL", "warn"]
    assert database_settings_findings({"ENGINE": "config.missing"}) == []


# --- a whole installation ---------------------------------------------------------------------


@pytest.fixture
def world(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(own_stack, tmp_path_factory.mktemp("doctor")) as made:
        yield made


def _doctor(world: World, *flags: str, **env: str) -> tuple[int, dict[str, str], str]:
    """Exit code, finding -> level, and everything it said."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "doctor", *flags],
        env={**world.env, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if ": " in line]
    levels = {line[6:].split(":")[0]: line[:4].strip() for line in lines}
    return done.returncode, levels, done.stdout + done.stderr


def _not_ok(levels: dict[str, str]) -> dict[str, str]:
    return {name: level for name, level in levels.items() if level != "ok"}


@pytest.mark.fault
def test_what_the_doctor_says_about_a_whole_installation(world: World) -> None:
    code, levels, said = _doctor(world)
    nobody = {f"workers for {step}": "FAIL" for step in ("compile", "model", "tools", "observe")}
    assert code == 1
    assert _not_ok(levels) == {
        **nobody,
        "workers for isolate": "warn",
        "last sweep": "FAIL",
    }, said

    world.start_worker("w1")
    start_isolate_worker(world)
    wait_for(
        lambda: world.query("SELECT 1 FROM runs_worker WHERE swept_at IS NOT NULL"),
        seconds=20,
        what="a sweep",
    )
    code, levels, said = _doctor(world)
    assert (code, _not_ok(levels)) == (0, {}), said
    assert "0 failed" in said

    with psycopg.connect(world.stack.database_url, autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET full_page_writes = off")
        conn.execute("ALTER SYSTEM SET synchronous_commit = off")
        conn.execute("ALTER ROLE CURRENT_USER SET log_min_error_statement = error")
        conn.execute("SELECT pg_reload_conf()")
    with psycopg.connect(world.env["DATABASE_URL"], autocommit=True) as conn:
        conn.execute("ALTER TABLE runs_run DISABLE TRIGGER run_move")
    world.broker().config_set("maxmemory-policy", "allkeys-lru")
    world.broker().config_set("appendonly", "no")
    code, levels, said = _doctor(world)
    assert (code, levels["appendonly"]) == (1, "warn"), said
    assert (levels["statements in the log"], levels["rules"]) == ("warn", "FAIL"), said
    assert "run_move" in said
    for name in ("full_page_writes", "synchronous_commit", "maxmemory-policy"):
        assert levels[name] == "FAIL", said


@pytest.mark.fault
def test_without_servers_the_doctor_says_what_to_start(world: World) -> None:
    dead = {"DATABASE_URL": "postgres://x@127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:1/0"}
    code, levels, said = _doctor(world, **dead)
    assert code == 1
    assert {name for name, level in levels.items() if level == "FAIL"} >= {"database", "broker"}
    assert "Start PostgreSQL" in said
    assert "Start Valkey or Redis" in said
    assert "Traceback" not in said


@pytest.mark.fault
def test_a_migration_that_was_forgotten_is_named(world: World) -> None:
    world.query("DELETE FROM django_migrations WHERE app = 'sessions' RETURNING id")
    code, levels, said = _doctor(world)
    assert (code, levels["migrations"]) == (1, "FAIL")
    assert "sessions.0001_initial" in said
    assert "manage.py migrate" in said


@pytest.mark.fault
def test_a_worker_with_settings_that_break_a_promise_does_not_start(world: World) -> None:
    world.env["REMAP_SIGTERM"] = "SIGQUIT"
    worker = world.start_worker("w1", wait=False)
    assert worker.wait_gone(timeout=30) != 0
    assert "agentcore.E101" in worker.log_text()
    del world.env["REMAP_SIGTERM"]


def test_help_says_what_it_does(world: World) -> None:
    code, _, said = _doctor(world, "--help")
    assert code == 0
    assert "Exit code 1 when something has failed" in " ".join(said.split())
