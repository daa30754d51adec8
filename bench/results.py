"""Where figures go: JSON beside the code, tables on the screen."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).resolve().parent / "results"


def store(name: str, body: dict[str, Any]) -> Path:
    """Write `bench/results/<name>.json`, replacing the last one; say where.

    `command`: the words after `python -m bench`; `took_seconds`: since this process began;
    `load_after`: the load averages now.
    """
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    stamped = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv[1:]),
        "took_seconds": round(time.time() - psutil.Process().create_time()),
        "load_after": [round(value, 2) for value in os.getloadavg()],
        **body,
    }
    path.write_text(json.dumps(stamped, indent=1) + "\n", encoding="utf-8")
    print(f"\nstored in {path.relative_to(FOLDER.parent.parent)}")
    return path


def stored() -> dict[str, dict[str, Any]]:
    """What was stored last, by name."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, padded so that it also reads well on a screen."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    shown = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([shown[0], rule, *shown[1:]])


def plain(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown without padding, as the documents have it."""
    shown = [
        "|" + "".join(f" {cell} |".replace("  ", " ") for cell in row) for row in (head, *rows)
    ]
    return "\n".join([shown[0], "|" + "---|" * len(head), *shown[1:]])


def progress(text: str) -> None:
    """One line while something is measured."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def describe(machine: dict[str, Any]) -> str:
    """The machine as a few lines of text."""
    settings = ", ".join(f"{k}={v}" for k, v in machine["postgres"].items())
    packages = ", ".join(f"{k} {v}" for k, v in machine["packages"].items())
    return (
        f"{machine['cpus']} CPUs, {machine['memory_gb']} GB, Python {machine['python']},"
        f" {packages}\n"
        f"PostgreSQL: {settings}\n"
        f"a small commit {machine['commit_ms']} ms; calibration {machine['calibration_ms']} ms;"
        f" load average {machine['load_before']}"
    )
