"""Real servers for the tests that need them: one PostgreSQL and one Valkey a session.

They start when the first test asks for the database (so `pytest tests/agentcore tests/tools` starts
none), with `-n` once for all processes. DATABASE_URL and REDIS_URL, when both are set, name servers
to use instead; the tests make a database of their own there.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from config.embedded import Stack, embedded_stack
from config.embedded.stack import remove_stack

ROOT = Path(__file__).resolve().parent.parent
_open = ExitStack()
_started: list[Stack] = []


def pytest_configure(config: pytest.Config) -> None:
    """With xdist the first process starts the servers; the others find them in the environment."""
    os.environ["AGENTCORE_BROKER_PREFIX"] = f"agentcore-test-{os.getpid()}:"
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ.update(_start().env())


def pytest_unconfigure() -> None:
    """Stop what was started."""
    _started.clear()
    _open.close()


def _start() -> Stack:
    if not _started:
        _remove_leftovers()
        folder = Path(tempfile.mkdtemp(prefix="tests-", dir=_runtime_folder()))
        _open.callback(remove_stack, folder)
        _started.append(_open.enter_context(embedded_stack(folder=folder)))
    return _started[0]


def _remove_leftovers() -> None:
    """Remove what sessions left that were killed: their lock is free."""
    for folder in _runtime_folder().glob("tests-*"):
        with suppress(OSError), (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_stack(folder)


def _runtime_folder() -> Path:
    folder = ROOT / ".run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The session's servers. `stack.postgres` and `stack.valkey` control them; they are None for
    servers that DATABASE_URL and REDIS_URL name."""
    return _start()


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """Servers for one test alone, which may stop, kill and flush them (about 1 s)."""
    with embedded_stack(folder=tmp_path / "stack", use_environment=False) as stack:
        yield stack
    remove_stack(tmp_path / "stack")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    stack: Stack, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Point Django and Celery at the session's servers before the test database is made."""
    _point_django_at(stack)


def _point_django_at(stack: Stack) -> None:
    from django.conf import settings
    from django.db import connections

    from config.broker import celery_settings
    from config.celery_app import app
    from config.database import databases

    os.environ.update(stack.env())
    suffix = os.environ.get("PYTEST_XDIST_WORKER", "")
    values = databases(url=stack.database_url, application_name="tests")["default"]
    # Append-only tables refuse TRUNCATE, except from the connections that flush between tests.
    values["OPTIONS"]["options"] += " -c agentcore.allow_truncate=on"
    base = connections.settings["default"]
    kept = {key: value for key, value in base.items() if key not in values}
    if hasattr(connections._connections, "default"):
        connections["default"].close()
        del connections["default"]
    base.clear()
    base.update({**kept, **values})
    name = f"test_{values['NAME']}" + (f"_{suffix}" if suffix else "")
    base["TEST"] = {**base.get("TEST", {}), "NAME": name}
    settings.DATABASE_URL, settings.REDIS_URL = stack.database_url, stack.redis_url
    made = celery_settings(
        broker_url=stack.redis_url,
        prefix=os.environ["AGENTCORE_BROKER_PREFIX"],
        threads=settings.AGENTCORE_OPTIONS.threads,
    )
    for key in ("broker_url", "broker_transport_options"):
        setattr(settings, f"CELERY_{key.upper()}", made[key])
        setattr(app.conf, key, made[key])


@pytest.fixture
def process_env(stack: Stack, django_db_setup: None) -> dict[str, str]:
    """The environment for a real web or worker process that shares the *test* database."""
    from django.db import connection

    parts = urlsplit(stack.database_url)
    name = str(connection.settings_dict["NAME"])
    url = urlunsplit(parts._replace(path=f"/{name}"))
    settings = {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **stack.env(), **settings, "DATABASE_URL": url}


@pytest.fixture(autouse=True)
def _nothing_outlives_its_test() -> Iterator[None]:
    """A process keeps the rows of agent versions and the hints it has yet to publish; here each
    test takes the rows away, and the next one counts messages."""
    yield
    if agents := sys.modules.get("runs.agents"):
        agents.forget_frozen()
    if dispatch := sys.modules.get("runs.dispatch"):
        dispatch.drain()


@pytest.fixture(autouse=True, scope="session")
def _close_the_pool_at_the_end() -> Iterator[None]:
    """Close this process's connections when the session ends, before the server stops."""
    yield
    from django.db import connections

    if "default" in connections and hasattr(connections._connections, "default"):
        connection = connections["default"]
        connection.close()
        if close_pool := getattr(connection, "close_pool", None):
            close_pool()
