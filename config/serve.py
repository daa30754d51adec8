"""`make run`: the services alone, until Ctrl-C. Embedded servers, migrations, web, one worker.

`make run PORT=8123` chooses the port of the web server.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from config.embedded import ServerError, Stack, embedded_stack
from config.embedded.ports import free_port, port_is_free
from config.processes import (
    ROOT,
    start_process,
    stop_process,
    stream_command,
    wait_for_http,
    web_command,
    worker_command,
)

DEFAULT_PORT = 8000


def choose_port(text: str) -> int:
    """The port that `text` names, else 8000, else a free one. Raises ServerError when taken."""
    if not text:
        return DEFAULT_PORT if port_is_free(DEFAULT_PORT) else free_port()
    if not text.isdigit() or not 0 < int(text) < 65_536:
        raise ServerError(f"PORT={text} is not a port: choose a number from 1 to 65535")
    if not port_is_free(int(text)):
        raise ServerError(
            f"port {text} is taken by another program: stop it, or choose another one "
            "(make run PORT=8123)"
        )
    return int(text)


def migrate(env: dict[str, str]) -> None:
    """Bring the tables up to date. Raises ServerError with the end of the output."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "--no-input"],
        cwd=ROOT, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ServerError(f"migrate failed:\n{(done.stdout + done.stderr).strip()[-3000:]}")


def stream_port(port: int) -> int:
    """The port of the event streams beside `port`: the next one, or a free one."""
    return port + 1 if port < 65_535 and port_is_free(port + 1) else free_port()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def services(
    *, stack: Stack, port: int, logs: Path, streams: int = 0
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run web, one worker and, with a port for it, the server of event streams, for the time of the
    block, by name. Raises ServerError."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    commands = {"web": web_command(port=port), "worker": worker_command()}
    if streams:
        commands["streams"] = stream_command(port=streams)
    try:
        for name, command in commands.items():
            env = {**stack.env(), "AGENTCORE_PROCESS": f"agentcore-{name}"}
            processes[name] = start_process(command, env=env, log=logs / f"{name}.log")
        wait_for_http(
            f"http://127.0.0.1:{port}/healthz", process=processes["web"], log=logs / "web.log"
        )
        yield processes
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        for process in processes.values():
            stop_process(process)


def serve() -> None:
    """Start, say where things are, and stay. Raises ServerError when something cannot start."""
    port = choose_port(os.environ.get("AGENTCORE_PORT", ""))
    folder = Path(os.environ.get("AGENTCORE_RUN_DIR") or ROOT / ".run").resolve()
    with embedded_stack(folder=folder) as stack:
        _say("Servers are up; bringing the tables up to date ...")
        migrate(stack.env())
        events = stream_port(port)
        with services(stack=stack, port=port, logs=folder, streams=events) as processes:
            _say(
                f"  review console  http://127.0.0.1:{port}/admin/\n"
                f"  REST            http://127.0.0.1:{port}/api/v1/\n"
                f"  event streams   http://127.0.0.1:{events}/api/v1/runs/<id>/events\n"
                f"  logs            {folder}\n"
                "Make a reviewer with `.venv/bin/python manage.py createsuperuser`, a token with\n"
                "`.venv/bin/python manage.py token create NAME --scope runs:write\n"
                "--scope runs:read --scope events:read --scope refunds.write`.\n"
                "Ctrl-C stops everything."
            )
            _stay(processes, folder)


def _stay(processes: dict[str, subprocess.Popen[bytes]], folder: Path) -> None:
    while True:
        for name, process in processes.items():
            if process.poll() is not None:
                raise ServerError(
                    f"{name} ended with exit code {process.returncode}; see {folder}/{name}.log"
                )
        time.sleep(0.5)


def _interrupt(_: int, __: FrameType | None) -> None:
    """The first signal stops everything in order; further ones must not break into that."""
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, signal.SIG_IGN)
    _say("Stopping ...")
    raise KeyboardInterrupt


def main() -> int:
    """Run `serve` and turn what goes wrong into one message. Returns the exit code."""
    form = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser("make run", description=__doc__, formatter_class=form).parse_args()
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, _interrupt)
    try:
        serve()
    except KeyboardInterrupt:
        _say("Stopped.")
        return 0
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
