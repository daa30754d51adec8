"""A run that kills its process: alone in the end, suspended with its evidence, and nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from config.embedded import Stack
from tests.workers import start_isolate_worker, start_pool_worker, write_app
from tests.world import ROOT, World, manage, open_world, uuid_of, wait_for

pytestmark = pytest.mark.fault

NEIGHBOURS = 50
ISOLATE_AFTER, DEATHS_ALONE = 2, 3
TOOLS = '''
import os, signal, time
from datetime import timedelta
from pydantic import BaseModel
from tools import Absent, Effect, Key, ToolContext, tool


class Dug(BaseModel):
    order: str


@tool(effect=Effect.READ, timeout=10)
def dig(ctx: ToolContext, order: str) -> Dug:
    """Dig at the order.

    Args:
        order: where to dig.
    """
    if order == "MINE":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    return Dug(order=order)


@tool(effect=Effect.WRITE, contract=Key(retention=timedelta(days=1)), identity=("order",), timeout=5)
def blast(ctx: ToolContext, order: str) -> Dug:
    """Blast at the order.

    Args:
        order: where to blast.
    """
    os.kill(os.getpid(), signal.SIGKILL)


@blast.probe(after=[0.01])
def _probe(ctx: ToolContext, p):
    return Absent()
'''  # noqa: E501
AGENTS = """
from runs.agents import agent

agent(name="digger", version="1", instructions="Dig.", tools=["minefield.dig", "minefield.blast"])
"""
SHORT = {"AGENTCORE_ISOLATE_BACKOFF": "0.05", "AGENTCORE_ISOLATE_GRACE": "1"}


@pytest.fixture
def minefield(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    outside = write_app(tmp_path_factory.mktemp("outside"), "minefield", tools=TOOLS, agents=AGENTS)
    path = f"{ROOT}:{outside}"
    folder = tmp_path_factory.mktemp("minefield")
    with open_world(stack, folder, apps=["minefield"], PYTHONPATH=path, **SHORT) as world:
        world.start_web()
        yield world


def _dig(world: World, *orders: str, tool: str = "dig") -> str:
    script = [[{"tool": f"minefield__{tool}", "arguments": {"order": order}}] for order in orders]
    body = {"script": [*script, ["done"]]}
    key = f"{tool}-{'-'.join(orders)}"
    return str(world.client.start_run(agent="digger", run_input=body, key=key)["id"])


def _state(world: World, run_id: str) -> str:
    ((state,),) = world.query("SELECT state FROM runs_run WHERE id = %s", uuid_of(run_id))
    return str(state)


def _live(world: World) -> int:
    ((count,),) = world.query(
        "SELECT count(*) FROM runs_run WHERE ended_at IS NULL AND state <> 'SUSPENDED'"
    )
    return int(count)


def _heal_ordinary(world: World) -> int:
    """Start a new process for a dead ordinary worker, as a supervisor does; how many were dead."""
    dead = [name for name in world.worker_queues if not world.workers[name].alive]
    for name in dead:
        world.start_worker(name, wait=False)
    return len(dead)


def _deaths(world: World, run_id: str) -> Counter[str]:
    """Attempts of the killing call, by who made them: ordinary processes or those for one run."""
    rows = world.query(
        "SELECT w.queues ? 'compile', count(*) FROM runs_attempt a"
        " LEFT JOIN runs_worker w ON w.id = a.worker WHERE a.run_id = %s AND a.kind = 'TOOL'"
        " AND a.lost_at IS NOT NULL GROUP BY 1",
        uuid_of(run_id),
    )
    return Counter({"ordinary" if ordinary else "alone": count for ordinary, count in rows})


@pytest.mark.requirement("R55", "R59", "R66")
def test_a_run_that_kills_its_process_is_suspended_and_its_neighbours_finish(
    minefield: World,
) -> None:
    world = minefield
    world.start_worker("w1")
    start_isolate_worker(world)
    neighbours = [_dig(world, f"N{n}", f"N{n}b") for n in range(NEIGHBOURS // 2)]
    mine = _dig(world, "MINE")
    neighbours += [_dig(world, f"N{n}", f"N{n}b") for n in range(NEIGHBOURS // 2, NEIGHBOURS)]
    killed = 0

    def settled() -> bool:
        nonlocal killed
        killed += _heal_ordinary(world)
        return _live(world) == 0

    wait_for(settled, seconds=180, what="every run to end or be suspended")

    assert Counter(_state(world, run_id) for run_id in neighbours) == {"COMPLETED": NEIGHBOURS}
    assert _state(world, mine) == "SUSPENDED"
    assert killed == ISOLATE_AFTER, "an ordinary worker is killed until the run is driven alone"
    assert world.workers["isolate"].alive
    assert _deaths(world, mine) == {"ordinary": ISOLATE_AFTER, "alone": DEATHS_ALONE}
    _assert_evidence(world, mine)


def _assert_evidence(world: World, run_id: str) -> None:
    run = uuid_of(run_id)
    ((reason, resume_to, lease),) = world.query(
        "SELECT reason, resume_to, lease_worker FROM runs_run WHERE id = %s", run
    )
    (last, *_) = world.query(
        "SELECT id::text, worker::text FROM runs_attempt WHERE run_id = %s AND outcome IS NULL"
        " ORDER BY started_at DESC",
        run,
    )
    assert reason.startswith(f"POISON: {ISOLATE_AFTER + DEATHS_ALONE} claims")
    assert f"{DEATHS_ALONE} of them in a process of its own; step tools" in reason
    assert last[0] in reason
    assert last[1] in reason
    assert (resume_to, lease) == ("DISPATCHING_TOOLS", None)
    incidents = world.query(
        "SELECT kind, detail, attempt_id::text FROM runs_incident WHERE run_id = %s", run
    )
    assert incidents == [("POISON", reason, last[0])]
    assert world.client.run(run_id)["status"] == "requires_action"


def test_a_write_that_kills_its_process_ends_with_a_person_after_a_few_sends(
    minefield: World,
) -> None:
    """Probed and sent again under its key: the sends of one action are counted, whoever dies."""
    world = minefield
    world.start_worker("w1")
    start_isolate_worker(world)
    mine = _dig(world, "MINE", tool="blast")

    def asks() -> bool:
        _heal_ordinary(world)
        return bool(world.client.run(mine)["status"] == "requires_action")

    wait_for(asks, seconds=150, what="a person to be asked")

    assert world.states(mine)[0][1] in ("UNKNOWN", "NEEDS_HUMAN")
    assert 1 < sum(_deaths(world, mine).values()) <= ISOLATE_AFTER + DEATHS_ALONE


@pytest.mark.requirement("R59")
def test_without_an_isolate_worker_a_sweep_drives_the_run_in_a_child_process(
    minefield: World,
) -> None:
    """After the grace the worker's own sweep starts a child; the worker itself stays alive."""
    world = minefield
    world.start_worker("w1")
    mine = _dig(world, "MINE")
    killed = 0

    def suspended() -> bool:
        nonlocal killed
        killed += _heal_ordinary(world)
        return _state(world, mine) == "SUSPENDED"

    wait_for(suspended, seconds=120, what="the run to be suspended")

    assert killed == ISOLATE_AFTER
    assert _deaths(world, mine) == {"ordinary": ISOLATE_AFTER, "alone": DEATHS_ALONE}


def test_sweep_isolate_drives_due_isolated_runs_one_at_a_time(minefield: World) -> None:
    """`manage.py sweep --isolate`, no worker at all: what others died of once is brought home."""
    world = minefield
    runs = [_dig(world, f"S{n}") for n in range(2)]
    world.query("UPDATE runs_run SET claims = 2, hinted_at = NULL RETURNING id")

    assert "driven alone" not in manage(world, "sweep")
    world.query("UPDATE runs_run SET hinted_at = NULL RETURNING id")
    assert "driven alone 2" in manage(world, "sweep", "--isolate")

    for run_id in runs:  # one outcome each, then they belong to everybody again
        ((claims, lease, turn),) = world.query(
            "SELECT claims, lease_worker, turn FROM runs_run WHERE id = %s", uuid_of(run_id)
        )
        assert (claims, lease, turn) == (0, None, 1)
    world.start_worker("w1")
    assert {world.finish(run_id)["status"] for run_id in runs} == {"completed"}


def test_a_worker_for_isolated_runs_refuses_to_serve_more_than_one(minefield: World) -> None:
    for pool, slots, queues in [
        ("threads", 1, "isolate"),
        ("prefork", 1, "isolate"),
        ("processes", 2, "isolate"),
        ("processes", 1, "isolate,tools"),
    ]:
        worker = start_pool_worker(
            minefield, "wrong", queues=queues, pool=pool, slots=slots, wait=False
        )
        assert worker.wait_gone(timeout=30) != 0
        assert "-P processes -c 1 -Q isolate" in worker.log_text()
