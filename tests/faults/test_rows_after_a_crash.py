"""What the rows say when the only worker has just died, and that recovery reads nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore.failpoints import FAILPOINTS
from config.embedded import Stack
from tests.world import World, get_json, open_world, uuid_of, wait_for

pytestmark = pytest.mark.fault

POINTS = list(FAILPOINTS)


@pytest.fixture(scope="module")
def lonely(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One worker that nobody replaces until the test says so."""
    folder = tmp_path_factory.mktemp("lonely")
    points = folder / "failpoints"
    points.mkdir()
    with open_world(stack, folder, AGENTCORE_FAILPOINTS_DIR=str(points)) as world:
        world.start_web()
        yield world


def _die_at(world: World, point: str, order: str, *, script: bool = False) -> str:
    """Start a run and wait until the worker has died at `point`; the run's id."""
    Path(world.env["AGENTCORE_FAILPOINTS_DIR"], point).write_text("kill")
    world.heal()
    if not world.workers:
        world.start_worker()
    message = json.dumps({"script": [[_refund(order)], ["done"]]}) if script else ""
    run_id = world.refund(order, message=message)
    wait_for(lambda: not world.workers["w1"].alive, seconds=30, what=f"the death at {point}")
    return run_id


def _refund(order: str) -> dict[str, object]:
    arguments = {"order_id": order, "amount": "20.00 EUR", "reason": "late"}
    return {"tool": "refund_desk__submit_refund", "arguments": arguments}


def _recover(world: World, run_id: str) -> None:
    world.heal()
    assert world.finish(run_id)["status"] == "completed"


def _asked(world: World, order: str) -> int:
    """How often the model was called about this order."""
    bodies = get_json(f"{world.model.url}/requests?bodies=500")["bodies"]
    return sum(order in json.dumps(body) for body in bodies)


def _facts(world: World, run_id: str) -> tuple[object, ...]:
    """(state, idempotency key?, observation?, attempts, attempts with an outcome) of the refund."""
    (row,) = world.query(
        "SELECT a.state, a.idempotency_key IS NOT NULL, a.observation IS NOT NULL,"
        " (SELECT count(*) FROM runs_attempt t WHERE t.action_id = a.id AND t.kind = 'TOOL'),"
        " (SELECT count(*) FROM runs_attempt t WHERE t.action_id = a.id AND t.kind = 'TOOL'"
        "   AND t.outcome IS NOT NULL)"
        " FROM runs_actionjournal a WHERE a.run_id = %s AND a.tool = 'refund_desk.submit_refund'",
        uuid_of(run_id),
    )
    return row


@pytest.mark.requirement("R57", "R101")
@pytest.mark.parametrize(
    ("point", "facts", "refunds"),
    [
        ("tool.intent.before_commit", ("READY", False, False, 0, 0), 0),
        ("tool.intent.after_commit", ("RUNNING", True, False, 1, 0), 0),
        ("tool.after_call", ("RUNNING", True, False, 1, 0), 1),
        ("tool.result.after_commit", ("SUCCEEDED", True, True, 1, 1), 1),
    ],
    ids=["never started", "started", "sent, no result", "result stored"],
)
def test_how_far_a_write_got_is_in_the_rows(
    lonely: World, point: str, facts: tuple[object, ...], refunds: int
) -> None:
    order = f"ORD-{7100 + POINTS.index(point)}"
    run_id = _die_at(lonely, point, order, script=True)

    assert _facts(lonely, run_id) == facts
    assert len(lonely.refunds(order)) == refunds

    _recover(lonely, run_id)
    assert len(lonely.refunds(order)) == 1


@pytest.mark.requirement("R15", "R16")
def test_a_crash_after_the_decision_replays_it_without_asking_again(lonely: World) -> None:
    run_id = _die_at(lonely, "model.result.after_commit", "ORD-7201")
    decided = lonely.query(
        "SELECT number, decision FROM runs_turn WHERE run_id = %s", uuid_of(run_id)
    )
    assert decided == [(1, "TOOL_CALLS")]
    assert len(lonely.states(run_id)) == 2, "every action of the reply is there"

    _recover(lonely, run_id)
    assert _asked(lonely, "ORD-7201") == 3, "three turns, three calls"


@pytest.mark.requirement("R15", "R16")
def test_a_crash_before_the_decision_leaves_nothing_of_it_and_asks_again(lonely: World) -> None:
    run_id = _die_at(lonely, "model.result.before_commit", "ORD-7202")
    rows = lonely.query("SELECT decision, output FROM runs_turn WHERE run_id = %s", uuid_of(run_id))
    assert rows == [("", "")]
    assert lonely.states(run_id) == []

    _recover(lonely, run_id)
    assert _asked(lonely, "ORD-7202") == 4, "the lost reply was asked for once more"
    attempts = lonely.query(
        "SELECT n, outcome, lost_at IS NOT NULL FROM runs_attempt"
        " WHERE run_id = %s AND kind = 'MODEL' AND turn = 1 ORDER BY n",
        uuid_of(run_id),
    )
    assert attempts == [(1, None, True), (2, "SUCCESS", False)]


@pytest.mark.requirement("R6", "R20")
def test_the_run_row_alone_says_where_a_run_stands(lonely: World) -> None:
    run_id = _die_at(lonely, "tool.after_call", "ORD-7203")
    (row,) = lonely.query(
        "SELECT r.state, v.name, r.turn, r.actions_used, r.stop_reason, t.code_version,"
        " t.model, (v.spec->>'policy_version') IS NOT NULL, jsonb_array_length(v.spec->'tools')"
        " FROM runs_run r JOIN runs_agentversion v ON v.id = r.agent_version_id"
        " JOIN runs_turn t ON t.run_id = r.id AND t.number = r.turn WHERE r.id = %s",
        uuid_of(run_id),
    )
    assert row[:5] == ("DISPATCHING_TOOLS", "refund_desk", 1, 2, None)
    assert all(row[5:])
    pending = lonely.query(
        "SELECT count(*) FROM runs_attempt WHERE run_id = %s AND outcome IS NULL", uuid_of(run_id)
    )
    assert pending == [(2,)], "the calls in flight"
    _recover(lonely, run_id)
