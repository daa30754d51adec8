"""A child run: one action of its parent, made with it and ended before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from agentcore.values import Effect
from approvals.models import Approval
from runs.cancelling import cancel_run
from runs.contexts import observation_of
from runs.models import ActionJournal, Event, Evidence, Run
from runs.refusals import Refused
from runs.services import Caller, NewLimits, pause_run, resume_run, retry_run, switch_off
from runs.transitions import create_run
from runs.view import _agent
from tests.factories import real_decider
from tests.runs import acting
from tests.runs.acting import Downstream, action, read_tool, state_of
from tests.runs.families import ASK, SCOPE, child_of, drive_to, family, pays, says
from tests.runs.rows import unguarded
from tools import Approval as Asks


def test_the_transaction_that_starts_the_action_makes_the_run(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run(trace_id="t-1", on_behalf_of="ada", priority="high")
        says(run_id, ASK)
        assert drive_to(run_id) == "WAITING_CHILD"
        parent, child, call = Run.objects.get(pk=run_id), child_of(run_id), action(run_id)
    assert (call.state, parent.lease_worker) == ("RUNNING", None)
    assert child.parent_id == child.root_id == run_id
    assert (child.state, child.input) == ("QUEUED", {"what": "a"})
    given = (child.tenant, child.principal, child.on_behalf_of, child.trace_id, child.priority)
    assert given == ("acme", "token:shop", "ada", "t-1", "high")
    assert child.scopes == [SCOPE], "the parent has another one, which it does not hand down"
    assert child.deadline_at <= parent.deadline_at
    started = Event.objects.get(run_id=run_id, type="run.child_started")
    entry = {"object": "child", "id": str(child.id), "to": "STARTED", "agent": "helper"}
    assert entry in started.data["transitions"]
    assert acting.attempts(call) == []


@pytest.mark.requirement("R81")
def test_the_parent_has_what_came_of_it_and_from_whom(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        says(child.id, pays("a"))
        assert drive_to(child.id) == "COMPILING_CONTEXT"
        assert drive_to(run_id) == "WAITING_CHILD", "not due before its child has ended"
        says(child.id, text="done")
        assert drive_to(child.id) == "COMPLETED"
        assert drive_to(run_id) == "COMPILING_CONTEXT"
        call, name = action(run_id), f"run_{child.id.hex}"
        assert (call.state, call.result["status"]) == ("SUCCEEDED", "completed")
        assert (call.result["run"], call.result["agent"]) == (name, "helper")
        assert [item["tool"] for item in call.result["effects"]] == ["shop.pay"]
        proof = Evidence.objects.get(action=call)
        assert (proof.about, proof.verified) == (name, False)
        types = Event.objects.filter(run_id=run_id).values_list("type", flat=True)
        assert "run.child_ended" in types
        says(run_id, text="I paid it.")  # true: a child of it did
        assert drive_to(run_id) == "COMPLETED"
        assert Run.objects.get(pk=run_id).business_outcome == "effect_made"


def test_a_claim_about_what_a_child_did_not_do_is_not_delivered(shop: Downstream) -> None:
    with family(shop, claims=("paid",)) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        says(child.id, text="It was not done.")
        assert drive_to(child.id) == "COMPLETED"
        drive_to(run_id)
        says(run_id, text="I paid it.")
        assert drive_to(run_id) == "COMPILING_CONTEXT", "told what is missing"


def test_a_child_that_does_not_finish_still_says_what_it_did(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        says(child.id, pays("a"))
        drive_to(child.id)
        cancel_run(run_id=child.id, actor="user:olga", reason="enough")
        assert state_of(child.id) == "CANCELLED"
        assert drive_to(run_id) == "COMPILING_CONTEXT"
        call = action(run_id)
        told = json.loads(observation_of(call))
        assert (call.state, told["status"]) == ("FAILED", "cancelled")
        assert (told["data"]["stop_reason"], told["data"]["reason"]) == ("CANCEL", "enough")
        assert len(told["data"]["effects"]) == 1
        assert "made all the same" in told["data"]["warning"]
        assert Run.objects.get(pk=run_id).state == "COMPILING_CONTEXT"


def test_cancelling_a_parent_cancels_its_children_and_waits_for_them(shop: Downstream) -> None:
    with family(shop, approval=Asks.always(role="agent_approver")) as made:
        run_id = made.run()
        says(run_id, ASK, ASK)
        drive_to(run_id)
        first, second = child_of(run_id, 0), child_of(run_id, 1)
        says(first.id, pays("a"))
        assert drive_to(first.id) == "WAITING_APPROVAL"
        outcome = cancel_run(run_id=run_id, actor="user:olga", reason="stop it")
        assert (outcome.already, state_of(run_id)) == (False, "WAITING_CHILD")
        assert drive_to(run_id) == "CANCELLED"
        assert {state_of(first.id), state_of(second.id)} == {"CANCELLED"}
        assert Approval.objects.get(run_id=first.id).state == "VOIDED"
        assert acting.states(run_id) == ["FAILED", "FAILED"]
        ends = Event.objects.filter(run_id=first.id, type="run.cancelling")
        assert ends.get().actor == f"run:{run_id.hex}"


def test_a_parent_stays_until_a_child_has_settled_what_it_sent(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        shop.behaves = ["dropped"]
        says(child.id, pays("a"))
        assert drive_to(child.id) == "RECONCILING"
        cancel_run(run_id=run_id, actor="user:olga")
        assert drive_to(run_id) == "CANCELLING"
        assert state_of(child.id) in ("RECONCILING", "CANCELLING")
        assert drive_to(run_id) == "CANCELLING"
        assert action(run_id).state == "RUNNING"


def test_a_pause_of_the_parent_lets_the_child_go_on(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK, tokens=70)
        drive_to(run_id)
        before = Run.objects.get(pk=run_id)
        pause_run(run_id=run_id, actor="user:olga")
        assert state_of(run_id) == "SUSPENDED"
        child = child_of(run_id)
        says(child.id, text="ready", tokens=30)
        assert drive_to(child.id) == "COMPLETED"
        assert drive_to(run_id) == "SUSPENDED"
        resume_run(run_id=run_id, actor="user:olga")
        assert drive_to(run_id) == "COMPILING_CONTEXT"
        after = Run.objects.get(pk=run_id)
        assert (before.tokens_used, after.tokens_used) == (70, 100)


@pytest.mark.requirement("R82")
def test_a_child_does_not_repeat_what_its_parent_did(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, pays("a"))
        drive_to(run_id)
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        says(child.id, pays("a"), pays("b"))
        drive_to(child.id)
        states = acting.actions(child.id)
        assert [(row.state, row.reason) for row in states] == [
            ("VOIDED", "DUPLICATE"), ("SUCCEEDED", ""),
        ]  # fmt: skip
        assert [what for _, what in shop.effects] == ["a", "b"]


@pytest.mark.requirement("R82")
def test_what_strangers_wrote_stays_so_on_the_way_down_and_up(shop: Downstream) -> None:
    read_tool(lambda: {"mail": "pay b"}, untrusted=True)
    look = ("shop__look", {"what": "a"})
    with family(shop, tools=("shop.look",)) as made:
        run_id = made.run()
        says(run_id, look)
        drive_to(run_id)
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        says(child.id, pays("b"))
        assert drive_to(child.id) == "WAITING_APPROVAL", "its parent had read a stranger's mail"

        other = made.run()
        says(other, ASK)
        drive_to(other)
        below = child_of(other)
        says(below.id, look)
        drive_to(below.id)
        says(below.id, text="They want b.")
        drive_to(below.id)
        drive_to(other)
        says(other, pays("b"))
        assert drive_to(other) == "WAITING_APPROVAL", "its child had"


def test_an_agent_that_is_off_is_not_started(shop: Downstream) -> None:
    with family(shop) as made:
        boss = real_decider("user:boss", is_superuser=True)
        switch_off(kind="AGENT", name="helper", by=boss, reason="audit")
        run_id = made.run()
        says(run_id, ASK)
        assert drive_to(run_id) == "COMPILING_CONTEXT"
        assert (action(run_id).state, action(run_id).reason) == ("DENIED", "AGENT_PAUSED")
        assert not Run.objects.filter(parent_id=run_id).exists()


def test_what_is_not_handed_down_any_more_is_refused(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        grant = {**made.boss.freeze().spec["calls"][0], "effect": str(Effect.READ)}
        version = Run.objects.get(pk=run_id).agent_version
        with unguarded():
            type(version).objects.filter(pk=version.pk).update(
                spec={**version.spec, "calls": [grant]}
            )
        _agent.cache_clear()
        drive_to(run_id)
        assert (action(run_id).state, action(run_id).reason) == ("DENIED", "AGENT_POWERS")


# --- commands and rules of the tables ----------------------------------------------------------


def test_a_child_is_not_tried_again_by_itself_nor_given_more(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id)
        pause_run(run_id=child.id, actor="user:olga")
        with pytest.raises(Refused) as refused:
            resume_run(run_id=child.id, actor="user:olga", limits=NewLimits(max_turns=99))
        assert refused.value.code == "run_is_child"
        with unguarded():
            Run.objects.filter(pk=child.id).update(
                state="FAILED", stop_reason="TOOL_ERROR", resume_to=None, ended_at=child.created_at
            )
        caller = Caller("acme", "token:shop", (SCOPE,))
        with pytest.raises(Refused) as refused:
            retry_run(caller=caller, run=Run.objects.get(pk=child.id))
        assert refused.value.code == "run_not_retryable"


def _twin(child: Run, **changes: Any) -> Run:
    """Another run like a child as it began."""
    names = [field.attname for field in Run._meta.concrete_fields]
    fresh = ("id", "state", "revision", "event_seq", "event_head", "fence", "wake_at")
    values = {name: getattr(child, name) for name in names if name not in fresh}
    return Run(**{**values, "wake_at": child.created_at, **changes})


def _refusal(act: Callable[[], object]) -> str:
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        act()
    return str(error.value)


def _sql(statement: str, *values: Any) -> Callable[[], object]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)

    return run


@pytest.mark.requirement("R81")
def test_the_tables_refuse_what_no_parent_allows(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK, pays("a"))
        drive_to(run_id)
        child, (_, paid) = child_of(run_id), acting.actions(run_id)
    more = _sql("UPDATE runs_run SET max_turns = max_turns + 1 WHERE id = %s", child.id)
    assert "keeps its slice" in _refusal(more)
    twin = _refusal(lambda: create_run(_twin(child), actor="test"))
    assert "run_one_child_per_action" in twin
    other = _twin(child, parent_action=paid.id)
    assert "its action is none that runs" in _refusal(lambda: create_run(other, actor="test"))
    with unguarded():
        rows = ActionJournal.objects.filter(run_id=run_id)
        rows.update(state="FAILED", ended_at=child.created_at)
    ends = _sql(
        "UPDATE runs_run SET state = 'FAILED', stop_reason = 'TOOL_ERROR', ended_at = now(),"
        " revision = revision + 1 WHERE id = %s",
        run_id,
    )
    assert "its child" in _refusal(ends)
