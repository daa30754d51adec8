"""Runs driven in this process against a real database and a real HTTP model: what must not be lost.

Every test here was written to break the runtime; the name says what held, or must hold.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from celery import current_app
from django.db import OperationalError

from approvals.models import Approval as ApprovalRow
from runs import sweeps, worker
from runs.approving import decide_approval
from runs.driver import drive
from runs.models import Attempt, Run
from tests.factories import real_decider
from tests.runs.test_break_harness import (
    ALL,
    Desk,
    Outage,
    body,
    call,
    desk,
    forget_worker,
    outage,
    put,
    says,
)
from tools import Approval, Preview, Rejected, ToolContext, registry

__all__ = ["desk", "outage"]

pytestmark = pytest.mark.django_db(transaction=True)


# --- the model's reply is paid for: it is recorded, whatever the clock says ---------------------


@pytest.mark.parametrize("limit", [{"slice_seconds": 0.05}, {"slice_calls": 1}])
def test_a_reply_that_ends_the_slice_is_recorded_and_not_asked_for_again(
    desk: Desk, limit: dict[str, Any]
) -> None:
    def slowly(n: int) -> Any:
        threading.Event().wait(0.1)
        return body(says())

    desk.reply = slowly
    desk.options(**limit)
    run = desk.drive(desk.start())

    assert (run.state, run.reason) == ("COMPLETED", "")
    assert desk.asked == 1


def test_a_reply_that_arrives_while_the_worker_drains_is_recorded(desk: Desk) -> None:
    def drain_then_answer(n: int) -> Any:
        if n == 1:
            worker.drain()
        return body(says())

    desk.reply = drain_then_answer
    run_id = desk.start()
    drive(run_id=run_id, revision=None, inline=ALL)
    forget_worker()

    assert desk.drive(run_id).state == "COMPLETED"
    assert desk.asked == 1


def test_a_refused_key_stops_the_run_at_once_also_after_a_slow_call(desk: Desk) -> None:
    """Not transient: asking five times is wrong however long the first answer took."""

    def broken(n: int) -> Any:
        threading.Event().wait(0.1)
        return {"status": "failed", "error": {"code": "invalid_prompt", "message": "no"}}

    desk.reply = broken
    desk.options(slice_seconds=0.05)
    run = desk.drive(desk.start())

    assert run.state == "FAILED"
    assert desk.asked == 1


# --- a database that was away during the call --------------------------------------------------


def drive_through(desk: Desk, run_id: UUID) -> None:
    """Drive as a worker does: an error of the database ends the drive, a later one goes on."""
    with suppress(OperationalError):
        drive(run_id=run_id, revision=None, inline=ALL)


def later(desk: Desk, run_id: UUID, outage: Outage) -> None:
    """The database is back and the worker of the broken drive is gone: somebody else goes on."""
    outage.over()
    forget_worker()
    desk.drive(run_id)


def test_the_first_read_after_a_write_fails_and_the_result_is_kept(
    desk: Desk, outage: Outage
) -> None:
    """A duplicate earlier in the turn makes the plan read rows before the truth is written."""

    def act(number: int) -> Any:
        if number == 2:
            outage.begin()
        return {"ok": True}

    put(desk, act)
    desk.reply = lambda n: (
        body(call("put", "a", number=1), call("put", "b", number=1), call("put", "c", number=2))
        if n == 1
        else body(says())
    )
    run_id = desk.start()
    drive_through(desk, run_id)
    later(desk, run_id, outage)

    assert [(a.state, a.reason) for a in desk.actions(run_id)] == [
        ("SUCCEEDED", ""),
        ("VOIDED", "DUPLICATE"),
        ("SUCCEEDED", ""),
    ]
    assert desk.effects == [1, 2]


def test_a_result_is_recorded_although_the_process_drains_and_its_connection_broke(
    desk: Desk, outage: Outage
) -> None:
    def act(number: int) -> Any:
        worker.drain()
        outage.begin()
        return {"ok": True}

    put(desk, act)
    desk.reply = lambda n: body(call("put", number=1)) if n == 1 else body(says())
    run_id = desk.start()
    drive_through(desk, run_id)
    later(desk, run_id, outage)

    (action,) = desk.actions(run_id)
    assert action.state == "SUCCEEDED"
    assert desk.effects == [1]


def test_the_first_read_after_a_model_call_fails_and_the_reply_is_kept(
    desk: Desk, outage: Outage
) -> None:
    """The plan asks who owns the intent of the write before the reply is recorded."""

    def reply(n: int) -> Any:
        if n == 1:
            outage.begin()
            return body(call("put", number=1))
        return body(says())

    put(desk)
    desk.reply = reply
    run_id = desk.start()
    drive_through(desk, run_id)
    later(desk, run_id, outage)

    assert Attempt.objects.filter(run_id=run_id, turn=1, kind="MODEL").count() == 1
    assert Run.objects.get(pk=run_id).state == "COMPLETED"


# --- what tools and models may throw at it ------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    ["nul\x00", "half\ud800", 409, None, "w" * 500],
    ids=["nul", "half", "int", "none", "long"],
)
def test_whatever_error_class_a_tool_states_its_refusal_is_recorded(desk: Desk, word: Any) -> None:
    def act(number: int) -> Any:
        raise Rejected("the shop said no", error_class=word)

    put(desk, act)
    desk.reply = lambda n: body(call("put", number=1)) if n == 1 else body(says())
    run_id = desk.start()
    run = desk.drive(run_id)

    assert [a.state for a in desk.actions(run_id)] == ["FAILED"]
    assert run.state == "COMPLETED"
    assert desk.effects == [1]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "status": [], "content": "x"},
        {"type": "message", "status": {}, "content": "x"},
        {"type": "function_call", "status": ["completed"], "call_id": "c", "name": "n"},
    ],
)
def test_a_strange_status_in_a_reply_is_an_invalid_reply_and_no_crash(
    desk: Desk, item: dict[str, Any]
) -> None:
    desk.reply = lambda n: body(item) if n == 1 else body(says())
    run = desk.drive(desk.start())

    assert run.state == "COMPLETED"
    assert desk.asked == 2


def test_no_depth_of_nesting_in_a_reply_stops_the_driver(desk: Desk) -> None:
    """Deep enough for the reader, too deep for somebody after it."""
    for depth in (200, 400, 600, 800, 850, 900, 920, 940, 950, 960, 970, 980, 990, 1000, 1500):
        deep = "[" * depth + "]" * depth
        calls = json.dumps(call("nothing"))
        items = f'[{{"type":"reasoning","x":{deep}}},{calls}]'
        text = f'{{"id":"r","status":"completed","output":{items}}}'
        desk.asked = 0
        desk.reply = lambda n, text=text: text if n == 1 else body(says())
        run_id = desk.start()
        run = desk.drive(run_id)
        assert run.state in ("COMPLETED", "RETRY_WAIT"), (depth, run.state, run.reason)


# --- approvals ----------------------------------------------------------------------------------


def approve(run_id: UUID) -> ApprovalRow:
    approval = ApprovalRow.objects.get(run_id=run_id)
    decide_approval(
        approval_id=approval.pk,
        params_hash=approval.params_hash,
        decision="APPROVE",
        decider=real_decider(roles=("boss",)),
    )
    return approval


def test_an_approved_action_refused_at_its_start_takes_the_approval_along(desk: Desk) -> None:
    """The tool's version changed between the approval and the start."""
    put(desk, approval=Approval.always(role="boss"))
    desk.reply = lambda n: body(call("put", number=1)) if n == 1 else body(says())
    run_id = desk.start()
    assert desk.drive(run_id).state == "WAITING_APPROVAL"
    approval = approve(run_id)
    with registry.isolated():
        put(desk, approval=Approval.always(role="boss"), version="2")
        desk.drive(run_id)

    (action,) = desk.actions(run_id)
    approval.refresh_from_db()
    assert (action.state, action.reason) == ("DENIED", "TOOL_CHANGED")
    assert approval.state == "VOIDED"
    assert desk.effects == []


def test_sixty_slow_previews_do_not_starve_one_another(desk: Desk) -> None:
    """Each preview answers within its limit; together they would not, if all ran at once."""
    declared = put(desk, approval=Approval.always(role="boss"), timeout=0.6)

    @declared.preview
    def preview(ctx: ToolContext, params: Any) -> Preview:
        threading.Event().wait(0.2)
        return Preview(summary="put")

    desk.reply = lambda n: body(*(call("put", f"c{i}", number=i) for i in range(60)))
    run_id = desk.start()
    run = desk.drive(run_id)

    assert run.state == "WAITING_APPROVAL"
    assert {a.state for a in desk.actions(run_id)} == {"AWAITING_APPROVAL"}


def test_without_a_broker_a_worker_leaves_alone_what_it_cannot_drive(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not push back a run of another step, as if it had hinted it."""
    run_id = desk.start()
    drive(run_id=run_id, revision=None, inline=frozenset({"compile"}))
    Run.objects.filter(pk=run_id).update(hinted_at=None)
    forget_worker()
    monkeypatch.setattr(worker, "_queues", frozenset({"compile"}))
    before, current_app.conf.broker_url = current_app.conf.broker_url, "redis://127.0.0.1:1/0"
    try:
        swept = sweeps.sweep_once()
    finally:
        current_app.conf.broker_url = before

    assert swept.driven == 0
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.hinted_at, run.hints) == ("CALLING_MODEL", None, 0)
