"""Many runs at once on one worker with default settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from config.embedded import Stack
from tests.world import FAST, World, open_world, wait_for

RUNS, CLIENTS = 200, 32


@pytest.fixture(scope="module")
def plain(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Default settings: nothing is shortened."""
    defaults = dict.fromkeys(FAST, "")
    with open_world(stack, tmp_path_factory.mktemp("load"), **defaults) as world:
        world.start_web()
        world.start_worker()
        yield world


def test_two_hundred_runs_by_32_clients_make_two_hundred_refunds(plain: World) -> None:
    orders = [f"ORD-{number}" for number in range(10_000, 10_000 + RUNS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(plain.refund, orders))

    wait_for(
        lambda: plain.query("SELECT count(*) FROM runs_run WHERE ended_at IS NULL") == [(0,)],
        seconds=240,
        what="all runs to end",
    )

    assert plain.query("SELECT state, count(*) FROM runs_run GROUP BY state") == [
        ("COMPLETED", RUNS)
    ]
    refunds = Counter(row["order_id"] for row in plain.ledger())
    assert refunds == Counter(orders)
    gaps = plain.query(
        "SELECT run_id FROM runs_event GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*)"
    )
    assert gaps == []
