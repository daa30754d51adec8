"""Floor (a): the minimum of commits through psycopg, and nothing else.

A run is one commit that makes it and one for each decision and each result: ten for five turns. A
commit locks the run's row, appends an event and moves the row on: three statements, or all in one
that moves the row only when it still stands where it should.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from uuid import uuid4

import psycopg

from bench.installation import Installation
from bench.stub.texts import decision, result, written

TABLES = """
    CREATE TABLE run (id uuid PRIMARY KEY, state text NOT NULL, revision int NOT NULL,
        turn int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE event (id bigserial PRIMARY KEY, run_id uuid NOT NULL REFERENCES run,
        revision int NOT NULL, kind text NOT NULL, payload jsonb NOT NULL,
        at timestamptz NOT NULL DEFAULT now(), UNIQUE (run_id, revision));
"""
INSERT_RUN = "INSERT INTO run (id, state, revision, turn) VALUES (%s, 'READY', 0, 0)"
LOCK = "SELECT revision FROM run WHERE id = %s FOR NO KEY UPDATE"
APPEND = "INSERT INTO event (run_id, revision, kind, payload) VALUES (%s, %s, %s, %s)"
MOVE = (
    "UPDATE run SET state = %s, revision = %s, turn = %s, updated_at = now()"
    " WHERE id = %s AND revision = %s"
)
AT_ONCE = (
    "WITH moved AS (UPDATE run SET state = %s, revision = revision + 1, turn = %s,"
    " updated_at = now() WHERE id = %s AND revision = %s RETURNING id, revision)"
    " INSERT INTO event (run_id, revision, kind, payload) SELECT id, revision, %s, %s FROM moved"
)
LANES = 4
"""Runs at a time in one process."""


def steps_of(run: str, turns: int) -> Iterator[tuple[str, int, str]]:
    """(kind, turn, payload) of every commit after the one that makes the run."""
    for turn in range(turns):
        decided = decision(run=run, turn=turn, turns=turns)
        yield "decision", turn, written(decided)
        if decided["tool"]:
            yield "result", turn, written(result(decided))


def move(conn: psycopg.Connection, run: str, kind: str, turn: int, payload: str) -> None:
    """One commit of three statements."""
    with conn.transaction():
        row = conn.execute(LOCK, [run]).fetchone()
        assert row is not None
        revision = int(row[0])
        conn.execute(APPEND, [run, revision + 1, kind, payload])
        moved = conn.execute(MOVE, [kind, revision + 1, turn, run, revision])
        assert moved.rowcount == 1


def move_at_once(
    conn: psycopg.Connection, *, run: str, revision: int, kind: str, turn: int, payload: str
) -> None:
    """The same as one statement, for a run that is at `revision`."""
    moved = conn.execute(AT_ONCE, [kind, turn, run, revision, kind, payload])
    assert moved.rowcount == 1


def one_run(conn: psycopg.Connection, turns: int, *, at_once: bool = False) -> None:
    """Make a run and take it to its end."""
    run = str(uuid4())
    conn.execute(INSERT_RUN, [run])
    for revision, (kind, turn, payload) in enumerate(steps_of(run, turns)):
        if at_once:
            move_at_once(conn, run=run, revision=revision, kind=kind, turn=turn, payload=payload)
        else:
            move(conn, run, kind, turn, payload)


def _serve(url: str, turns: int, at_once: bool, orders: Connection) -> None:
    """In a process: do as many runs as asked, `LANES` at a time, until told to end."""
    lanes = [psycopg.connect(url, autocommit=True) for _ in range(LANES)]
    orders.send("ready")
    while (count := orders.recv()) is not None:
        if count == 1:
            one_run(lanes[0], turns, at_once=at_once)
        else:
            _in_lanes(lanes, count, turns, at_once)
        orders.send("done")


def _in_lanes(lanes: list[psycopg.Connection], count: int, turns: int, at_once: bool) -> None:
    def lane(number: int) -> None:
        for _ in range(number, count, LANES):
            one_run(lanes[number], turns, at_once=at_once)

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class PsycopgFloor:
    """The processes and the pipes by which they are told what to do."""

    pids: list[int]
    pipes: list[Connection]
    servers: list[int] = field(default_factory=list)

    def many(self, count: int) -> None:
        shares = [count // len(self.pipes)] * len(self.pipes)
        shares[0] += count - sum(shares)
        for pipe, share in zip(self.pipes, shares, strict=True):
            pipe.send(max(share, 2))
        for pipe in self.pipes:
            pipe.recv()

    def one(self) -> None:
        self.pipes[0].send(1)
        self.pipes[0].recv()


@contextmanager
def floor_a(
    place: Installation, procs: int, turns: int = 5, *, at_once: bool = False
) -> Iterator[PsycopgFloor]:
    """Floor (a) in `procs` processes."""
    with place.database("bench_floor_a") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(TABLES)
        with _processes(procs, (url, turns, at_once)) as floor:
            yield floor


floor_a_at_once = partial(floor_a, at_once=True)
"""A commit is one statement."""


@contextmanager
def _processes(procs: int, given: tuple[str, int, bool]) -> Iterator[PsycopgFloor]:
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(procs):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(*given, theirs), daemon=True)
        process.start()
        theirs.close()  # so that its end is seen
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            pipe.recv()
        yield PsycopgFloor([process.pid or 0 for process in processes], pipes)
    finally:
        for pipe in pipes:
            with suppress(OSError):  # it has ended
                pipe.send(None)
        for process in processes:
            process.join(10)
