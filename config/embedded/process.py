"""One server process: started so that it cannot outlive us, found again by its pid file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_TETHER = Path(__file__).with_name("tether.py")


class ServerError(RuntimeError):
    """A server that cannot be had; the text says why and what to do."""


def spawn(
    command: Sequence[str],
    *,
    log: IO[bytes] | int | None,
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    on_parent_death: signal.Signals = signal.SIGTERM,
    uid: int | None = None,
    gid: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` (with a full path) in a session of its own, without input, tied to our life.

    On Linux it gets `on_parent_death` when we are gone. `uid` and `gid`: the account to run it.
    Must be called in the main thread: Linux ties a child to the *thread* that started it.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start servers in the main thread: they end with the starting thread")
    numbers = (os.getpid(), int(on_parent_death), -1 if uid is None else uid, gid or 0)
    tether = [sys.executable, "-I", "-S", str(_TETHER), *(str(number) for number in numbers)]
    return subprocess.Popen(
        [*tether, *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


def command_line(pid: int) -> str:
    """The command of process `pid`, words joined by spaces; empty when there is none."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        if sys.platform == "linux":
            return ""
    listing = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip()


def reap(*, pid: int, mark: str, sig: signal.Signals, patience: float = 10.0) -> bool:
    """End a process that an earlier launcher left, and wait until it is gone.

    Only when its command contains `mark` (our data folder): pids are used again. Returns whether
    there was one. `patience` in seconds; then SIGKILL.
    """
    if pid <= 1 or mark not in command_line(pid):
        return False
    os.kill(pid, sig)
    hard = time.monotonic() + patience
    while mark in command_line(pid):
        if time.monotonic() > hard:
            os.kill(pid, signal.SIGKILL)
            hard = float("inf")
        time.sleep(0.02)
    return True


def read_pid(path: Path) -> int:
    """The number in the first line of `path`, or 0."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


class Server:
    """Life of one server process. Subclasses give the command, the check and the stop signal."""

    name = "server"
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGTERM
    patience = 10.0

    def __init__(self, *, control: Path, data: Path, account: Any, port: int) -> None:
        self.control = control
        self.data = data
        self.account = account
        self.port = port
        self.log_path = control / f"{self.name}.log"
        self.pid_path = control / f"{self.name}.pid"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""
        raise NotImplementedError

    def ready(self) -> str:
        """Empty when the server answers us, else what it said."""
        raise NotImplementedError

    def reap_stale(self) -> bool:
        """End a process of ours that a dead launcher left. Returns whether there was one."""
        found = reap(pid=read_pid(self.pid_path), mark=str(self.data), sig=self.stop_signal)
        self.pid_path.unlink(missing_ok=True)
        return found

    @property
    def pid(self) -> int:
        """The process id; 0 when it does not run."""
        return self.process.pid if self.running and self.process else 0

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start and wait until the server answers. Raises ServerError with its last words."""
        if self.running:
            return
        with self.log_path.open("ab") as log:
            try:
                self.process = spawn(
                    self.command(),
                    log=log,
                    env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                    on_parent_death=self.death_signal,
                    uid=self.account.uid,
                    gid=self.account.gid,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise ServerError(f"{self.name} cannot be started: {error}") from error
        self.pid_path.write_text(f"{self.process.pid}\n")
        self._wait_ready()

    def stop(self) -> None:
        """Stop in good order; with force after `patience` seconds."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End it as `kill -9` would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let it accept connections but never answer (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """End `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the server's log."""
        try:
            text = self.log_path.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, sig: signal.Signals) -> None:
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(sig)
            process.send_signal(signal.SIGCONT)  # a frozen server cannot hear the first one
            try:
                process.wait(self.patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.process = None
        self.pid_path.unlink(missing_ok=True)

    def _wait_ready(self, seconds: float = 30.0) -> None:
        limit = time.monotonic() + seconds
        said = ""
        while time.monotonic() < limit:
            if not self.running:
                code = self.process.returncode if self.process else None
                self._fail(f"ended at once (exit code {code})")
            said = self.ready()
            if not said:
                return
            time.sleep(0.03)
        self.kill()
        self._fail(f"did not answer within {seconds:.0f} s ({said})")

    def _fail(self, what: str) -> None:
        self.process = None
        self.pid_path.unlink(missing_ok=True)
        raise ServerError(
            f"{self.name} {what}. Last lines of {self.log_path}:\n{self.log_tail()}\n"
            f"Remove the folder {self.control} to begin anew, or set DATABASE_URL and REDIS_URL "
            "to servers that run."
        )
