"""`make bench`: several measurements in a row, and a disk that is slower."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from bench import __main__ as bench
from bench.installation import slow_commits
from config.embedded import Stack
from tests.world import ROOT, wait_for


def shown(url: str) -> list[str]:
    with psycopg.connect(url) as conn:
        asked = ("commit_delay", "commit_siblings")
        return [str(conn.execute(f"SHOW {name}").fetchone()[0]) for name in asked]  # type: ignore[index]


def test_options_belong_to_the_name_before_them() -> None:
    words = ["workload", "--only", "counts,floor", "counts", "--turns", "5"]
    words += ["report", "counts", "peers"]
    assert bench.grouped(words) == [
        ("workload", ["--only", "counts,floor"]),
        ("counts", ["--turns", "5"]),
        ("report", ["counts", "peers"]),
    ]
    assert set(bench.USUAL) <= set(bench.BENCHES)


def test_one_that_breaks_does_not_stop_the_next(tmp_path: Path) -> None:
    """No server can be had; and an option that there is not."""
    env = {**os.environ, "PG_BIN": str(tmp_path)}
    env.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-m", "bench", "counts", "profile", "--lines", "many"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == bench.BROKEN
    rows = [line for line in done.stdout.splitlines() if "could not be measured" in line]
    assert [row.split()[1] for row in rows] == ["counts", "profile"]
    assert f"PG_BIN is {tmp_path}" in done.stderr
    assert "2 measurements: about" in done.stderr
    assert "2/2 profile" in done.stderr


def test_a_slow_disk_is_slow_for_a_single_session_and_only_for_the_measurement(
    own_stack: Stack,
) -> None:
    """PostgreSQL waits only when as many other transactions are open as `commit_siblings` says."""
    usual = shown(own_stack.database_url)
    with slow_commits(own_stack, 2000):
        wait_for(lambda: shown(own_stack.database_url) == ["2000", "0"], seconds=10)
    wait_for(lambda: shown(own_stack.database_url) == usual, seconds=10)
