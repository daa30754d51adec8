"""Two real workers under harm that the failpoints do not reach: frozen, cut off, lied to."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from celery import Celery, chain

from config.broker import celery_settings
from config.embedded import embedded_stack
from config.embedded.stack import remove_stack
from examples.refund_desk.rest_client import is_over
from runs.dispatch import TASKS
from tests.world import World, open_world, uuid_of, wait_for

pytestmark = pytest.mark.fault
WRITE_ONLY = (
    '{"script": [[{"tool": "refund_desk__submit_refund", "arguments":'
    ' {"order_id": "%s", "amount": "20.00 EUR", "reason": "damaged"}}], ["done"]]}'
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers of its own, so that they may be harmed, and two workers that serve everything."""
    folder = tmp_path_factory.mktemp("pair")
    with (
        embedded_stack(folder=folder / "stack", use_environment=False) as stack,
        open_world(stack, folder) as made,
    ):
        made.start_web()
        made.start_worker("w1", wait=False)
        made.start_worker("w2")
        yield made
    remove_stack(folder / "stack")


def whole(world: World, run_id: str) -> None:
    """No event is missing and none is double."""
    seqs = world.event_seqs(run_id)
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.requirement("R60", "R61")
def test_a_worker_frozen_in_its_write_and_thawed_later_changes_nothing_twice(pair: World) -> None:
    order = "ORD-8001"
    pair.fault(mode="delay", seconds=4, times=1, order_id=order, target="POST /refunds")
    run_id = pair.refund(order, message=WRITE_ONLY % order)
    query = (
        "SELECT w.pid FROM runs_attempt a JOIN runs_worker w ON w.id = a.worker"
        " WHERE a.run_id = %s AND a.kind = 'TOOL' AND a.outcome IS NULL"
    )
    (pid,) = wait_for(lambda: pair.query(query, uuid_of(run_id)), seconds=15, what="the write")[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        run = pair.finish(run_id, seconds=30)
    finally:
        os.kill(pid, signal.SIGCONT)

    late = "SELECT late FROM runs_attempt WHERE run_id = %s AND kind = 'TOOL' AND n = 1 AND late"
    wait_for(lambda: pair.query(late, uuid_of(run_id)), seconds=15, what="the late result")
    assert run["status"] == "completed"
    assert pair.states(run_id) == [("refund_desk.submit_refund", "SUCCEEDED")]
    assert len(pair.refunds(order)) == 1
    assert pair.query("SELECT kind FROM runs_incident WHERE run_id = %s", uuid_of(run_id)) == []
    whole(pair, run_id)


@pytest.mark.requirement("R65")
def test_forged_messages_of_every_task_change_nothing(pair: World) -> None:
    """Wrong types, unknown runs, future and past revisions, links that are no links of ours."""
    order = "ORD-8100"
    run_id = pair.refund(order, "80.00 EUR")
    pair.waiting(run_id)
    row = "SELECT revision, state, fence FROM runs_run WHERE id = %s"
    before = pair.query(row, uuid_of(run_id))
    app = Celery("forger", set_as_current=False)
    app.conf.update(
        celery_settings(
            broker_url=pair.env["REDIS_URL"], prefix=pair.env["AGENTCORE_BROKER_PREFIX"], threads=1
        )
    )
    ((revision, *_),) = before
    forged: list[object] = [
        [uuid_of(run_id), revision + 7],
        [uuid_of(run_id), revision],
        [uuid_of(run_id), revision - 1],
        [uuid_of(run_id), -1],
        [uuid_of(run_id), 2**70],
        [uuid_of(run_id), "x"],
        [uuid_of(run_id), None],
        [uuid_of(run_id)],
        [str(uuid4()), 1],
        ["'; DROP TABLE runs_run; --", 1],
        {"run": 1},
        [],
        None,
        7,
    ]
    for step, name in TASKS.items():
        for message in forged:
            app.signature(name, args=(message,), queue=step).apply_async()
        app.signature(name, args=(), queue=step).apply_async()
        app.signature(name, args=(1, 2), kwargs={"x": 1}, queue=step).apply_async()
        first = app.signature(name, args=([uuid_of(run_id), revision],), queue=step)
        chain(first, app.signature("no.such.task", queue=step)).apply_async()
    app.close()

    other = pair.refund("ORD-8101")
    assert pair.finish(other)["status"] == "completed"
    broker = pair.broker()
    keys = [f"{pair.env['AGENTCORE_BROKER_PREFIX']}{name}" for name in TASKS]
    wait_for(lambda: not any(broker.llen(key) for key in keys), seconds=15, what="empty queues")
    assert pair.query(row, uuid_of(run_id)) == before
    assert all(worker.alive for worker in pair.workers.values())
    pair.decide(pair.approvals(run_id)[0], "APPROVE")
    assert pair.finish(run_id)["status"] == "completed"
    assert len(pair.refunds(order)) == 1


_KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'agentcore%' ORDER BY random() LIMIT 2"
)


@pytest.mark.requirement("R57", "R60")
def test_backends_of_the_workers_killed_at_random_lose_and_double_nothing(pair: World) -> None:
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    orders = [f"ORD-{number}" for number in range(8200, 8240)]
    done, killed = threading.Event(), list[tuple[bool]]()

    def kill() -> None:
        with psycopg.connect(pair.env["DATABASE_URL"], autocommit=True) as conn:
            while not done.wait(dice.uniform(0.02, 0.1)):
                killed.extend(conn.execute(_KILL).fetchall())

    runs = [pair.refund(order) for order in orders]
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for run_id in runs:
            wait_for(lambda run_id=run_id: over(pair, run_id), seconds=60, what=run_id)
    finally:
        done.set()
        killer.join()

    assert len(killed) > 5, "too few were killed to say anything"
    ended = pair.query(
        "SELECT DISTINCT state FROM runs_run WHERE id = ANY(%s)", [*map(uuid_of, runs)]
    )
    assert ended == [("COMPLETED",)], f"seed {seed}"
    for order, run_id in zip(orders, runs, strict=True):
        assert len(pair.refunds(order)) == 1, f"seed {seed}"
        whole(pair, run_id)


@pytest.mark.requirement("R9", "R44")
def test_a_term_in_the_middle_of_a_call_records_it_and_hands_the_run_over(pair: World) -> None:
    order = "ORD-8300"
    pair.fault(mode="delay", seconds=1, times=1, order_id=order, target="POST /refunds")
    run_id = pair.refund(order, message=WRITE_ONLY % order)
    query = (
        "SELECT w.pid FROM runs_attempt a JOIN runs_worker w ON w.id = a.worker"
        " WHERE a.run_id = %s AND a.kind = 'TOOL' AND a.outcome IS NULL"
    )
    (pid,) = wait_for(lambda: pair.query(query, uuid_of(run_id)), seconds=15, what="the write")[0]
    os.kill(pid, signal.SIGTERM)
    run = pair.finish(run_id, seconds=30)

    assert run["status"] == "completed"
    attempts = pair.query(
        "SELECT kind, outcome, late FROM runs_attempt WHERE run_id = %s AND kind <> 'MODEL'",
        uuid_of(run_id),
    )
    assert ("TOOL", "SUCCESS", False) in attempts
    assert not [row for row in attempts if row[0] == "PROBE"], attempts
    assert len(pair.refunds(order)) == 1
    pair.heal()


@pytest.mark.requirement("R55", "R57")
def test_a_broker_frozen_under_the_workers_and_a_restarted_database_lose_no_run(
    pair: World,
) -> None:
    valkey, postgres = pair.stack.valkey, pair.stack.postgres
    assert valkey is not None
    assert postgres is not None
    valkey.freeze()
    try:
        frozen = pair.refund("ORD-8400")
        assert pair.finish(frozen, seconds=40)["status"] == "completed"
    finally:
        valkey.thaw()
    orders = [f"ORD-{number}" for number in range(8401, 8421)]
    runs = [pair.refund(order) for order in orders]
    postgres.restart()
    if pair._db is not None:
        pair._db.close()  # the next query opens a new one
    for order, run_id in zip(orders, runs, strict=True):
        run = wait_for(lambda run_id=run_id: over(pair, run_id), seconds=60, what=order)
        assert run["status"] == "completed"
        assert len(pair.refunds(order)) == 1
        whole(pair, run_id)


def over(world: World, run_id: str) -> dict[str, object] | None:
    try:
        run = world.client.run(run_id)
    except Exception:  # noqa: BLE001  (the web process has just lost its database)
        return None
    return run if is_over(run) else None
