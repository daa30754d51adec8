"""The commands of our own long-running processes, and their start as children that end with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from config.broker import QUEUES
from config.embedded.process import ServerError, spawn

ROOT = Path(__file__).resolve().parent.parent


def web_command(*, port: int, host: str = "127.0.0.1", threads: int = 16) -> list[str]:
    """The web server: one process, `threads` requests at a time."""
    return [
        sys.executable, "-m", "gunicorn", "config.wsgi",
        "--bind", f"{host}:{port}", "--worker-class", "gthread", "--threads", str(threads),
        "--no-control-socket", "--graceful-timeout", "10", "--timeout", "60",
        "--log-level", "warning",
    ]  # fmt: skip


def stream_command(*, port: int, host: str = "127.0.0.1") -> list[str]:
    """The server of event streams: ASGI, one process; it serves the rest of the API, too."""
    return [
        sys.executable, "-m", "uvicorn", "config.asgi:application",
        "--host", host, "--port", str(port), "--lifespan", "off", "--log-level", "warning",
        "--no-access-log", "--no-server-header", "--timeout-graceful-shutdown", "3",
    ]  # fmt: skip


def worker_command(
    *, queues: Sequence[str] = QUEUES, name: str = "worker", concurrency: int | None = None
) -> list[str]:
    """A Celery worker for `queues`. TERM is a warm shutdown; never send QUIT."""
    command = [
        sys.executable, "-m", "celery", "-A", "config", "worker", "-Q", ",".join(queues),
        "--hostname", f"{name}@%h", "--loglevel", "INFO",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip
    return command if concurrency is None else [*command, "--concurrency", str(concurrency)]


def start_process(
    command: Sequence[str], *, env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start one of the commands above with `env` added to our environment; output goes to `log`.

    The process gets TERM when we are gone (Linux). Call it in the main thread.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    with log.open("ab") as file:
        return spawn(
            command,
            log=file,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **env},
            cwd=str(ROOT),
            on_parent_death=signal.SIGTERM,
        )


def stop_process(process: subprocess.Popen[bytes], *, patience: float = 15.0) -> int:
    """TERM, then KILL after `patience` seconds. Returns the exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return int(process.returncode)


def wait_for_http(
    url: str, *, process: subprocess.Popen[bytes], log: Path, seconds: float = 30.0
) -> None:
    """Wait until `url` answers with 2xx. Raises ServerError with the end of `log`."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  (an address of ours)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise ServerError(f"{url} did not answer. Last lines of {log}:\n{tail}")
