"""What one five-turn run costs, in counts that are the same on every machine.

Times need a quiet machine and say little; these say at once when a change makes a run dearer. The
run is the one of `bench/`: four turns with one write each, then a final answer, on one process
that serves all queues.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from config.embedded import Stack
from tests.world import ROOT

ROWS = {"turn": 5, "actionjournal": 4, "attempt": 9, "event": 11, "evidence": 4, "ledger": 10}


@pytest.fixture(scope="module")
def counts(stack: Stack) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "counts", "--json"],
        env={**os.environ, **stack.env()},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_commits_are_the_minimum(counts: dict[str, Any]) -> None:
    """One that makes the run, one that claims it, one before the first call, and one after each of
    the nine calls, which holds the intent of the next."""
    assert counts["commits"] == 12


def test_one_message_carries_the_run(counts: dict[str, Any]) -> None:
    assert counts["messages"] == 1


def test_statements_and_round_trips(counts: dict[str, Any]) -> None:
    """BEGIN and COMMIT travel with the statement between them, so most transactions are one
    message, its claim as well; the start of the run is two."""
    assert counts["statements"] <= 25
    assert counts["round_trips"] <= 13


def test_no_row_more_than_what_it_says(counts: dict[str, Any]) -> None:
    assert counts["rows"] == ROWS


def test_bytes_of_wal(counts: dict[str, Any]) -> None:
    """Without the images of whole pages, which depend on when the last checkpoint was. The goal is
    35 kB; docs/performance.md says where the rest goes. This bound may only come down.
    """
    assert counts["wal"] <= 62 * 1024
