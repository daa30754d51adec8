"""Floor (a) in pgbench: the same commits as in psycopg, and a reason where it cannot be had."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest

from bench import floor_pgbench, peers, rounds
from bench.floor_psycopg import LANES, steps_of
from bench.installation import Installation, address_of
from bench.peer import measure
from config.embedded import Stack

NAMES = ("floor a in pgbench: three statements", "floor a in pgbench: one statement")
PEERS = [peer for peer in peers.PEERS if peer.name in NAMES]


@pytest.fixture
def place(stack: Stack, tmp_path: Path) -> Iterator[Installation]:
    """As much of an installation as a floor needs."""
    with psycopg.connect(stack.database_url, autocommit=True) as looking:
        server = psutil.Process(looking.info.backend_pid).ppid()
        yield Installation(stack, tmp_path, {}, looking, server, os.getpid())


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.key)
def test_every_run_is_the_commits_of_the_floor(place: Installation, peer: peers.Peer) -> None:
    count = peer.procs * LANES
    with peer.open(place, peer.procs) as session:
        session.many(count - 1)
        seconds = session.one()
        with closing(psycopg.connect(address_of(place.stack, "bench_floor_pgbench"))) as conn:
            runs = conn.execute("SELECT state, revision, turn FROM run").fetchall()
            events = conn.execute(
                "SELECT revision, kind, payload->>'call_id', count(*) FROM event"
                " GROUP BY 1, 2, 3 ORDER BY 1"
            ).fetchall()
    every = count + floor_pgbench.ALONE
    steps = [(kind, json.loads(text).get("call_id")) for kind, _, text in steps_of("", 5)]
    assert runs == [("decision", len(steps), 4)] * every
    assert events == [(number, *step, every) for number, step in enumerate(steps, 1)]
    assert seconds is not None
    assert 0 < seconds < 60, "pgbench's own clock"


def test_a_run_is_ten_transactions_and_its_cpu_is_counted(place: Installation) -> None:
    peer = PEERS[0]
    made = measure(peer, place, runs=40 * LANES, singles=1)
    assert made.write_transactions >= 10
    assert made.cpu["workers"] > 0, "pgbench has ended, its time counts all the same"


@dataclass
class Quick:
    """A session whose runs take no time, or as long as it says."""

    told: float | None
    pids: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)

    def many(self, count: int) -> None:
        pass

    def one(self) -> float | None:
        return self.told


@pytest.mark.parametrize("told", [None, 0.5])
def test_an_isolated_run_takes_as_long_as_it_says_or_as_the_clock_outside(
    place: Installation, told: float | None
) -> None:
    peer = peers.Peer("quick", 1, 1.0, lambda *_: nullcontext(Quick(told)))
    made = measure(peer, place, runs=10, singles=3)
    assert made.p50_ms == 500 if told else 0 < made.p50_ms < 500


def test_the_whole_table_has_both_with_one_process_and_with_two() -> None:
    assert sorted(peer.key for peer in PEERS) == sorted(
        f"{name} x{n}" for name in NAMES for n in (1, 2)
    )
    for peer in PEERS:
        for asked in (60, 120, 333):
            assert peer.runs(asked) % (peer.procs * LANES) == 0, "each connection has as many"


def test_without_pgbench_the_row_has_the_reason(
    place: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DATABASE_URL names another server, and its programs are not here."""
    for name in ("initdb", "postgres"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    place.stack = Stack(place.stack.database_url, place.stack.redis_url, None, None)
    asked = rounds.parser("test", None).parse_args(["--repeats", "1"])
    found = rounds.measure_all(place, PEERS[:1], asked)
    table = rounds.table_of(PEERS[:1], found)
    assert "failed: pgbench is not installed" in table


def test_what_pgbench_says_is_the_reason(place: Installation) -> None:
    with PEERS[0].open(place, 1) as session:
        with psycopg.connect(address_of(place.stack, "bench_floor_pgbench")) as conn:
            conn.execute("DROP TABLE event")
        with pytest.raises(RuntimeError, match='relation "event" does not exist'):
            session.many(4)
