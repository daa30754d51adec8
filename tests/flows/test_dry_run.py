"""A dry run on real processes: reads run, every write is judged and previewed, and none is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from config.embedded import Stack
from tests.world import SCOPES, World, open_world, uuid_of

SUBMIT = "refund_desk__submit_refund"


@pytest.fixture(scope="module")
def dry(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    scopes = (*SCOPES, "actions:read", "approvals:read")
    with open_world(stack, tmp_path_factory.mktemp("dry"), scopes=scopes) as world:
        world.start_worker()
        world.start_web()
        yield world


def _write(world: World, run_id: str) -> dict[str, Any]:
    """The refund of a run, as REST shows it."""
    rows = world.client._send("GET", f"/runs/{run_id}/actions")["data"]
    (found,) = [row for row in rows if row["tool"] == "refund_desk.submit_refund"]
    return dict(found)


def _nothing_was_sent(world: World, run_id: str, order: str) -> None:
    assert world.refunds(order) == []
    kinds = world.query(
        "SELECT t.kind FROM runs_attempt t JOIN runs_actionjournal a ON a.id = t.action_id"
        " WHERE t.run_id = %s AND a.effect <> 'READ'",
        uuid_of(run_id),
    )
    assert {kind for (kind,) in kinds} <= {"PRECHECK"}
    owned = world.query(
        "SELECT 1 FROM runs_keyowner k JOIN runs_actionjournal a ON a.id = k.action_id"
        " WHERE a.run_id = %s",
        uuid_of(run_id),
    )
    assert owned == []


@pytest.mark.parametrize(
    ("order", "amount", "would"),
    [("ORD-1001", "20.00 EUR", "it would be executed"), ("ORD-1004", "80.00 EUR", "approval")],
)
def test_a_write_is_previewed_and_not_executed_and_nobody_is_asked(
    dry: World, order: str, amount: str, would: str
) -> None:
    run_id = dry.refund(order, amount, dry_run=True)
    run = dry.finish(run_id)
    assert (run["status"], run["dry_run"]) == ("completed", True)
    assert dry.states(run_id) == [
        ("refund_desk.get_order", "SUCCEEDED"),
        ("refund_desk.get_policy", "SUCCEEDED"),
        ("refund_desk.submit_refund", "VOIDED"),
    ]
    _nothing_was_sent(dry, run_id, order)
    assert dry.query("SELECT 1 FROM approvals_approval WHERE run_id = %s", uuid_of(run_id)) == []
    write = _write(dry, run_id)
    assert (write["state"], write["reason"]) == ("voided", "DRY_RUN")
    assert write["preview"]["summary"].startswith(f"Refund {amount}")
    ((told, outcome),) = dry.query(
        "SELECT a.observation, r.business_outcome FROM runs_actionjournal a"
        " JOIN runs_run r ON r.id = a.run_id WHERE a.run_id = %s AND a.state = 'VOIDED'",
        uuid_of(run_id),
    )
    said = json.loads(told)
    assert said["status"] == "not_executed_dry_run"
    assert would in said["data"]["detail"]
    assert "has no effect" in said["data"]["detail"]
    assert outcome == "no_effect"
    assert "nothing was refunded" in json.dumps(run["output"])


def test_what_would_be_refused_is_refused(dry: World) -> None:
    run_id = dry.refund("ORD-3003", "9999.00 EUR", dry_run=True)
    assert dry.finish(run_id)["status"] == "completed"
    write = _write(dry, run_id)
    assert (write["state"], write["reason"]) == ("denied", "PRECHECK_BLOCKED")
    _nothing_was_sent(dry, run_id, "ORD-3003")


def test_an_answer_that_claims_the_write_is_not_delivered(dry: World) -> None:
    call = {
        "tool": SUBMIT,
        "arguments": {"order_id": "ORD-2001", "amount": "20.00 EUR", "reason": "damaged"},
    }
    lie = "I refunded the customer."
    run_id = dry.refund(
        "ORD-2001", message=json.dumps({"script": [[call], [lie], [lie]]}), dry_run=True
    )
    run = dry.finish(run_id)
    assert (run["status"], run["output"]) == ("incomplete", None)
    _nothing_was_sent(dry, run_id, "ORD-2001")


def test_a_dry_run_takes_nothing_from_the_real_one(dry: World) -> None:
    more = {"dedupe_key": "refund-2002"}
    body = {"order_id": "ORD-2002", "message": "arrived broken", "amount": "20.00 EUR"}
    for n, dry_run in enumerate((True, False)):
        made = dry.client.start_run(
            agent="refund_desk", run_input=body, key=f"real-{n}", dry_run=dry_run, **more
        )
        assert dry.finish(made["id"])["status"] == "completed"
    (refund,) = dry.refunds("ORD-2002")
    assert refund["amount"] == "20.00"
    # And once it is done, a dry run says so instead of promising it again.
    third = dry.client.start_run(
        agent="refund_desk", run_input=body, key="real-3", dry_run=True, **more
    )
    dry.finish(third["id"])
    assert _write(dry, third["id"])["reason"] == "DUPLICATE"
