"""Reconciliation as a step: who may do it, what waits for it, what a stopping run does."""

from __future__ import annotations

import io
import itertools
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from agentcore.lifecycle import RunState
from agentcore.values import Inconclusive, Query
from runs import services, sweeps, worker
from runs.models import Event, Run
from runs.transitions import locked_run
from tests.runs.acting import (
    TO_THE_TURN,
    Downstream,
    action,
    attempts,
    decide,
    go,
    later,
    pass_time,
    propose_run,
    read_tool,
    state_of,
    states,
    write_tool,
)
from tests.runs.test_actions_contracts import SETTLE
from tools import Approval

ALL_STEPS = frozenset({"compile", "model", "tools", "observe"})


def _unknown(shop: Downstream, **options: Any) -> UUID:
    shop.behaves = ["dropped"]
    run = propose_run((write_tool(shop, **options), {"what": "a"}))
    go(run)
    assert states(run) == ["UNKNOWN"]
    return run


@pytest.mark.requirement("R53")
def test_while_a_write_is_unknown_no_other_step_is_taken(shop: Downstream) -> None:
    """Also by a worker that serves every step: no model call, no observation, no end."""
    shop.answers = [Inconclusive("down")] * 3
    run = _unknown(shop)
    for _ in range(3):
        pass_time(run, minutes=3)
        left = go(run, inline=ALL_STEPS)
        assert left is not None
        assert (left.state, left.due) == ("RECONCILING", None)
    row = Run.objects.get(pk=run)
    assert (row.turn, row.lease_worker) == (1, None)
    assert action(run).observation is None
    assert len(shop.asked) == 3


@pytest.mark.requirement("R11", "R71")
@pytest.mark.parametrize("stop", ["CANCEL", "BUDGET", "DEADLINE"])
def test_a_stop_waits_for_the_truth_and_sends_nothing(shop: Downstream, stop: str) -> None:
    shop.answers = [Inconclusive("down")]
    run = _unknown(shop)
    ends = {"CANCEL": "CANCELLED", "BUDGET": "INCOMPLETE", "DEADLINE": "INCOMPLETE"}
    _stop(run, stop)
    go(run)
    assert state_of(run) == ("CANCELLING" if stop == "CANCEL" else "RECONCILING")
    later(run, seconds=6)
    assert states(run) == ["UNKNOWN"], "it is asked about, whatever the run is"
    shop.effects.append((action(run).idempotency_key or "", "a"))  # the first send, late
    later(run, seconds=31)
    assert (state_of(run), states(run)) == (ends[stop], ["SUCCEEDED"])
    assert len(shop.sent) == 1


def _stop(run: UUID, reason: str) -> None:
    if reason == "CANCEL":
        services.cancel_run(run_id=run, actor="user:1")
        return
    with locked_run(run, actor="worker:test", event="run.advanced") as draft:
        draft.set_run(stop_reason=reason, wake_at=draft.now)


def test_a_stopping_run_with_a_key_write_that_is_absent_asks_a_person(shop: Downstream) -> None:
    """No window bounds a `Key` write: that it is not there yet is no proof."""
    run = _unknown(shop)
    services.cancel_run(run_id=run, actor="user:1")
    later(run, seconds=6)
    assert (state_of(run), states(run)) == ("CANCELLING", ["NEEDS_HUMAN"])
    assert (action(run).reason, len(shop.sent)) == ("STOPPING_ABSENT", 1)


@pytest.mark.parametrize("fenced", [True, False])
def test_a_stopping_run_ends_by_proven_absence_where_there_is_one(
    shop: Downstream, fenced: bool
) -> None:
    run = _unknown(shop, contract=Query(settle=SETTLE), fenced_sends=fenced)
    services.cancel_run(run_id=run, actor="user:1")
    later(run, seconds=61)
    assert states(run) == ["UNKNOWN"]
    later(run, seconds=61)
    assert states(run) == (["FAILED"] if fenced else ["NEEDS_HUMAN"])
    assert state_of(run) == ("CANCELLED" if fenced else "CANCELLING")
    assert len(shop.sent) == 1


@pytest.mark.requirement("R53")
def test_a_suspended_run_is_looked_at_and_nothing_else(shop: Downstream) -> None:
    shop.answers = [Inconclusive("down")]
    run = _unknown(shop)
    with locked_run(run, actor="user:1", event="run.suspended") as draft:
        draft.move_run(RunState.SUSPENDED, resume_to=RunState.RECONCILING)
    go(run)
    assert shop.asked == [], "not before its time"
    later(run, seconds=6)
    assert (state_of(run), len(shop.asked)) == ("SUSPENDED", 1)
    later(run, seconds=31)
    assert (states(run), len(shop.asked)) == (["UNKNOWN"], 2)
    assert len(shop.sent) == 1, "absent: it would be sent again, once the run goes on"

    with locked_run(run, actor="user:1", event="run.resumed") as draft:
        draft.move_run(RunState.RECONCILING, wake_at=draft.now)
    later(run, minutes=3)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 2)


def test_a_suspended_run_without_an_open_write_is_left_alone(shop: Downstream) -> None:
    run = propose_run((write_tool(shop, approval=Approval.always(role="boss")), {"what": "a"}))
    go(run)
    with locked_run(run, actor="user:1", event="run.suspended") as draft:
        draft.move_run(RunState.SUSPENDED, resume_to=RunState.WAITING_APPROVAL, wake_at=draft.now)
    go(run)
    assert (state_of(run), states(run)) == ("SUSPENDED", ["AWAITING_APPROVAL"])
    assert go(run) is None, "once was enough to see that nothing is due"
    pass_time(run, days=40)
    assert go(run) is None, "its clock stands"


def test_the_sweep_finds_a_suspended_run_whose_write_is_due(shop: Downstream) -> None:
    run = _unknown(shop)
    with locked_run(run, actor="user:1", event="run.suspended") as draft:
        draft.move_run(RunState.SUSPENDED, resume_to=RunState.RECONCILING)
    assert sweeps.sweep_once().due == 0
    pass_time(run, seconds=6)
    assert sweeps.sweep_once().due == 1


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.requirement("R57", "R61")
def test_a_lost_probe_is_made_again(shop: Downstream) -> None:
    run = _unknown(shop)
    asked, shop.ask = shop.ask, _die  # type: ignore[method-assign,assignment]
    pass_time(run, seconds=6)
    with pytest.raises(KeyboardInterrupt):
        go(run)
    shop.ask = asked  # type: ignore[method-assign]
    later(run, minutes=1)
    assert states(run) == ["SUCCEEDED"]
    assert [(a.outcome, a.lost_at is None) for a in attempts(action(run), "PROBE")] == [
        (None, False),
        ("SUCCESS", True),
    ]
    assert (len(shop.asked), len(shop.effects)) == (1, 1)


@pytest.mark.requirement("R57", "R61")
def test_a_lost_resend_is_unknown_again_and_keeps_its_key(shop: Downstream) -> None:
    run = _unknown(shop)
    shop.during = _die
    pass_time(run, seconds=6)
    with pytest.raises(KeyboardInterrupt):
        go(run)
    shop.during = None
    assert action(run).state == "RUNNING"
    later(run, minutes=1)
    assert states(run) == ["UNKNOWN"]
    later(run, minutes=1)
    assert states(run) == ["SUCCEEDED"]
    assert [a.outcome for a in attempts(action(run))] == ["AMBIGUOUS", None, "SUCCESS"]
    assert len({ctx.idempotency_key for ctx in shop.sent}) == 1
    assert len(shop.effects) == 1


def test_the_lease_is_free_between_two_looks(shop: Downstream) -> None:
    shop.answers = [Inconclusive("down")] * 2
    run = _unknown(shop)
    later(run, seconds=6)
    row = Run.objects.get(pk=run)
    assert (row.lease_worker, row.wake_at) == (None, action(run).next_probe_at)


def test_reads_and_retries_of_the_reply_go_on_beside_an_unknown_write(shop: Downstream) -> None:
    from tools import NotSent

    tries = itertools.count(1)

    def look() -> dict[str, Any]:
        if next(tries) == 1:
            raise NotSent("refused")
        return {}

    shop.behaves = ["dropped"]
    shop.answers = [Inconclusive("down")] * 9
    run = propose_run((write_tool(shop), {"what": "a"}), (read_tool(look), {}))
    go(run)
    assert states(run) == ["UNKNOWN", "RUNNING"]
    pass_time(run, seconds=1)
    go(run)
    assert states(run) == ["UNKNOWN", "SUCCEEDED"]
    assert len(shop.sent) == 1


@pytest.mark.requirement("R45")
def test_an_approved_call_goes_while_another_is_only_not_final(shop: Downstream) -> None:

    shop.behaves = ["accepted"]
    pay = write_tool(shop, probe=False)
    send = write_tool(shop, name="send", approval=Approval.always(role="boss"))
    run = propose_run((pay, {"what": "a"}), (send, {"what": "a"}))
    go(run)
    assert (state_of(run), states(run)) == ("RECONCILING", ["PENDING", "AWAITING_APPROVAL"])
    decide(run, 1)
    go(run)
    assert (state_of(run), states(run)) == ("RECONCILING", ["PENDING", "SUCCEEDED"])


@pytest.mark.requirement("R62")
def test_fence_and_key_travel_under_the_configured_names(shop: Downstream, settings: Any) -> None:
    shop.behaves = ["dropped"]
    names = {"key_header": "X-Request-Key", "fence_header": "X-Fence"}
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(update=names)
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    first, second = (dict(ctx.http.write_headers) for ctx in shop.sent)
    key = action(run).idempotency_key
    assert first == {"X-Request-Key": key, "X-Fence": "1"}
    assert second == {"X-Request-Key": key, "X-Fence": "2"}, "a later holder has a higher fence"


# --- the command ------------------------------------------------------------------------------


def _reconcile(*arguments: str) -> str:
    said = io.StringIO()
    try:
        call_command("reconcile", *arguments, stdout=said, stderr=said)
    finally:
        worker._current = None  # the command has ended "its" process
    return said.getvalue()


@pytest.mark.requirement("R105")
def test_the_command_does_one_pass_and_says_what_it_did(shop: Downstream) -> None:
    found = _unknown(shop)
    key = action(found).idempotency_key
    shop.effects.append((key or "", "a"))
    assert _reconcile() == "0 runs reconciled, 0 held by a worker, 0 failed\n"
    pass_time(found, seconds=6)
    assert _reconcile() == (
        f"shop.pay {key} found: UNKNOWN -> SUCCEEDED\n"
        "1 runs reconciled, 0 held by a worker, 0 failed\n"
    )
    assert state_of(found) == "OBSERVING", "it calls no model: that is for a worker"
    assert Event.objects.filter(run_id=found, type="action.succeeded").exists()


def test_the_command_says_when_it_will_look_again_and_who_is_asked(shop: Downstream) -> None:
    shop.answers = [Inconclusive("down")]
    run = _unknown(shop)
    pass_time(run, seconds=6)
    assert "inconclusive: UNKNOWN -> UNKNOWN, next look " in _reconcile()
    services.cancel_run(run_id=run, actor="user:1")
    pass_time(run, seconds=31)
    assert "absent: UNKNOWN -> NEEDS_HUMAN (STOPPING_ABSENT)" in _reconcile("--limit", "5")


def test_a_run_that_cannot_be_driven_is_an_exit_code(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runs.management.commands import reconcile

    run = _unknown(shop)
    pass_time(run, seconds=6)

    def broken(**_: Any) -> None:
        raise RuntimeError("no way")

    monkeypatch.setattr(reconcile, "drive", broken)
    with pytest.raises(CommandError, match="1 runs could not be driven"):
        _reconcile()
    assert go(run, inline=TO_THE_TURN) is not None


def test_the_tools_are_listed_with_what_stands_behind_them(shop: Downstream) -> None:
    write_tool(shop)
    write_tool(shop, name="tell", probe=False, compensates="shop.pay")
    write_tool(shop, name="look_up", contract=Query(settle=SETTLE), fenced_sends=True)
    read_tool(dict)
    said = io.StringIO()
    call_command("tools", "list", stdout=said)
    lines = {line.split()[0]: line for line in said.getvalue().splitlines() if line}
    assert "dedupe + probe" in lines["shop.pay"]
    assert "dedupe only" in lines["shop.tell"]
    assert "compensates shop.pay" in lines["shop.tell"]
    assert "lookup" in lines["shop.look_up"]
    assert "read only" in lines["shop.look"]
    assert "undo" not in said.getvalue().lower()
