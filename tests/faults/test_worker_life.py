"""How a worker process ends: in order, at the grace limit, or because its threads are stuck."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from config.embedded import Stack
from examples.refund_desk.services import STEP_QUEUES, Service
from tests.workers import start_pool_worker, write_app
from tests.world import ROOT, World, open_world, uuid_of, wait_for

pytestmark = pytest.mark.fault

REPLACE = 75
LONG = "60"  # s; a dead worker is found by its own word or not at all in these tests
DRAIN = {"AGENTCORE_WORKER_DEAD_AFTER": LONG}
CUT = {**DRAIN, "AGENTCORE_GRACE_SECONDS": "1"}

TOOLS = '''
import os, time
from datetime import timedelta
from pathlib import Path
from pydantic import BaseModel
from tools import Effect, Key, ToolContext, tool

FOLDER = Path(os.environ["HANGING_FOLDER"])


class Stored(BaseModel):
    shelf: str


@tool(effect=Effect.WRITE, contract=Key(retention=timedelta(days=1)), identity=("shelf",), timeout=1)
def store(ctx: ToolContext, shelf: str) -> Stored:
    """Put a thing on a shelf.

    Args:
        shelf: the shelf.
    """
    if shelf.startswith("hang"):
        try:
            (FOLDER / shelf).touch(exist_ok=False)
        except FileExistsError:
            return Stored(shelf=shelf)
        while not (FOLDER / "go on").exists():
            time.sleep(0.05)
    return Stored(shelf=shelf)
'''  # noqa: E501
AGENTS = """
from runs.agents import agent

agent(name="storekeeper", version="1", instructions="Store.", tools=["hanging.store"])
"""
MARGINS = {"AGENTCORE_CALL_MARGIN": "1", "AGENTCORE_CLAIM_MARGIN": "4"}


def _holder(world: World, run_id: str) -> str:
    """The name of the worker that holds the run's lease."""
    rows = world.query(
        "SELECT w.pid FROM runs_run r JOIN runs_worker w ON w.id = r.lease_worker WHERE r.id = %s",
        uuid_of(run_id),
    )
    pids = {service.pid: name for name, service in world.workers.items()}
    return pids[rows[0][0]] if rows else ""


def _attempts(world: World, run_id: str, kind: str = "TOOL") -> list[tuple[Any, ...]]:
    """(outcome, late, lost, pid of the worker) of the attempts at the last write, in order."""
    return world.query(
        "SELECT a.outcome, a.late, a.lost_at IS NOT NULL, w.pid FROM runs_attempt a"
        " JOIN runs_actionjournal j ON j.id = a.action_id AND j.effect LIKE 'WRITE%%'"
        " LEFT JOIN runs_worker w ON w.id = a.worker"
        " WHERE a.run_id = %s AND a.kind = %s ORDER BY a.started_at, a.n",
        uuid_of(run_id),
        kind,
    )


# --- TERM -------------------------------------------------------------------------------------


def _refund_in_flight(world: World, order: str, fault: dict[str, Any]) -> tuple[str, Service]:
    """A run whose refund the payment service is busy with, and the worker that waits for it."""
    world.start_web()
    world.start_worker("w1", wait=False)
    world.start_worker("w2")
    world.fault(times=1, order_id=order, target="POST /refunds", **fault)
    run_id = world.refund(order)
    wait_for(lambda: _attempts(world, run_id), seconds=30, what="the refund to be sent")
    return run_id, world.workers[_holder(world, run_id)]


@pytest.mark.requirement("R59", "R61")
def test_term_in_a_call_records_its_result_and_another_worker_goes_on(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_world(stack, tmp_path_factory.mktemp("drain"), **DRAIN) as world:
        run_id, holder = _refund_in_flight(world, "ORD-7001", {"mode": "delay", "seconds": 2})

        holder.process.send_signal(signal.SIGTERM)

        assert holder.wait_gone(timeout=30) == 0
        assert world.finish(run_id, seconds=20)["status"] == "completed"  # dead after 60 s
        assert _attempts(world, run_id) == [("SUCCESS", False, False, holder.pid)]
        assert len(world.refunds("ORD-7001")) == 1
        after = world.query(
            "SELECT DISTINCT w.pid FROM runs_attempt a JOIN runs_worker w ON w.id = a.worker"
            " WHERE a.run_id = %s AND a.started_at > (SELECT max(ended_at) FROM runs_attempt"
            " WHERE run_id = a.run_id AND kind = 'TOOL')",
            uuid_of(run_id),
        )
        (other,) = [w.pid for w in world.workers.values() if w is not holder]
        assert after == [(other,)]


@pytest.mark.requirement("R59", "R61")
def test_a_call_that_outlasts_the_grace_is_unknown_probed_and_made_once(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_world(stack, tmp_path_factory.mktemp("cut"), **CUT) as world:
        fault = {"mode": "delay_after_commit", "seconds": 9}
        run_id, holder = _refund_in_flight(world, "ORD-7002", fault)
        wait_for(lambda: world.refunds("ORD-7002"), seconds=10, what="the effect")

        holder.process.send_signal(signal.SIGTERM)

        assert holder.wait_gone(timeout=30) == REPLACE
        assert world.finish(run_id, seconds=20)["status"] == "completed"  # dead after 60 s
        assert _attempts(world, run_id) == [(None, False, True, holder.pid)]
        assert [row[0] for row in _attempts(world, run_id, "PROBE")] == ["SUCCESS"]
        assert len(world.refunds("ORD-7002")) == 1
        assert ("action", "UNKNOWN") in _moves(world, run_id)


def _moves(world: World, run_id: str) -> set[tuple[str, str]]:
    rows = world.query("SELECT data FROM runs_event WHERE run_id = %s", uuid_of(run_id))
    return {(m["object"], m["to"]) for (data,) in rows for m in data.get("transitions", ())}


# --- stuck threads -------------------------------------------------------------------------------


@pytest.fixture
def hanging(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `open_world` needs for an installation whose tool can hang."""
    outside = write_app(tmp_path_factory.mktemp("outside"), "hanging", tools=TOOLS, agents=AGENTS)
    folder = tmp_path_factory.mktemp("hang")
    return {
        "folder": tmp_path_factory.mktemp("hanging"),
        "apps": ["hanging"],
        "PYTHONPATH": f"{ROOT}:{outside}",
        "HANGING_FOLDER": str(folder),
        **MARGINS,
    }


def _store(world: World, shelf: str) -> str:
    body = {"script": [[{"tool": "hanging__store", "arguments": {"shelf": shelf}}], ["stored"]]}
    return str(world.client.start_run(agent="storekeeper", run_input=body, key=shelf)["id"])


@pytest.mark.requirement("R59", "R61")
def test_a_stuck_thread_loses_its_lease_although_the_process_beats_on(
    stack: Stack, hanging: dict[str, Any]
) -> None:
    """The next claimer takes the write as UNKNOWN; what the thread brings later is kept."""
    with open_world(stack, **hanging) as world:
        world.start_web()
        world.start_worker("w1")

        run_id = _store(world, "hang-1")

        assert world.finish(run_id)["status"] == "completed"
        assert ("action", "UNKNOWN") in _moves(world, run_id)
        assert world.workers["w1"].alive, "one of sixteen threads is not too many"
        pid = world.workers["w1"].pid
        assert _attempts(world, run_id) == [
            (None, False, True, pid),
            ("SUCCESS", False, False, pid),
        ]
        Path(world.env["HANGING_FOLDER"], "go on").touch()
        wait_for(
            lambda: _attempts(world, run_id)[0][:3] == ("SUCCESS", True, True),
            seconds=10,
            what="the late result",
        )


@pytest.mark.requirement("R59", "R61")
@pytest.mark.parametrize(
    ("shelves", "limits"),
    [
        (["hang-1"], {"AGENTCORE_STUCK_SECONDS": "1"}),
        (["hang-1", "hang-2"], {"AGENTCORE_STUCK_SECONDS": "600"}),
    ],
    ids=["one for too long", "a tenth of the slots"],
)
def test_stuck_threads_make_the_process_drain_and_exit_for_a_new_one(
    stack: Stack, hanging: dict[str, Any], shelves: list[str], limits: dict[str, str]
) -> None:
    with open_world(stack, **hanging, **limits) as world:
        world.start_web()
        worker = world.start_worker("w1")
        hung = [_store(world, shelf) for shelf in shelves]
        folder = Path(world.env["HANGING_FOLDER"])
        wait_for(
            lambda: all((folder / shelf).exists() for shelf in shelves), seconds=20, what="hanging"
        )
        others = [_store(world, f"shelf-{number}") for number in range(20)]

        assert worker.wait_gone(timeout=40) == REPLACE
        assert f"drains and exits {REPLACE}" in worker.log_text()
        world.start_worker("w1")  # its supervisor

        for run_id in (*others, *hung):
            assert world.finish(run_id, seconds=40)["status"] == "completed"
        for run_id in hung:
            assert ("action", "UNKNOWN") in _moves(world, run_id)
            assert _attempts(world, run_id)[0] == (None, False, True, worker.pid)


# --- forked children -----------------------------------------------------------------------------


@pytest.mark.requirement("R59", "R61")
def test_the_story_runs_on_forked_children_and_outlives_one(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Identity, beat, pool and clients belong to a pid; a killed child costs its run one claim."""
    with open_world(stack, tmp_path_factory.mktemp("prefork")) as world:
        world.start_web()
        parent = start_pool_worker(world, "p", queues=STEP_QUEUES, pool="processes", slots=2)
        large = world.refund("ORD-7100", "80.00 EUR")
        small = [world.refund(f"ORD-{7101 + number}") for number in range(6)]
        world.waiting(large)
        world.decide(world.approvals(large)[0], "APPROVE")
        for run_id in (large, *small):
            assert world.finish(run_id)["status"] == "completed"

        children = _pids(world, (large, *small))
        assert parent.pid not in children
        assert len(children) == 2

        world.fault(mode="delay_after_commit", seconds=3, times=1, order_id="ORD-7110")
        cut = world.refund("ORD-7110")
        wait_for(lambda: world.refunds("ORD-7110"), seconds=20, what="the effect")
        (victim,) = world.query(
            "SELECT w.pid FROM runs_run r JOIN runs_worker w ON w.id = r.lease_worker"
            " WHERE r.id = %s",
            uuid_of(cut),
        )
        os.kill(victim[0], signal.SIGKILL)
        assert world.finish(cut)["status"] == "completed"
        assert parent.alive

        later = [world.refund(f"ORD-{7120 + number}") for number in range(8)]
        for run_id in later:
            assert world.finish(run_id)["status"] == "completed"
        (young,) = _pids(world, tuple(later)) - children  # forked from a parent that had a pool
        assert young not in (parent.pid, victim[0])
        refunded = Counter(row["order_id"] for row in world.ledger())
        orders = (*range(7100, 7107), 7110, *range(7120, 7128))
        assert refunded == {f"ORD-{number}": 1 for number in orders}


FORK = """
import json, os, django
django.setup()
from django.db import connection
from runs import worker

def session():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

parent = [session(), str(worker.current().id)]
reading, writing = os.pipe()
if os.fork() == 0:
    os.read(reading, 1)  # until the parent drains
    child = [session(), str(worker.current().id), worker.is_draining()]
    worker.stop()
    print(json.dumps(child), flush=True)
    os._exit(0)
worker.drain()
os.write(writing, b"x")
os.wait()
print(json.dumps([*parent, session()]), flush=True)
worker.stop()
os._exit(0)
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.requirement("R61")
def test_a_forked_child_has_its_own_session_and_identity_and_hears_of_the_drain(
    process_env: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], env=process_env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    said, told = (json.loads(line) for line in done.stdout.splitlines())
    child_session, child_id, child_drains = said
    parent_session, parent_id, parent_session_after = told
    assert child_session != parent_session
    assert child_id != parent_id
    assert child_drains, "TERM reaches only the parent"
    assert parent_session_after == parent_session, "the child closed its parent's session"


def _pids(world: World, runs: tuple[str, ...]) -> set[int]:
    """The processes that made the attempts of these runs."""
    rows = world.query(
        "SELECT DISTINCT w.pid FROM runs_attempt a JOIN runs_worker w ON w.id = a.worker"
        " WHERE a.run_id = ANY(%s)",
        [uuid_of(run_id) for run_id in runs],
    )
    return {row[0] for row in rows}


@pytest.mark.requirement("R59")
def test_a_worker_that_begins_before_its_database_sweeps_all_the_same(
    stack: Stack, tmp_path: Path
) -> None:
    with open_world(stack, tmp_path) as world:
        name = urlsplit(world.env["DATABASE_URL"]).path[1:]
        _allow(stack, name, False)
        service = world.start_worker("w1")  # ready, as Celery sees it
        wait_for(lambda: "cannot begin" in service.log.read_text(), seconds=20, what="a try")
        _allow(stack, name, True)
        swept = "SELECT count(*) FROM runs_worker WHERE swept_at IS NOT NULL"
        wait_for(lambda: world.query(swept) == [(1,)], seconds=20, what="a sweep")


def _allow(stack: Stack, name: str, allowed: bool) -> None:
    """Whether a database may be connected to."""
    with psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {allowed}')
