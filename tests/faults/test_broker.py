"""The broker may lose everything or be away: the rows decide and the sweep delivers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from config.embedded import Stack
from tests.world import World, open_world, wait_for

pytestmark = pytest.mark.fault


@pytest.fixture
def alone(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An installation with servers of its own, so that the broker may be harmed; no worker yet."""
    with open_world(own_stack, tmp_path_factory.mktemp("broker")) as made:
        made.start_web()
        yield made


@pytest.mark.requirement("R55", "R65")
def test_a_flushed_broker_loses_no_run(alone: World) -> None:
    run_id = alone.refund("ORD-6001")
    assert alone.stack.valkey is not None
    alone.stack.valkey.flush()
    assert alone.broker().dbsize() == 0

    alone.start_worker()

    assert alone.finish(run_id)["status"] == "completed"
    assert len(alone.refunds("ORD-6001")) == 1


@pytest.mark.requirement("R55")
@pytest.mark.parametrize("harm", ["stop", "freeze"])
def test_a_post_is_answered_without_the_broker_and_starts_when_it_is_back(
    alone: World, harm: str
) -> None:
    """201 within 3 s with the row committed, the broker down or half-open."""
    valkey = alone.stack.valkey
    assert valkey is not None
    getattr(valkey, harm)()
    began = time.monotonic()
    run_id = alone.refund("ORD-6002")
    took = time.monotonic() - began

    assert took < 3.0, f"{took:.1f} s"
    assert alone.client.run(run_id)["status"] == "queued"
    getattr(valkey, {"stop": "start", "freeze": "thaw"}[harm])()
    alone.start_worker()
    assert alone.finish(run_id)["status"] == "completed"
    assert len(alone.refunds("ORD-6002")) == 1


@pytest.mark.requirement("R8", "R55")
def test_without_a_broker_the_sweep_of_a_worker_drives_the_run_itself(alone: World) -> None:
    alone.start_worker()
    assert alone.stack.valkey is not None
    alone.stack.valkey.stop()

    run_id = alone.refund("ORD-6003")

    assert alone.finish(run_id)["status"] == "completed"
    assert len(alone.refunds("ORD-6003")) == 1
    alone.stack.valkey.start()


@pytest.mark.requirement("R65", "R60")
def test_every_message_twice_advances_a_run_once(alone: World) -> None:
    """Each message in the queues is doubled before a worker sees it."""
    runs = [alone.refund(f"ORD-{number}") for number in range(6100, 6110)]
    broker = alone.broker()

    def queued() -> list[tuple[bytes, bytes]]:
        lists = [key for key in broker.scan_iter("*") if broker.type(key) == b"list"]
        return [(key, message) for key in lists for message in broker.lrange(key, 0, -1)]

    # The web process publishes them a moment after its answer.
    wait_for(lambda: len(queued()) == len(runs), seconds=10, what="all messages")
    for key, message in queued():
        broker.rpush(key, message)

    alone.start_worker("w1", wait=False)
    alone.start_worker("w2")

    for number, run_id in enumerate(runs, start=6100):
        assert alone.finish(run_id)["status"] == "completed"
        assert len(alone.refunds(f"ORD-{number}")) == 1
        seqs = alone.event_seqs(run_id)
        assert seqs == list(range(1, len(seqs) + 1))
