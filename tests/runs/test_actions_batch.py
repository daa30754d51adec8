"""The order inside one reply: what goes side by side, what waits, what never runs again."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.test import override_settings

from runs.models import Run
from tests.runs.acting import (
    TO_THE_TURN,
    Downstream,
    action,
    actions,
    attempts,
    decide,
    go,
    later,
    propose_run,
    read_tool,
    state_of,
    states,
    write_tool,
)
from tools import Approval, NotSent, Preview, Rejected


def door(*_: Any) -> str:
    return "door:1"


@pytest.mark.requirement("R34")
def test_reads_go_side_by_side_up_to_the_cap(shop: Downstream, settings: Any) -> None:
    here, peak = [0], [0]
    lock, both = threading.Lock(), threading.Barrier(2, timeout=10)

    def look() -> dict[str, Any]:
        with lock:
            here[0] += 1
            peak[0] = max(peak[0], here[0])
        both.wait()  # each pair can only pass together
        with lock:
            here[0] -= 1
        return {}

    options = settings.AGENTCORE_OPTIONS.model_copy(update={"read_cap": 2})
    with override_settings(AGENTCORE_OPTIONS=options):
        run = propose_run(*[(read_tool(look), {})] * 4)
        go(run)
    assert states(run) == ["SUCCEEDED"] * 4
    assert peak == [2]


@pytest.mark.requirement("R35", "R45")
def test_each_call_gets_one_observation_in_call_order(shop: Downstream) -> None:
    seen = iter(range(9))
    look = read_tool(lambda: {"n": next(seen)})
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "b"}), (look, {}), (pay, {"what": "a"}))
    go(run, inline=TO_THE_TURN)
    rows = actions(run)
    assert [row.ordinal for row in rows] == [0, 1, 2]
    told = [json.loads(row.observation or "") for row in rows]
    assert [item["status"] for item in told] == ["ok"] * 3
    assert [item["tool"] for item in told] == ["shop.pay", "shop.look", "shop.pay"]
    assert [row.call_id for row in rows] == ["call_0", "call_1", "call_2"]
    order = [ctx.action_id for ctx in shop.sent]
    assert order == [rows[0].id, rows[2].id], "writes one after another"


@pytest.mark.requirement("R34")
def test_a_write_waits_for_an_earlier_open_write_on_its_object(shop: Downstream) -> None:
    shop.behaves = ["accepted"]
    first = write_tool(shop, resource=door)
    other = write_tool(shop, name="close", resource=door)
    free = write_tool(shop, name="ring", resource=lambda *_: "bell")
    run = propose_run((first, {"what": "a"}), (other, {"what": "a"}), (free, {"what": "a"}))
    go(run)
    assert states(run) == ["PENDING", "READY", "SUCCEEDED"]
    shop.effects.append((action(run).idempotency_key or "", "a"))
    later(run, seconds=6)
    assert states(run) == ["SUCCEEDED"] * 3


@pytest.mark.requirement("R34")
def test_calls_on_one_object_keep_their_order(shop: Downstream) -> None:
    """A read after a write shows what the write made; a write waits for a read before it."""
    order: list[str] = []
    before = read_tool(lambda: order.append("before") or {}, name="first_look", resource=door)
    after = read_tool(lambda: order.append("after") or {}, name="last_look", resource=door)
    put = write_tool(shop, resource=door)
    shop.during = lambda: order.append("write")
    run = propose_run((before, {}), (put, {"what": "a"}), (after, {}))
    go(run)
    assert states(run) == ["SUCCEEDED"] * 3
    assert order == ["before", "write", "after"]


@pytest.mark.requirement("R45", "R53")
def test_after_an_unknown_write_no_other_begins_and_finished_ones_stay(shop: Downstream) -> None:
    looks: list[int] = []
    look = read_tool(lambda: looks.append(1) or {})
    pay, send, ring = (write_tool(shop, name=name) for name in ("pay", "send", "ring"))
    shop.behaves = ["ok", "dropped"]
    run = propose_run(
        (look, {}), (pay, {"what": "a"}), (send, {"what": "a"}), (ring, {"what": "a"})
    )
    go(run)
    assert states(run) == ["SUCCEEDED", "SUCCEEDED", "UNKNOWN", "READY"]
    later(run, seconds=6)
    assert states(run) == ["SUCCEEDED"] * 4
    assert len(looks) == 1
    sends = [ctx.action_id for ctx in shop.sent]
    assert [sends.count(row.id) for row in actions(run)[1:]] == [1, 2, 1]


def test_a_person_who_must_tell_keeps_later_writes_back(shop: Downstream) -> None:
    from agentcore.values import Conflict

    shop.behaves, shop.answers = ["dropped"], [Conflict()]
    pay, send = write_tool(shop), write_tool(shop, name="send")
    run = propose_run((pay, {"what": "a"}), (send, {"what": "a"}))
    go(run)
    later(run, seconds=6)
    later(run, hours=1)
    assert states(run) == ["NEEDS_HUMAN", "READY"]


def test_after_a_failed_write_the_later_ones_go_on(shop: Downstream) -> None:
    shop.behaves = ["refused"]
    pay, send = write_tool(shop), write_tool(shop, name="send")
    run = propose_run((pay, {"what": "a"}), (send, {"what": "a"}))
    go(run)
    assert states(run) == ["FAILED", "SUCCEEDED"]


def test_an_agent_may_say_that_it_stops_on_a_failure(shop: Downstream) -> None:
    shop.behaves = ["ok", "refused"]
    pay, send, ring = (write_tool(shop, name=name) for name in ("pay", "send", "ring"))
    asked = write_tool(shop, name="wire", approval=Approval.always(role="boss"))
    look = read_tool(dict)
    calls = [(made, {"what": "a"}) for made in (pay, send, ring, asked, look)]
    run = propose_run(*calls, stop_on_failure=True)
    go(run, inline=TO_THE_TURN)
    assert states(run) == ["SUCCEEDED", "FAILED", "VOIDED", "VOIDED", "SUCCEEDED"]
    assert [row.reason for row in actions(run)[2:4]] == ["STOPPED_ON_FAILURE"] * 2
    assert "shop.send failed before it" in (action(run, 2).observation or "")
    assert action(run, 3).approval is not None
    assert action(run, 3).approval.state == "VOIDED"  # type: ignore[union-attr]


@pytest.mark.requirement("R33")
def test_provable_no_sends_are_tried_again_with_a_pause_and_up_to_a_limit(
    shop: Downstream,
) -> None:
    shop.behaves = ["not_sent"] * 9
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    assert (state_of(run), states(run), len(shop.sent)) == ("RETRY_WAIT", ["RUNNING"], 1)
    go(run)
    assert len(shop.sent) == 1
    later(run, seconds=2)
    later(run, seconds=2)
    assert (states(run), len(shop.sent)) == (["FAILED"], 3)


@pytest.mark.requirement("R67")
def test_a_tool_may_be_called_only_so_often_in_one_run(shop: Downstream) -> None:
    looks: list[int] = []
    look = read_tool(lambda: looks.append(1) or {}, max_calls_per_run=2)
    pay = write_tool(shop, max_calls_per_run=1)
    run = propose_run(*[(look, {})] * 3, (pay, {"what": "a"}), (pay, {"what": "b"}))
    go(run)
    assert states(run) == ["SUCCEEDED", "SUCCEEDED", "DENIED", "SUCCEEDED", "DENIED"]
    assert [row.reason for row in actions(run) if row.state == "DENIED"] == ["CALL_LIMIT"] * 2
    assert (len(looks), len(shop.sent)) == (2, 1)


@pytest.mark.requirement("R32", "R57")
def test_stored_but_not_fed_back_is_told_from_the_rest(shop: Downstream) -> None:
    """Never started: no attempt. Sent without a word: an attempt without outcome. Done and not yet
    told: a terminal action without observation."""
    pay, send = write_tool(shop), write_tool(shop, name="send", approval=Approval.always(role="x"))
    run = propose_run((pay, {"what": "a"}), (send, {"what": "a"}))
    seen: list[Any] = []
    shop.during = lambda: seen.append([(a.outcome, a.lost_at) for a in attempts(action(run))])
    go(run)
    assert seen == [[(None, None)]]
    done, waiting = actions(run)
    assert (done.state, done.observation) == ("SUCCEEDED", None)
    assert done.result == {"id": f"ref-{(done.idempotency_key or '')[-8:]}"}
    assert (waiting.state, attempts(waiting), waiting.first_sent_at) == (
        "AWAITING_APPROVAL",
        [],
        None,
    )


@pytest.mark.requirement("R31")
def test_a_result_that_cannot_be_used_is_still_a_success(shop: Downstream) -> None:
    """Too large, or not what the tool promised: it happened, and the model is told so."""
    from tests.runs.unreadable import big_write, wrong_write

    big, wrong = big_write(), wrong_write()
    run = propose_run((big, {"what": "a"}), (wrong, {"what": "a"}))
    go(run, inline=TO_THE_TURN)
    assert states(run) == ["SUCCEEDED", "SUCCEEDED"]
    assert [row.error_class for row in actions(run)] == ["TOO_LARGE", "RESULT_UNREADABLE"]
    for row in actions(run):
        told = json.loads(row.observation or "")
        assert told["status"] == "ok_but_unreadable"
        assert len(row.observation or "") < 20_000
        assert attempts(row)[0].outcome == "SUCCESS"


@pytest.mark.requirement("R36", "R113")
@pytest.mark.parametrize("moved", [True, False])
def test_a_write_refuses_arguments_that_rest_on_another_snapshot(
    shop: Downstream, moved: bool
) -> None:
    now = ["7"]
    look = read_tool(lambda: {"version": now[0]}, resource=door)
    put = write_tool(shop, resource=door, preview=lambda: Preview("", version=now[0]))
    run = propose_run((look, {}), (put, {"what": "a"}))
    if moved:  # between the read and the precheck
        look_again = look.spec.fn
        assert look_again is not None
        put.preview(lambda *_: Preview("", version="8"))
    go(run)
    if moved:
        row = action(run, 1)
        assert (row.state, row.reason) == ("DENIED", "SNAPSHOT_CHANGED")
        assert "read at 7" in row.detail
        assert shop.sent == []
    else:
        assert states(run) == ["SUCCEEDED", "SUCCEEDED"]
        assert shop.sent[0].resource_version == "7"


@pytest.mark.requirement("R113")
def test_reads_of_two_snapshots_are_no_ground_for_a_write(shop: Downstream) -> None:
    """One of the two reads is right; nobody knows from which of them the arguments are."""
    seen = ["6", "7"]
    look = read_tool(lambda: {"version": seen.pop()}, resource=door)
    put = write_tool(shop, resource=door, preview=lambda: Preview("", version="7"))
    run = propose_run((look, {"what": "a"}), (look, {"what": "b"}), (put, {"what": "a"}))
    go(run)
    row = action(run, 2)
    assert (row.state, row.reason) == ("DENIED", "SNAPSHOT_CHANGED")
    assert "read at 6, 7" in row.detail
    assert shop.sent == []


def test_a_runs_own_write_moves_the_version_and_is_no_other_snapshot(shop: Downstream) -> None:
    now = [7]
    look = read_tool(lambda: {"version": now[0]}, resource=door)
    put = write_tool(shop, resource=door, preview=lambda: Preview("", version=str(now[0])))
    shop.during = lambda: now.__setitem__(0, now[0] + 1)
    run = propose_run((look, {}), (put, {"what": "a"}), (put, {"what": "b"}))
    go(run)
    assert states(run) == ["SUCCEEDED"] * 3
    assert [ctx.resource_version for ctx in shop.sent] == ["7", "8"]


@pytest.mark.requirement("R56")
def test_a_compensation_is_an_action_like_any_other(shop: Downstream) -> None:
    pay = write_tool(shop)
    back = write_tool(
        shop, name="pay_back", compensates="shop.pay", approval=Approval.always(role="boss")
    )
    run = propose_run((pay, {"what": "a"}), (back, {"what": "a"}))
    go(run)
    assert states(run) == ["SUCCEEDED", "AWAITING_APPROVAL"], "judged by its own rule"
    decide(run, 1)
    go(run, inline=TO_THE_TURN)
    assert states(run) == ["SUCCEEDED", "SUCCEEDED"], "what was compensated stays done"
    told = json.loads(action(run, 1).observation or "")
    assert told["compensates"] == "shop.pay"
    assert len({ctx.idempotency_key for ctx in shop.sent}) == 2
    assert len(shop.effects) == 2


def test_a_read_that_fails_for_good_is_an_observation(shop: Downstream) -> None:
    def refuse() -> dict[str, Any]:
        raise Rejected("no such order", error_class="not_found")

    def unreachable() -> dict[str, Any]:
        raise NotSent("refused", error_class="connection_refused")

    run = propose_run((read_tool(refuse, name="find"), {}), (read_tool(unreachable), {}))
    go(run)
    for _ in range(3):
        later(run, seconds=5)
    assert states(run) == ["FAILED", "FAILED"]
    assert Run.objects.get(pk=run).state == "OBSERVING"
