"""Options, addresses and app names: good values are read, bad ones name themselves and the cure."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import ValidationError

from config.addresses import AddressError, check_redis_url, parse_database_url, running_stack
from config.apps_setting import tool_apps
from config.local import local_secret
from config.options import OptionsError, load_options

ROOT = Path(__file__).resolve().parents[2]


def run_settings(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py migrate --plan` in a process with nothing but `environment`."""
    clean = {"PATH": os.defpath, "AGENTCORE_RUN_DIR": str(tmp_path / "run")}
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "--plan"],
        env={**clean, **environment}, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip


def test_defaults_are_those_of_the_design() -> None:
    options = load_options(values={}, environment={})
    assert (options.sweep_period, options.beat_period, options.worker_dead_after) == (2, 3, 15)
    assert (options.slice_seconds, options.slice_calls) == (5, 16)
    assert (options.read_cap, options.threads) == (4, 16)
    assert options.approval_ttl == timedelta(hours=4)
    assert (options.tool_timeout, options.model_timeout, options.poison_after) == (20, 120, 3)


def test_an_unknown_option_is_an_error_that_names_it() -> None:
    with pytest.raises(OptionsError, match=r"sweep_periode.*there is no such option"):
        load_options(values={"sweep_periode": 1}, environment={})


@pytest.mark.parametrize(
    ("name", "text"),
    [("SWEEP_PERIOD", "soon"), ("THREADS", "0"), ("APPROVAL_TTL", "-5"), ("TOOL_TIMEOUT", "inf")],
)
def test_a_bad_value_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(OptionsError, match=f"AGENTCORE_{name}|{name.lower()}"):
        load_options(values={}, environment={f"AGENTCORE_{name}": text})


def test_a_worker_is_not_dead_before_its_second_beat() -> None:
    with pytest.raises(OptionsError, match="worker_dead_after must be at least twice"):
        load_options(values={"beat_period": 10.0}, environment={})


def test_the_environment_wins_and_our_names_beat_the_plain_ones() -> None:
    options = load_options(
        values={"sweep_period": 5.0},
        environment={
            "AGENTCORE_SWEEP_PERIOD": "0.25",
            "AGENTCORE_APPROVAL_TTL": "90",
            "AGENTCORE_MODEL": "some-model",
            "OPENAI_API_KEY": "plain",
            "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
            "AGENTCORE_OPENAI_API_KEY": "ours",
            "MODEL": "ignored",
        },
    )
    assert options.sweep_period == 0.25
    assert options.approval_ttl == timedelta(seconds=90)
    assert options.model == "some-model"
    assert options.openai_api_key == "ours"
    assert options.openai_base_url == "http://127.0.0.1:1/v1"


def test_options_are_frozen_and_hide_their_secrets() -> None:
    options = load_options(values={"openai_api_key": "sk-x", "event_key": "k-x"}, environment={})
    with pytest.raises(ValidationError):
        options.threads = 1  # type: ignore[misc]
    assert "sk-x" not in repr(options)
    assert "k-x" not in repr(options)


def test_a_database_address_is_split_with_its_quoting_and_options() -> None:
    parts = parse_database_url("postgresql://us%40er:p%2Fw@[::1]:5433/name?sslmode=require")
    assert parts["USER"] == "us@er"
    assert parts["PASSWORD"] == "p/w"
    assert (parts["HOST"], parts["PORT"], parts["NAME"]) == ("::1", "5433", "name")
    assert parts["OPTIONS"] == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://u:geheim@h/n", "must begin with postgres://"),
        ("postgres://u:geheim@h", "names no database"),
        ("postgres://u:geheim@h:port/n", "cannot be read"),
        ("postgres:///n", "names no host"),
        ("db", "must begin with postgres://"),
    ],
)
def test_a_bad_database_address_says_what_to_write_and_no_password(url: str, says: str) -> None:
    with pytest.raises(AddressError, match=says) as caught:
        parse_database_url(url)
    assert "geheim" not in str(caught.value)
    assert "postgres://user:password@host:5432/name" in str(caught.value)


@pytest.mark.parametrize("url", ["http://h:1/0", "redis://h:6379/zero", "redis://"])
def test_a_bad_broker_address_says_what_to_write(url: str) -> None:
    with pytest.raises(AddressError, match="redis://:password@host:6379/0"):
        check_redis_url(url)


def test_no_stack_is_found_where_its_launcher_is_gone(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    text = f'{{"pid": {ended.pid}, "database_url": "d", "redis_url": "r"}}'
    (tmp_path / "stack.json").write_text(text)
    assert running_stack(tmp_path) == {}
    (tmp_path / "stack.json").write_text(text.replace(str(ended.pid), str(os.getpid())))
    assert running_stack(tmp_path) == {"DATABASE_URL": "d", "REDIS_URL": "r"}


def test_a_missing_tool_app_is_named() -> None:
    assert tool_apps(" runs , approvals.apps.ApprovalsConfig,") == [
        "runs",
        "approvals.apps.ApprovalsConfig",
    ]
    with pytest.raises(ImproperlyConfigured, match=r"'no_such\.app'.*PYTHONPATH"):
        tool_apps("runs,no_such.app")


def test_a_local_secret_is_made_once_and_private(tmp_path: Path) -> None:
    first = local_secret(folder=tmp_path / "run", name="key")
    assert local_secret(folder=tmp_path / "run", name="key") == first
    assert len(first) >= 32
    assert (tmp_path / "run" / "key").stat().st_mode & 0o077 == 0


def test_a_command_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    done = run_settings(tmp_path)
    assert done.returncode == 1
    assert "set DATABASE_URL" in done.stderr
    assert "make run" in done.stderr
    assert "Traceback" not in done.stderr


def test_production_makes_no_secrets_of_its_own(tmp_path: Path) -> None:
    url = {"DATABASE_URL": "postgres://u:p@127.0.0.1:1/n", "AGENTCORE_ENV": "production"}
    done = run_settings(tmp_path, **url)
    assert done.returncode == 1
    assert "SECRET_KEY must be set" in done.stderr
    done = run_settings(tmp_path, SECRET_KEY="x" * 60, **url)
    assert "AGENTCORE_EVENT_KEY must be set" in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_unreachable_database_is_one_line(tmp_path: Path) -> None:
    done = run_settings(tmp_path, DATABASE_URL="postgres://u:geheim@127.0.0.1:1/n")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "geheim" not in done.stderr
    assert "Connection refused" in done.stderr
