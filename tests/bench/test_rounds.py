"""How measurements in rounds treat what fails, and on what their ratios rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from bench import peers, ratios, rounds
from bench.installation import Installation
from bench.peer import Measured, Peer
from bench.rounds import Failed, Found

NOWHERE = cast("Installation", None)
"""Peers that fail before they look at it."""


def measured(*, runs_s: float, p50_ms: float = 30.0, cpu: float = 20.0, **more: float) -> Measured:
    shares = {"workers": cpu, "postgres": 0.0, "server": 0.0, "broker": 0.0, "driver": 1.0, **more}
    return Measured(
        runs_s=runs_s,
        p50_ms=p50_ms,
        p95_ms=p50_ms,
        cpu=shares,
        write_transactions=10.0,
        wal_bytes=2048.0,
        rss_mb=70.0,
        calibration_ms=15.0,
    )


def failing(name: str, reason: str) -> Peer:
    @contextmanager
    def opened(_place: Installation, _procs: int) -> Iterator[Any]:
        raise RuntimeError(f"a peer has ended:\nTraceback\n{reason}\n")
        yield

    return Peer(name, 1, 1.0, opened)


def asked_of_peers(*words: str) -> argparse.Namespace:
    return peers.parser().parse_args(list(words))


def asked(*words: str) -> argparse.Namespace:
    return rounds.parser("test", None).parse_args(list(words))


def test_a_peer_that_fails_stops_only_itself() -> None:
    found = rounds.measure_all(
        NOWHERE,
        [failing("one", "ModuleNotFoundError: No module named 'one'"), failing("two", "no server")],
        asked("--repeats", "2"),
    )
    first = Failed("ModuleNotFoundError: No module named 'one'")
    assert found == {"one x1": [first, first], "two x1": [Failed("no server")] * 2}


def test_the_table_shows_what_failed_and_why() -> None:
    shown = [failing(name, "") for name in ("none", "some", "own")]
    table = rounds.table_of(
        shown,
        {
            "none x1": [Failed("no server")],
            "some x1": [Failed("no server"), measured(runs_s=40)],
            "own x1": [measured(runs_s=10, server=90.0)],
        },
    )
    none, some, own = table.splitlines()[2:5]
    assert "failed: no server" in none
    assert "40.0, 1 of 2 failed" in some
    cells = [cell.strip() for cell in own.split("|")]
    assert "110.0" in cells, "a server of its own is counted"
    assert "90.0" in cells, "and shown as the server"
    assert cells[-4:-2] == ["-", "-"], "PostgreSQL has nothing of it"


def with_rivals() -> Found:
    """Two rounds. DBOS failed in the first, Temporal in both."""
    return {
        f"{ratios.DBOS} x1": [Failed("no module"), measured(runs_s=60, p50_ms=40, cpu=30)],
        f"{ratios.LANGGRAPH} x1": [measured(runs_s=40), measured(runs_s=30)],
        f"{ratios.TEMPORAL} x1": [Failed("no server"), Failed("no server")],
        "ours x1": [measured(runs_s=80, p50_ms=15, cpu=10), measured(runs_s=90, p50_ms=45)],
    }


def test_a_ratio_is_against_the_best_rival_of_its_round() -> None:
    made = ratios.against(with_rivals(), "ours", 1)
    assert made.each[ratios.RUNS_S] == [2.0, 1.5], "LangGraph in the first round, then DBOS"
    assert made.each[ratios.P50] == [0.5, 1.5], "each figure has its own best"
    assert made.each[ratios.CPU] == [0.5, 1.0]


def test_the_ratios_say_on_which_rivals_they_rest() -> None:
    assert ratios.rests_on(with_rivals(), 1) == (
        "Best durable peer, 1 process: of DBOS direct (in 1 of 2 rounds), LangGraph sync; without"
        " Temporal local activities (failed: no server)"
    )
    assert "DBOS direct (not asked for)" in ratios.rests_on({}, 2)
    assert "of none, so there are no ratios" in ratios.rests_on({}, 2)


def test_ours_misses_its_goals_when_it_fails_and_has_none_without_rivals() -> None:
    goals = len(ratios.GOALS)
    failed: Found = {**with_rivals(), "ours x1": [Failed("stuck"), Failed("stuck")]}
    assert [row[-1] for row in ratios.goals_of(failed, "ours", [1])][:goals] == ["no"] * goals
    alone: Found = {"ours x1": [measured(runs_s=80)]}
    assert [row[-1] for row in ratios.goals_of(alone, "ours", [1])][:goals] == ["-"] * goals


def test_peers_are_chosen_by_words_of_their_names() -> None:
    chosen = rounds.chosen(peers.PEERS, "dbos q, TEMPORAL LOCAL")
    assert [peer.key for peer in chosen] == [
        "DBOS queue x1",
        "Temporal local activities x1",
        "DBOS queue x2",
        "Temporal local activities x2",
    ]
    with pytest.raises(SystemExit, match="LangGraph async x2"):
        rounds.chosen(peers.PEERS, "restate")


def test_a_slow_disk_is_slow_for_all_who_are_compared() -> None:
    usual, slow = (
        {peer.key for peer in peers.offered(asked_of_peers("--procs", "1", *more))}
        for more in ((), ("--commit-delay", "2000"))
    )
    assert all(key.endswith(" x1") for key in usual)
    assert sorted(usual - slow) == [
        "Temporal activities in memory x1",
        "Temporal activities x1",
        "Temporal local activities x1",
    ], "their store knows no such delay"


def test_the_whole_table_holds_every_rival_and_ours_once_and_fits_in_half_an_hour() -> None:
    keys = [peer.key for peer in peers.PEERS]
    assert len(keys) == len(set(keys))
    for procs in peers.PROCS:
        assert {f"{name} x{procs}" for name in (*ratios.RIVALS, peers.OURS)} <= set(keys)
    assert rounds.estimate(peers.PEERS, asked()) < 30 * 60
