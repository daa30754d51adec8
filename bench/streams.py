"""`make bench ARGS="streams"`: a thousand open event streams in one process, and what they cost.

Opens them, sends an event to every run, waits until every stream has it, and prints the memory of
the process, its database connections and the delays. Loopback only; below a minute.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any
from uuid import uuid4

import psutil
import psycopg

from bench import machine, results
from config.embedded import embedded_stack
from config.embedded.ports import free_port
from config.embedded.stack import remove_stack
from config.processes import start_process, stop_process, stream_command, wait_for_http
from runs.waking import channel_of
from tests.world import ROOT, World, open_world

STREAMS = 1000
RUNS = 100
LIMIT_MB = 200


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print, store; 1 when the memory is above the limit. TimeoutError when an event is
    missing."""
    made = argparse.ArgumentParser(prog="bench streams", description=__doc__)
    made.add_argument("--streams", type=int, default=STREAMS, help=f"({STREAMS})")
    asked = made.parse_args(list(arguments))
    base = ROOT / ".run"
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    limits = {"AGENTCORE_API_READS_A_MINUTE": "0", "AGENTCORE_API_WRITES_A_MINUTE": "0"}
    try:
        with (
            embedded_stack(folder=folder) as stack,
            open_world(stack, folder / "world", **limits) as world,
        ):
            about = machine.describe(world.env["DATABASE_URL"])
            found = measure(world, folder, asked.streams)
    finally:
        remove_stack(folder)
    print(results.describe(about))
    print(told(found))
    results.store("streams", {"machine": about, "asked": vars(asked), **found})
    return 0 if found["memory_mb"] < LIMIT_MB else 1


def measure(world: World, folder: Path, count: int) -> dict[str, Any]:
    """Start web and stream server, open the streams, send events."""
    world.start_web()
    runs = [world.refund(f"ORD-{number}") for number in range(100_000, 100_000 + RUNS)]
    port = free_port()
    env = {**world.env, "AGENTCORE_PROCESS": "agentcore-streams"}
    log = folder / "streams.log"
    process = start_process(stream_command(port=port), env=env, log=log)
    try:
        wait_for_http(f"http://127.0.0.1:{port}/healthz", process=process, log=log)
        memory = psutil.Process(process.pid)
        before = memory.memory_info().rss / 2**20
        started = time.monotonic()
        streams = [open_stream(port, world.token, runs[n % RUNS]) for n in range(count)]
        until_text(streams, b"id: 1\n", seconds=60)
        opened = time.monotonic() - started
        delays = [round_of_events(world, streams, seq) for seq in (2, 3, 4)]
        after = memory.memory_info().rss / 2**20
        cpu = memory.cpu_percent(interval=3.0)
        held = world.query(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentcore-streams'"
        )[0][0]
        for sock in streams:
            sock.close()
    finally:
        stop_process(process)
    return {
        "streams": count,
        "runs": RUNS,
        "open_seconds": opened,
        "memory_before_mb": before,
        "memory_mb": after,
        "delays": delays,
        "connections": held,
        "idle_cpu_percent": cpu,
    }


def told(found: Mapping[str, Any]) -> str:
    """The figures as text."""
    count, runs, memory = found["streams"], found["runs"], found["memory_mb"]
    each = (memory - found["memory_before_mb"]) * 1024 / count
    return (
        f"{count:,} open event streams of {runs} runs in one process take {memory:.0f} MB"
        f" ({each:.0f} kB each, {found['memory_before_mb']:.0f} MB before) and"
        f" {found['connections']} database connections; an event to each of the {runs} runs"
        f" reaches all of them within {max(found['delays']):.2f} s;"
        f" {found['idle_cpu_percent']:.0f} % of a core while nothing happens."
    )


def open_stream(port: int, token: str, run: str) -> socket.socket:
    """Ask for the events of a run; the answer is read later."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.sendall(
        (
            f"GET /api/v1/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n"
            f"Accept: text/event-stream\r\nAuthorization: Bearer {token}\r\n\r\n"
        ).encode()
    )
    return sock


def round_of_events(world: World, streams: list[socket.socket], seq: int) -> float:
    """Let something happen to every run; the seconds until every stream has shown it.

    The rows are written as the runtime writes them, in one statement for all runs, which is what
    the measurement of the streams should not wait for.
    """
    started = time.monotonic()
    with psycopg.connect(world.env["DATABASE_URL"], autocommit=True) as conn:
        conn.execute(
            """WITH moved AS (
                   UPDATE runs_run SET event_seq = %(seq)s
                   WHERE event_seq = %(seq)s - 1 RETURNING id, revision)
               INSERT INTO runs_event (run_id, seq, type, actor, revision_before, revision_after,
                   data, txn, hash, created_at)
               SELECT id, %(seq)s, 'run.advanced', 'worker:bench', revision, revision,
                   '{"transitions": []}', %(txn)s, 'bench', clock_timestamp() FROM moved""",
            {"seq": seq, "txn": uuid4()},
        )
        ids = [str(row[0].hex) for row in conn.execute("SELECT id FROM runs_run").fetchall()]
    prefix = world.env["AGENTCORE_BROKER_PREFIX"]
    with world.broker() as broker:
        broker.publish(channel_of(prefix), ",".join(ids))
    until_text(streams, f"id: {seq}\n".encode(), seconds=60)
    return time.monotonic() - started


def until_text(streams: list[socket.socket], text: bytes, *, seconds: float) -> None:
    """Read every stream until it has shown `text`. Raises TimeoutError."""
    limit = time.monotonic() + seconds
    seen: dict[socket.socket, bytes] = dict.fromkeys(streams, b"")
    with DefaultSelector() as selector:
        for sock in streams:
            sock.setblocking(False)
            selector.register(sock, EVENT_READ)
        waiting = set(streams)
        while waiting:
            if time.monotonic() > limit:
                raise TimeoutError(f"{len(waiting)} streams did not show {text!r}")
            for key, _ in selector.select(timeout=1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                seen[sock] = seen[sock][-200:] + sock.recv(65536)
                if text in seen[sock]:
                    waiting.discard(sock)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
