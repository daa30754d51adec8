"""The demo as a reader runs it without a terminal: it ends by itself, with every check held."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded.stack import remove_stack
from examples.refund_desk.services import ROOT

CLEAN = ("DATABASE_URL", "REDIS_URL", "OPENAI_API_KEY", "AGENTCORE_OPENAI_API_KEY")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_stack(tmp_path / "demo")


def run_demo(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in CLEAN}
    return subprocess.run(
        [sys.executable, "-m", "examples.refund_desk.demo", *arguments],
        cwd=ROOT,
        env={**own, "AGENTCORE_RUN_DIR": str(folder), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_the_demo_ends_with_one_refund_and_every_check(folder: Path) -> None:
    done = run_demo(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "approved by reviewer" in said
    assert said.count("ref_") == 2, said  # in the answer and in the ledger
    assert re.findall(r"^    (\w+) +\d+\.\d+ s", said, re.MULTILINE)[:4] == [
        "compile_context",
        "call_model",
        "dispatch_tools",
        "observe",
    ]
    assert re.search(r"review +http://127\.0\.0\.1:\d+/admin/review/[0-9a-f-]{36}/", said)
    assert "FAILED" not in said
    assert not (folder / "demo" / "stack.json").exists()


def test_an_unreachable_database_is_named(folder: Path) -> None:
    done = run_demo(folder, DATABASE_URL="postgres://u:p@127.0.0.1:1/x")
    assert done.returncode == 1
    assert "the database of DATABASE_URL cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
