"""The example clients run as they are, against real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded import Stack
from config.embedded.ports import free_port
from config.processes import start_process, stop_process, stream_command, wait_for_http
from runs.api.auth import SCOPES
from tests.world import ROOT, World, open_world, wait_for

CLIENTS = ROOT / "examples" / "clients"


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("clients")
    with open_world(stack, folder, scopes=(*SCOPES, "refunds.write")) as made:
        made.start_web()
        made.start_worker()
        yield made


def _env(world: World, **more: str) -> dict[str, str]:
    assert world.web is not None
    return {**os.environ, "API_URL": world.web.url, "API_TOKEN": world.token, **more}


@pytest.mark.requirement("R12")
def test_the_python_client_follows_a_run_to_its_end(world: World, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "streams.log"
    process = start_process(stream_command(port=port), env=world.env, log=log)
    try:
        wait_for_http(f"http://127.0.0.1:{port}/healthz", process=process, log=log)
        for order, amount, end in (
            ("ORD-1001", "20.00 EUR", "completed"),
            ("ORD-3003", "70.00 EUR", "cancelled"),
        ):
            done = subprocess.run(
                [sys.executable, str(CLIENTS / "start_and_follow.py"), order, amount],
                env=_env(world, EVENTS_URL=f"http://127.0.0.1:{port}"),
                capture_output=True,
                text=True,
                check=False,
                timeout=90,
            )
            assert done.returncode == 0, done.stderr + done.stdout
            lines = done.stdout.splitlines()
            assert lines[-1].startswith(end), done.stdout
            seqs = [int(line.split()[0]) for line in lines if line[:4].strip().isdigit()]
            assert seqs == list(range(1, len(seqs) + 1))
    finally:
        stop_process(process)


def test_the_curl_lines_work(world: World) -> None:
    done = subprocess.run(
        ["sh", str(CLIENTS / "curl.sh")],
        env=_env(world, ORDER="ORD-3003"),
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"status":"cancel' in done.stdout
    run_id = done.stdout.split()[1]
    wait_for(lambda: world.client.run(run_id)["status"] == "cancelled", seconds=30, what="the end")
