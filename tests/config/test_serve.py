"""`make run`: the services alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from config.embedded import ServerError
from config.embedded.stack import remove_stack
from config.serve import choose_port

ROOT = Path(__file__).resolve().parents[2]


def test_a_taken_or_impossible_port_says_so() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} is taken by another program"):
            choose_port(str(port))
    for text in ("0", "65536", "http", "-1"):
        with pytest.raises(ServerError, match="choose a number from 1 to 65535"):
            choose_port(text)
    assert choose_port("") > 0


def test_help_starts_nothing_and_an_unknown_word_is_refused() -> None:
    command = [sys.executable, "-m", "config.serve"]
    asked = subprocess.run(
        [*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "PORT=8123" in asked.stdout
    wrong = subprocess.run([*command, "now"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "unrecognized arguments: now" in wrong.stderr


@pytest.mark.fault
def test_services_start_answer_and_stop_without_leaving_anything(tmp_path: Path) -> None:
    given = {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"}
    clean = {name: value for name, value in os.environ.items() if name not in given}
    process = subprocess.Popen(
        [sys.executable, "-m", "config.serve"],
        cwd=ROOT,
        env={**clean, "AGENTCORE_RUN_DIR": str(tmp_path / "run"), "AGENTCORE_PORT": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C stops everything" in line:
            break
    address = next(word for word in said.split() if word.endswith("/admin/"))
    with urllib.request.urlopen(address.replace("admin/", "readyz"), timeout=10) as answer:
        assert answer.status == 200
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert psutil.wait_procs(children, timeout=20)[1] == []
    process.stdout.close()
    remove_stack(tmp_path / "run")
