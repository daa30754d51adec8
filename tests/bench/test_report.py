"""What was stored comes out as the tables of the documents, and no part passes for the whole."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench import ratios, report, results, rounds, tables, workload
from bench.rounds import Failed, Found
from tests.bench.test_rounds import measured

ABOUT = {
    "cpus": 2,
    "memory_gb": 8,
    "load_before": [0.1, 0.2, 0.3],
    "python": "3.11.7",
    "packages": {"Django": "5.2.19"},
    "postgres": {"server_version": "18.6"},
    "commit_ms": 0.25,
    "calibration_ms": 15.0,
}
STAMPS = {"at": "2026-01-02T03:04:05+00:00", "took_seconds": 240, "load_after": [2.5, 1.0, 0.5]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "bench" / "results")
    results.FOLDER.mkdir(parents=True)
    return results.FOLDER


def put(name: str, command: str, **body: Any) -> None:
    whole = {**STAMPS, "command": command, "machine": ABOUT, **body}
    (results.FOLDER / f"{name}.json").write_text(json.dumps(whole))


def rounds_of_peers() -> Found:
    ours, floor = workload.ONE, workload.FLOOR_B
    return {
        f"{ratios.LANGGRAPH} x1": [measured(runs_s=50, cpu=20), measured(runs_s=40, cpu=20)],
        "DBOS queue x1": [measured(runs_s=25), Failed("no server")],
        f"{ours} x1": [measured(runs_s=75, p50_ms=15, cpu=10), measured(runs_s=80, cpu=10)],
        f"{floor} x1": [measured(runs_s=150), measured(runs_s=100)],
        "Temporal activities x1": [Failed("not installed"), Failed("not installed")],
    }


def row(text: str, name: str) -> list[str]:
    """The cells of the line that begins with `name`."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_what_is_stored_is_read_as_it_was_measured() -> None:
    found = rounds_of_peers()
    assert rounds.loaded(json.loads(json.dumps(rounds.stored(found)))) == found


def test_the_table_of_the_peers_and_its_goals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("peers", "peers --repeats 2", peers=rounds.stored(rounds_of_peers()), packages=["dbos==3"])
    assert report.main(["peers"]) == 0
    said = capsys.readouterr().out
    paragraph = " ".join(said.splitlines())
    assert '`make bench-peers ARGS="--repeats 2"`, 2026-01-02, 4 minutes' in paragraph
    assert "dbos 3; 2 CPUs, a small commit 0.25 ms, load average 0.1 before and 2.5" in paragraph
    assert row(said, f"**{workload.ONE}**")[:4] == ["1", "77.5 (75.0-80.0)", "22.5", "10.0"]
    assert row(said, "Temporal activities")[1] == "failed: not installed"
    best = "runs/s against the best durable peer"
    assert row(said, best) == ["at least 1.5", "1.75 (1.50-2.00)"]
    assert row(said, "CPU a run against LangGraph") == ["at most 0.65", "0.50 (0.50-0.50)"]
    assert row(said, "runs/s against DBOS queue, which dispatches")[1] == "3.00", "it failed once"
    assert row(said, f"runs/s against {workload.FLOOR_B}") == ["at least 0.6", "0.65 (0.50-0.80)"]
    assert row(said, f"runs/s against {workload.FLOOR_A}")[1] == "-", "it was not measured"


def test_chosen_peers_do_not_pass_for_the_whole_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = argparse.Namespace(only="dbos", commit_delay=2000)
    assert rounds.named("peers", asked) == "peers-delay2000-part"
    asked.only = ""
    assert rounds.named("peers", asked) == "peers-delay2000"
    asked = argparse.Namespace(only="", procs=1, commit_delay=0)
    assert rounds.named("peers", asked) == "peers-part"
    put("peers-delay2000-part", "peers --only dbos", peers=rounds.stored(rounds_of_peers()))
    assert report.main([]) == 2
    assert "not stored: anything; there is peers-delay2000-part" in capsys.readouterr().err
    assert report.main(["peers-delay2000-part"]) == 0
    assert report.main(["counts"]) == 2


def test_the_goals_against_the_floors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put("workload", "workload", peers=rounds.stored(rounds_of_peers()))
    assert report.main([]) == 0
    name = f"{workload.ONE} against {workload.FLOOR_B}"
    assert row(capsys.readouterr().out, name) == ["1", "at least 0.6", "0.65 (0.50-0.80)", "yes"]


def small_ones() -> None:
    """The other measurements, as they store themselves."""
    rows = {"turn": 5, "event": 11}
    counted = {"commits": 12, "statements": 27, "round_trips": 15, "messages": 1, "wal": 68608}
    put("counts", "counts", counts={**counted, "rows": rows})
    length = {"ms": [10.0, 12.0], "worker": [5.0, 5.0], "postgres": [3.0, 3.0], "wal": [14e3, 14e3]}
    lengths = [
        {**length, "turns": n, "stored": [stored] * 2} for n, stored in ((10, 9e3), (200, 9.9e3))
    ]
    put("long", "long", lengths=lengths)
    grown = {"raw": 450000, "by_table": {}, "read_seconds": 0.01, "request_bytes": 1000}
    runs = [
        {**grown, "calls": calls, "stored": stored, "compile_seconds": 0.001 * calls}
        for calls, stored in ((50, 450000), (100, 900000))
    ]
    put("context", "context", runs=runs)
    put("waiting", "waiting", figures={"share of the ideal": 0.25, "memory MB": 254})
    put("recovery", "recovery", asked={"kills": 2}, seconds_to_claim=[13.0, 15.0], bound=20.0)
    one, other = {"rate": 400.0, "cpu_ms": 2.0}, {"rate": 200.0, "cpu_ms": 4.0}
    others = {name: {"8": [other]} for name in ("token", "product", "alone")}
    put("rest", "rest", targets={"bare": {"8": [one]}, **others})
    put(
        "streams", "streams", streams=1000, runs=100, memory_mb=140.0, memory_before_mb=100.0,
        delays=[0.1, 0.2], connections=5, idle_cpu_percent=1.0,
    )  # fmt: skip
    page = {"p50_ms": 10.0, "p95_ms": 20.0, "queries": 9, "missed": False}
    put("console", "console", pages={"home": page, "stuck": {**page, "p95_ms": 189.0}})


def test_every_measurement_has_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_ones()
    put("workload", "workload", peers=rounds.stored(rounds_of_peers()))
    put("peers", "peers", peers=rounds.stored(rounds_of_peers()))
    assert report.main([]) == 0
    said = capsys.readouterr().out
    heads = [line.removeprefix("### ") for line in said.splitlines() if line.startswith("### ")]
    assert heads == list(tables.OF), "all, in the order of the document"
    assert row(said, "kB of WAL, without images of whole pages") == ["67", "35", "25"]
    assert row(said, "200") == [
        "11.00 (10.00-12.00)",
        "5.00 (5.00-5.00)",
        "3.00 (3.00-3.00)",
        "9,900",
        "14,000",
    ]
    assert "time 1.00, bytes 1.10, CPU 1.00" in said
    assert row(said, "stored bytes") == ["450,000", "900,000", "2.00", "at most 2.4"]
    assert row(said, "share of the ideal") == ["0.25", "at least 0.9"]
    assert row(said, "2") == ["2", "14.0", "15.0", "15.0", "20.0"], "two kills"
    assert row(said, "8") == ["400", "200", "0.50", "0.50", "0.50", "0.50", "0.50"]
    assert "140 MB (41 kB each, 100 MB before)" in said
    pages = [line for line in said.splitlines() if line.startswith(("| home", "| stuck"))]
    assert pages[0] == "| stuck | 10 | 189 | 9 |", "the slowest first"
