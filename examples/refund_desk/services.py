"""Start and stop the example's processes: payment service, model server, web server, workers.

Used by the demo and by the tests. Each process writes to a log file of its own, ends when its
parent is gone (Linux), and counts as started only when it said so itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.embedded.process import spawn as process_spawn

ROOT = Path(__file__).resolve().parents[2]
_PORT_TAKEN = "Connection in use"
STEP_QUEUES = "compile,model,tools,observe"


class ServiceError(RuntimeError):
    """A process did not start, or ended early; the message carries the tail of its log."""


@dataclass(slots=True)
class Service:
    """A running process in a session of its own. `url` is empty for a worker."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""
    ready: dict[str, object] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, *, grace: float = 15.0) -> int:
        """TERM, wait up to `grace` seconds, then KILL. Returns the exit code."""
        if self.alive:
            self._signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()

    def kill(self) -> None:
        """`kill -9` the process and its children, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP the process and its children."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the process and its children."""
        self._signal(signal.SIGCONT)

    def wait_gone(self, *, timeout: float) -> int:
        """Wait until the process ended by itself. Returns the exit code (negative: a signal)."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"{self.name} is still running after {timeout} s") from None

    def log_text(self) -> str:
        """Everything the process has printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 25) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # already gone, which is what a stop wants
            os.killpg(self.process.pid, number)


def wait_until(
    condition: Callable[[], object], *, timeout: float, what: str, every: float = 0.02
) -> None:
    """Poll until `condition` is true. Raises ServiceError(`what`) after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ServiceError(f"timed out after {timeout:.0f} s: {what}")
        time.sleep(every)


def spawn(
    *,
    name: str,
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str] | None = None,
    on_parent_death: signal.Signals = signal.SIGKILL,
) -> Service:
    """Start `command` in the project's root; output goes to `folder`/`name`.log.

    `env` is added to this process's environment. Call it in the main thread: on Linux the process
    dies with the thread that starts it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = process_spawn(
            command,
            log=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=str(ROOT),
            on_parent_death=on_parent_death,
        )
    return Service(name=name, process=process, log=log)


def _await_ready(service: Service, probe: Callable[[], object], *, timeout: float) -> Service:
    try:
        wait_until(
            lambda: not service.alive or probe(), timeout=timeout, what=f"{service.name} is ready"
        )
    except ServiceError as error:
        service.kill()
        raise ServiceError(f"{error}\n{service.log_tail()}") from None
    except BaseException:
        service.kill()
        raise
    if not service.alive:
        raise ServiceError(
            f"{service.name} ended with code {service.process.returncode} while starting:\n"
            f"{service.log_tail()}"
        )
    return service


def _announced(service: Service) -> bool:
    """Read the JSON line by which the example's own servers say that they are ready."""
    for line in service.log_text().splitlines():
        if line.startswith('{"service"'):
            service.ready = json.loads(line)
            service.url = str(service.ready["url"])
            return True
    return False


def start_payment_service(folder: Path, *, port: int = 0, name: str = "payment") -> Service:
    """The payment service; its ledger is `folder`/`name`.sqlite3 and survives a restart."""
    module = "examples.refund_desk.payment_service"
    ledger = folder / f"{name}.sqlite3"
    command = [sys.executable, "-m", module, "--port", str(port), "--ledger", str(ledger)]
    service = spawn(name=name, command=command, folder=folder)
    return _await_ready(service, lambda: _announced(service), timeout=20)


def start_model_server(folder: Path, *, port: int = 0, name: str = "model") -> Service:
    """The scripted model server; the client's base URL is `service.url` + "/v1"."""
    module = "examples.refund_desk.model_server"
    command = [sys.executable, "-m", module, "--port", str(port)]
    service = spawn(name=name, command=command, folder=folder)
    return _await_ready(service, lambda: _announced(service), timeout=20)


def start_web(
    folder: Path,
    *,
    env: Mapping[str, str],
    port: int = 0,
    threads: int = 16,
    workers: int = 1,
    name: str = "web",
    wait: bool = True,
) -> Service:
    """gunicorn with the project's WSGI application; ready when it answers HTTP.

    With `wait=False` it is returned at once; `await_web` then gives it its `url`.
    """
    command = [
        sys.executable, "-m", "gunicorn", "config.wsgi:application",
        "--bind", f"127.0.0.1:{port}", "--workers", str(workers), "--threads", str(threads),
        "--no-control-socket", "--graceful-timeout", "5",
    ]  # fmt: skip
    service = spawn(
        name=name,
        command=command,
        folder=folder,
        env=env,
        on_parent_death=signal.SIGTERM,  # so that the master takes its children with it
    )
    return await_web(service) if wait else service


def await_web(service: Service) -> Service:
    """Wait until the web server answers HTTP. Raises ServiceError with its log."""
    try:
        return _await_ready(service, lambda: _answers(service), timeout=60)
    except ServiceError:
        if _PORT_TAKEN in service.log_text():
            raise ServiceError("the port is taken by another process; choose another") from None
        raise


def _answers(service: Service) -> bool:
    log = service.log_text()
    listening = re.search(r"Listening at: (http://[\d.]+:\d+)", log)
    if listening is None:
        if _PORT_TAKEN in log:  # gunicorn would go on trying for five seconds
            service.kill()
        return False
    service.url = listening[1]
    try:
        with urllib.request.urlopen(f"{service.url}/healthz", timeout=5) as reply:  # noqa: S310
            return bool(reply.status < 500)
    except urllib.error.HTTPError as error:
        return error.code < 500  # the application answers
    except OSError:
        return False


def start_worker(
    folder: Path,
    *,
    env: Mapping[str, str],
    queues: str = STEP_QUEUES,
    name: str = "worker",
    threads: int = 16,
    wait: bool = True,
) -> Service:
    """A Celery worker with the thread pool; ready when it has said so in its log.

    With `wait=False` it is returned at once, for `await_worker` (or because a failpoint kills it).
    """
    command = [
        sys.executable, "-m", "celery", "-A", "config.celery_app", "worker",
        "-P", "threads", "-c", str(threads), "-Q", queues,
        "--without-gossip", "--without-mingle", "--loglevel", "INFO", "-n", f"{name}@%h",
    ]  # fmt: skip
    service = spawn(name=name, command=command, folder=folder, env=env)
    return await_worker(service) if wait else service


def await_worker(service: Service) -> Service:
    """Wait until the worker says that it is ready. Raises ServiceError with its log."""
    return _await_ready(service, lambda: _worker_ready(service), timeout=60)


def _worker_ready(service: Service) -> bool:
    return re.search(r"@\S+ ready\.", service.log_text()) is not None


def stop_all(services: Sequence[Service], *, grace: float = 15.0) -> None:
    """Stop every process, the last one started first; TERM goes to all before any wait."""
    for service in services:
        if service.alive:
            service.resume()
            service.process.terminate()
    for service in reversed(services):
        service.stop(grace=grace)
