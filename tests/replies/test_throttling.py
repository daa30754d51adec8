"""Limits per tenant and per downstream, kept by real drives: who waits, why, and for how long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore.ids import new_id
from agentcore.lifecycle import RUN_TERMINAL, RunState
from agentcore.throttle import Limit
from agentcore.values import Pending
from runs import driver, slots, throttling
from runs.fleet_models import LimitUse, LimitWait
from runs.models import Run
from runs.selectors import database_clock
from runs.starting import Caller
from runs.steps.base import Call, ModelRequest
from tests.agentcore.bodies import call, reply
from tests.agentcore.loopback import Answer
from tests.factories import force_state
from tests.replies.desk import ALL_STEPS, CALLER, Desk, answer, said
from tests.replies.tools_of_the_desk import MADE, READ
from tools import Effect, Key, ToolContext, tool
from tools.spec import Tool

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.requirement("R75")]

MODEL = "gpt-test"
ONE = Limit(downstream=f"model:{MODEL}", concurrent=1)
OTHER = Caller(tenant="other", principal="token:shop", scopes=())


def limited(*limits: Limit) -> None:
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(update={"limits": limits})


def ask(*orders: str) -> Answer:
    calls = [
        call(f"c{n}", "get_order", arguments=json.dumps({"order_id": order}))
        for n, order in enumerate(orders)
    ]
    return answer(reply(*calls))


def refund() -> Answer:
    arguments = {"order_id": "ord_1001", "amount_cents": 500, "reason": None}
    return answer(reply(call("c1", "refund_order", arguments=json.dumps(arguments))))


def drive_once(run: Run) -> Run:
    driver.drive(run_id=run.id, revision=None, inline=ALL_STEPS)
    run.refresh_from_db()
    return run


def sql(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


@contextmanager
def while_in_its_call(monkeypatch: pytest.MonkeyPatch, then: Any) -> Iterator[None]:
    """`then()` happens while the first call is under way."""
    real, made = driver.perform, []

    def perform(request: Call) -> Any:
        made.append(request)
        if len(made) == 1:
            then()
        return real(request)

    monkeypatch.setattr(driver, "perform", perform)
    yield
    monkeypatch.setattr(driver, "perform", real)


# --- at once -----------------------------------------------------------------------------------


def test_a_run_over_the_limit_waits_with_the_reason_and_is_woken(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(ONE)
    desk.script(said())
    first, second = desk.start(model=MODEL), desk.start(model=MODEL)

    def other() -> None:
        assert desk.requests() == []
        drive_once(second)
        assert (second.state, second.resume_to) == ("RETRY_WAIT", "CALLING_MODEL")
        assert second.reason == f"limit: model:{MODEL}: 1 at once"
        assert (second.stop_reason, second.lease_worker) == (None, None)
        assert second.wake_at > second.created_at
        assert desk.attempts(second) == [], "nothing was started, so nothing has to be settled"

    with while_in_its_call(monkeypatch, other):
        drive_once(first)
    assert first.state == RunState.COMPLETED
    second.refresh_from_db()
    assert second.events.last().data["waits_for"] == f"model:{MODEL}"
    assert drive_once(second).state == RunState.COMPLETED, "the end of the call has woken it"
    assert second.reason == "", "what it waited for is over"
    assert len(desk.turns(second)) == 1, "the turn waited as it was"
    assert LimitWait.objects.count() == 0
    assert LimitUse.objects.filter(released_at=None).count() == 0


def test_another_tenant_and_another_downstream_do_not_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(Limit(tenant="*", downstream="*", concurrent=1))
    desk.script(said())
    first = desk.start(model=MODEL)
    others = [desk.start(model=MODEL, caller=OTHER), desk.start(model="gpt-other")]

    def both() -> None:
        for run in others:
            assert drive_once(run).state == RunState.COMPLETED

    with while_in_its_call(monkeypatch, both):
        drive_once(first)
    assert first.state == RunState.COMPLETED


def test_who_saw_room_that_is_gone_at_the_commit_waits_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers see the last place; the transaction gives it to one."""
    limited(ONE)
    desk.script(said())
    first, second = desk.start(model=MODEL), desk.start(model=MODEL)
    real, looks = throttling._held, []

    def other() -> None:
        def saw_room(*args: Any) -> Any:
            looks.append(args)
            return None if len(looks) == 1 else real(*args)

        monkeypatch.setattr(throttling, "_held", saw_room)
        assert drive_once(second).state == RunState.RETRY_WAIT

    with while_in_its_call(monkeypatch, other):
        drive_once(first)
    assert len(looks) > 1
    assert len(desk.requests()) == 1


def test_six_runs_in_six_threads_never_make_three_calls_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(Limit(downstream=f"model:{MODEL}", concurrent=2))
    desk.script(said())
    runs = [desk.start(model=MODEL) for _ in range(6)]
    three, met = threading.Barrier(3), []
    real = driver.perform

    def perform(request: Call) -> Any:
        assert isinstance(request.requests[0], ModelRequest)
        try:
            met.append(three.wait(timeout=0.3))
        except threading.BrokenBarrierError:
            three.reset()
        return real(request)

    monkeypatch.setattr(driver, "perform", perform)

    def work(run: Run) -> None:
        try:
            while run.state not in RUN_TERMINAL:
                desk.wake(run)
                drive_once(run)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert met == [], "three calls were under way together"
    for run in runs:
        run.refresh_from_db()
    assert {run.state for run in runs} == {"COMPLETED"}
    assert len(desk.requests()) == 6


def test_a_process_that_dies_gives_its_place_back_when_its_call_is_over(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(ONE)
    desk.script(said())
    first, second = desk.start(model=MODEL), desk.start(model=MODEL)

    def dies(_: Call) -> Any:
        raise SystemExit

    real = driver.perform
    monkeypatch.setattr(driver, "perform", dies)
    with pytest.raises(SystemExit):
        driver.drive(run_id=first.id, revision=None, inline=ALL_STEPS)
    monkeypatch.setattr(driver, "perform", real)
    assert drive_once(second).state == RunState.RETRY_WAIT
    place = LimitUse.objects.get()
    assert second.wake_at <= place.until, "it looks again when the place must be free"
    sql("UPDATE runs_limituse SET until = clock_timestamp()")
    desk.wake(second)
    assert drive_once(second).state == RunState.COMPLETED
    sql("UPDATE runs_run SET call_deadline_at = 'epoch', wake_at = 'epoch' WHERE ended_at IS NULL")
    assert drive_once(first).state == RunState.COMPLETED


def test_a_deadline_ends_a_run_that_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(ONE)
    desk.script(said())
    first, second = desk.start(model=MODEL), desk.start(model=MODEL)
    with while_in_its_call(monkeypatch, lambda: drive_once(second)):
        drive_once(first)
    assert second.wake_at <= second.deadline_at
    force_state(second, deadline_at=second.created_at)
    desk.wake(second)
    drive_once(second)
    assert (second.state, second.stop_reason) == (RunState.INCOMPLETE, "DEADLINE")
    assert second.failure is None, "to wait for a limit is no failure"


# --- in a minute -------------------------------------------------------------------------------


def test_a_rate_counts_the_calls_of_any_sixty_seconds(desk: Desk) -> None:
    limited(Limit(tenant="*", per_minute=2))
    desk.script(ask("a"), said())
    run = drive_once(desk.start(model=MODEL))
    assert (run.state, run.resume_to) == ("RETRY_WAIT", "CALLING_MODEL")
    assert run.reason == "limit: tenant acme: 2 a minute"
    assert (len(desk.requests()), len(READ)) == (1, 1)
    oldest = LimitUse.objects.order_by("taken_at")[0]
    assert (run.wake_at - oldest.taken_at).total_seconds() == pytest.approx(60, abs=0.01)
    sql("UPDATE runs_limituse SET taken_at = taken_at - interval '61 seconds'")
    desk.wake(run)
    assert drive_once(run).state == RunState.COMPLETED


def test_runs_that_wait_for_a_rate_come_back_in_turn(desk: Desk) -> None:
    limited(Limit(downstream=f"model:{MODEL}", per_minute=2))
    now = database_clock()
    for ago in (50, 20):
        at = now - timedelta(seconds=ago)
        LimitUse.objects.create(
            bucket=f"model:{MODEL}", attempt_id=new_id(), taken_at=at, until=now, released_at=now
        )
    desk.script(said())
    runs = [drive_once(desk.start(model=MODEL)) for _ in range(4)]
    waits = [(run.wake_at - now).total_seconds() for run in runs]
    assert waits == pytest.approx([10, 40, 70, 100], abs=0.001)
    assert desk.requests() == []


# --- tools -------------------------------------------------------------------------------------


def test_reads_of_one_reply_keep_to_the_limit_of_what_they_call(desk: Desk) -> None:
    limited(Limit(downstream="orders", concurrent=1))
    desk.tools["get_order"] = Tool(replace(desk.tools["get_order"].spec, downstream="orders"))
    desk.script(ask("a", "b", "c"), said())
    run = desk.drive(desk.start(model=MODEL))
    assert run.state == RunState.COMPLETED, run.reason
    assert len(READ) == 3
    uses = LimitUse.objects.filter(bucket="orders").order_by("taken_at")
    ends = [use.released_at for use in uses]
    begins = [use.taken_at for use in uses]
    assert len(uses) == 3
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert not [event for event in run.events.all() if "waits_for" in event.data], (
        "the place of its own call that is over is free in the same transaction"
    )


def test_a_write_without_room_stays_ready_and_is_made_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(Limit(downstream="desk.refund_order", per_minute=1))
    desk.script(refund(), said())
    first = desk.drive(desk.start(model=MODEL, caller=replace(CALLER, tenant="first")))
    assert (first.state, len(MADE)) == (RunState.COMPLETED, 1)
    desk.script(refund(), said())
    second = drive_once(desk.start(model=MODEL))
    assert (second.state, second.resume_to) == ("RETRY_WAIT", "DISPATCHING_TOOLS")
    assert "desk.refund_order: 1 a minute" in second.reason
    assert [action.state for action in desk.actions(second)] == ["READY"]
    assert len(MADE) == 1
    sql("UPDATE runs_limituse SET taken_at = taken_at - interval '61 seconds'")
    desk.wake(second)
    assert drive_once(second).state == RunState.COMPLETED
    assert len(MADE) == 2
    looks = LimitUse.objects.filter(bucket="desk.refund_order").count()
    assert looks == 4, "a look at the system of record is counted and never held back"


def test_a_read_that_waits_beside_an_accepted_write_goes_on_by_itself(desk: Desk) -> None:
    """The write is settled by its downstream one day; the read must not spin until then."""

    @tool(
        effect=Effect.WRITE,
        contract=Key(retention=timedelta(days=1)),
        identity=("order_id",),
        app_label="desk",
    )
    def pay_out(ctx: ToolContext, order_id: str) -> str | Pending:
        """Pay out.

        Args:
            order_id: for which order.
        """
        return Pending("queued")

    desk.tools["pay_out"] = pay_out
    limited(Limit(downstream="desk.get_order", per_minute=1))
    both = [
        call("c1", "pay_out", arguments='{"order_id":"ord_1"}'),
        call("c2", "get_order", arguments='{"order_id":"ord_1"}'),
    ]
    desk.script(ask("ord_0"), answer(reply(*both)), said())
    run = drive_once(desk.start(tools=["pay_out", "get_order"], model=MODEL))
    assert run.state == RunState.RECONCILING
    assert [action.state for action in desk.actions(run)] == ["SUCCEEDED", "PENDING", "READY"]
    place = LimitUse.objects.get(bucket="desk.get_order")
    assert (run.wake_at - place.taken_at).total_seconds() == pytest.approx(60, abs=0.01)
    sql("UPDATE runs_limituse SET taken_at = taken_at - interval '61 seconds'")
    desk.wake(run)
    drive_once(run)
    assert [action.state for action in desk.actions(run)] == ["SUCCEEDED", "PENDING", "SUCCEEDED"]


# --- without limits ----------------------------------------------------------------------------


def test_without_limits_no_statement_is_about_them(desk: Desk) -> None:
    desk.script(ask("a"), said())
    run = desk.start(model=MODEL)
    with CaptureQueriesContext(connection) as queries:
        desk.drive(run)
    assert run.state == RunState.COMPLETED
    assert [q["sql"] for q in queries if "runs_limit" in q["sql"]] == []
    assert not slots.is_limited()
