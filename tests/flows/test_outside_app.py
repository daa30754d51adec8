"""A tool app outside the repository, and what a run of it costs in commits and messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from config.embedded import Stack
from tests.world import ROOT, World, open_world, uuid_of, wait_for

TOOLS = '''
from datetime import timedelta
from pydantic import BaseModel
from tools import Effect, Key, ToolContext, tool


class Stored(BaseModel):
    shelf: str
    number: int


@tool(effect=Effect.WRITE, contract=Key(retention=timedelta(days=1)), identity=("shelf", "number"))
def store(ctx: ToolContext, shelf: str, number: int) -> Stored:
    """Put a thing on a shelf.

    Args:
        shelf: the shelf.
        number: the number of the thing.
    """
    return Stored(shelf=shelf, number=number)
'''
AGENTS = """
from runs.agents import agent

agent(name="storekeeper", version="1", instructions="Store things.", tools=["storehouse.store"])
"""
QUIET = {
    "AGENTCORE_BEAT_PERIOD": "100",
    "AGENTCORE_WORKER_DEAD_AFTER": "300",
    "AGENTCORE_SWEEP_PERIOD": "100",
}
"""Neither beats nor sweeps nor chores write while a run is counted."""


@pytest.fixture(scope="module")
def storehouse(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    outside = tmp_path_factory.mktemp("outside")
    app = outside / "storehouse"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "agent_tools.py").write_text(TOOLS)
    (app / "agents.py").write_text(AGENTS)
    path = f"{ROOT}:{outside}"
    folder: Path = tmp_path_factory.mktemp("storehouse-world")
    with open_world(stack, folder, apps=["storehouse"], PYTHONPATH=path, **QUIET) as world:
        world.start_web()
        world.start_worker()
        yield world


def _run(world: World, key: str, turns: int) -> str:
    script = [
        [{"tool": "storehouse__store", "arguments": {"shelf": key, "number": number}}]
        for number in range(1, turns)
    ]
    body = {"script": [*script, ["all stored"]]}
    return str(world.client.start_run(agent="storekeeper", run_input=body, key=key)["id"])


@pytest.mark.requirement("R28")
def test_an_app_named_in_the_environment_is_found_and_used(storehouse: World) -> None:
    run_id = _run(storehouse, "first", 2)

    assert storehouse.finish(run_id)["status"] == "completed"
    assert storehouse.states(run_id) == [("storehouse.store", "SUCCEEDED")]


def test_a_five_turn_run_costs_twelve_commits_and_at_most_two_messages(storehouse: World) -> None:
    """Counted from the server's own log: WAL commit records, and the broker's list pushes."""
    _run_to_the_end(storehouse, "warm", 2)  # the token's last use, the agent version
    with psycopg.connect(storehouse.env["DATABASE_URL"], autocommit=True) as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        conn.execute("ALTER SYSTEM SET autovacuum = off")
        conn.execute("SELECT pg_reload_conf()")
        wait_for(
            lambda: conn.execute("SHOW autovacuum").fetchone() == ("off",),
            seconds=5,
            what="autovacuum off",
        )
        start = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        pushed = _pushes(storehouse)
        run_id = _run_to_the_end(storehouse, "counted", 5)
        messages = _pushes(storehouse) - pushed
        rows = conn.execute(
            "SELECT count(*) FROM pg_get_wal_records_info(%s, pg_current_wal_flush_lsn())"
            " WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'",
            start,
        ).fetchone()
        conn.execute("ALTER SYSTEM RESET autovacuum")
        conn.execute("SELECT pg_reload_conf()")

    assert [state for _, state in storehouse.states(run_id)] == ["SUCCEEDED"] * 4
    assert rows is not None
    assert rows[0] <= 12, f"{rows[0]} commits that write"
    assert messages <= 2, f"{messages} messages"
    turns = storehouse.query("SELECT count(*) FROM runs_turn WHERE run_id = %s", uuid_of(run_id))
    assert turns == [(5,)]


def _run_to_the_end(world: World, key: str, turns: int) -> str:
    run_id = _run(world, key, turns)
    assert world.finish(run_id)["status"] == "completed"
    return run_id


def _pushes(world: World) -> int:
    stats = world.broker().info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("lpush", "rpush"))
