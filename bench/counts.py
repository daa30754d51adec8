"""`make bench ARGS="counts"`: what one five-turn run costs, in counts that no machine changes.

One run through the real driver, in this process, with the server's own log as witness: commits and
bytes of WAL are read from it by database, so that nothing else on the server is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID
from weakref import WeakSet

from bench import machine, ours, results
from bench.installation import Installation, installation
from bench.peer import TURNS
from config.broker import QUEUES

INLINE = frozenset(QUEUES)
GOALS = {"commits": 12, "statements": 80, "messages": 2, "wal": 35 * 1024}
STRETCH = {"commits": 12, "statements": 40, "messages": 1, "wal": 25 * 1024}
QUIET = {"AGENTCORE_BEAT_PERIOD": "100", "AGENTCORE_WORKER_DEAD_AFTER": "300"}
"""No beat while a run is counted."""
WARM = 3
CONTROL = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK", "BEGIN", "COMMIT")
TABLES = ("turn", "actionjournal", "attempt", "event", "evidence", "ledger")


@dataclass
class Counts:
    """One run. `wal` in bytes, without the images of whole pages that a checkpoint brings about."""

    commits: int
    statements: int
    round_trips: int
    messages: int
    wal: int
    rows: dict[str, int]


def main(arguments: Sequence[str] = ()) -> int:
    """Count and print. 1 when a goal is missed."""
    made = argparse.ArgumentParser(prog="bench counts", description=__doc__)
    made.add_argument("--turns", type=int, default=TURNS)
    made.add_argument("--json", action="store_true", help="print the counts as one line of JSON")
    made.add_argument("--statements", action="store_true", help="print every statement, too")
    asked = made.parse_args(list(arguments))
    with installation(**QUIET) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        ours.set_up(place)
        for _ in range(WARM):  # the agent version, the pool, the first hint, prepared statements
            drive_to_the_end(ours.start_run(asked.turns), revision=NEW)
        seen: Counter[str] = Counter()
        counts = count(place, asked.turns, seen)
        stop()
    if asked.json:
        print(json.dumps(asdict(counts)))
        return 0
    if asked.statements:
        for text, times in seen.most_common():
            print(f"{times:4d}  {text[:200]}")
    rows = [[name, getattr(counts, name), goal, STRETCH[name]] for name, goal in GOALS.items()]
    rows.append(["round trips", counts.round_trips, "", ""])
    rows += [[f"rows of {name}", number, "", ""] for name, number in counts.rows.items()]
    print(results.table([f"a run of {asked.turns} turns", "counted", "goal", "stretch"], rows))
    results.store("counts", {"machine": about, "asked": vars(asked), "counts": asdict(counts)})
    return 0 if all(getattr(counts, name) <= goal for name, goal in GOALS.items()) else 1


def count(place: Installation, turns: int, seen: Counter[str] | None = None) -> Counts:
    """Start one run, drive it to its end here, and count."""
    seen = Counter() if seen is None else seen
    start = place.looking.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert start is not None
    _settle()  # the hint of the run before
    pushed = _pushes(place)
    with watched(seen), traced() as trips:
        run_id = ours.start_run(turns)
        drive_to_the_end(run_id, revision=NEW)
        round_trips = trips()
    _settle()
    messages = _pushes(place) - pushed
    commits, wal = place.looking.execute(_FROM_THE_LOG, {"start": start[0]}).fetchone() or (0, 0)
    rows = {
        name: place.number(f"SELECT count(*) FROM runs_{name} WHERE run_id = %s", run_id)  # noqa: S608
        for name in TABLES
    }
    statements = sum(seen.values())
    return Counts(int(commits), statements, round_trips, messages, int(wal), rows)


# Records of one database by the blocks they touch; a transaction belongs to it when one of its
# records does. `block_ref` says "rel space/database/relation".
_FROM_THE_LOG = """
    WITH record AS MATERIALIZED (
        SELECT * FROM pg_get_wal_records_info(%(start)s, pg_current_wal_flush_lsn())
    ), mine AS (
        SELECT DISTINCT xid FROM record
        WHERE xid::text <> '0' AND block_ref LIKE '%%/' || (
            SELECT oid FROM pg_database WHERE datname = current_database()) || '/%%'
    )
    SELECT count(*) FILTER (WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'),
        coalesce(sum(record_length - fpi_length), 0)
    FROM record WHERE xid IN (SELECT xid FROM mine)
"""


@contextmanager
def watched(seen: Counter[str]) -> Iterator[None]:
    """Count into `seen` the statements of this thread without transaction control."""
    from django.db import connection

    def watch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        for part in sql.split("; "):
            if not part.lstrip().upper().startswith(CONTROL):
                seen[" ".join(part.split())] += 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Let libpq write down what it sends; the yielded function counts the queries of this process,
    each of which waits for its answer."""
    from django.db.backends.signals import connection_created
    from psycopg.pq import Trace

    known: WeakSet[Any] = WeakSet()
    with tempfile.NamedTemporaryFile("r") as file:

        def trace(connection: Any, **_: Any) -> None:
            raw = connection.connection
            if raw not in known:
                known.add(raw)
                raw.pgconn.trace(os.open(file.name, os.O_WRONLY | os.O_APPEND))
                raw.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)

        connection_created.connect(trace)
        try:
            yield lambda: sum(line.startswith("F\t") for line in file)
        finally:
            connection_created.disconnect(trace)
            for raw in known:
                raw.pgconn.untrace()


NEW = 1
"""The revision of a run that was just started, as its message says."""


def drive_to_the_end(run_id: UUID, *, revision: int | None = None) -> None:
    """As the thread of a worker that serves all queues: slice after slice. `revision` is what the
    message of the first one says."""
    from runs.driver import drive

    while (driven := drive(run_id=run_id, revision=revision, inline=INLINE)) and driven.due:
        revision = driven.revision


def stop() -> None:
    """The end of this process as a worker."""
    from runs import worker

    worker.stop()


def _settle() -> None:
    """Until the hints of this process are published."""
    from runs import dispatch

    dispatch.drain()


def _pushes(place: Installation) -> int:
    """Messages put into the queues of this installation since the server started."""
    with place.broker() as client:
        stats = client.info("commandstats")
        names = ("lpush", "rpush")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in names)
