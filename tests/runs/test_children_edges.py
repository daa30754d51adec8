"""Where a parent and its child meet at an awkward moment, and each must still be told the truth."""

from __future__ import annotations

import copy

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from agentcore.budgets import Budget
from agentcore.lifecycle import RunState
from agentcore.values import Effect
from runs import isolation, poison
from runs.agents import AgentTool, agent
from runs.cancelling import cancel_run
from runs.console.home import spend
from runs.models import Run
from runs.selectors import database_clock
from runs.services import NewLimits, pause_run, resume_run
from runs.transitions import Draft, finish, lock_run
from runs.worker import WorkerIdentity
from tests.runs import acting
from tests.runs.acting import Downstream, action, read_tool, state_of
from tests.runs.families import ASK, SCOPE, Family, child_of, drive_to, family, pays, says
from tests.runs.rows import unguarded

CAREFUL = Budget(turns=10, actions=12)


def _asked(made: Family, **more: object) -> tuple[object, Run]:
    """A run that has asked its child, and the child."""
    run_id = made.run(**more)
    says(run_id, ASK)
    drive_to(run_id)
    return run_id, child_of(run_id)


def _careful(made: Family) -> None:
    """The agent that asks stops after a failure."""
    helper = AgentTool(agent="helper", effect=Effect.WRITE, scopes=(SCOPE,))
    made.boss = agent(
        name="careful",
        version="1",
        model="m",
        instructions="x",
        tools=["shop.pay", helper],
        stop_on_failure=True,
        budget=CAREFUL,
    )


@pytest.mark.requirement("R79")
def test_a_parent_may_say_what_its_child_was_told_is_done_already(shop: Downstream) -> None:
    with family(shop, claims=("paid",)) as made:
        first, child = _asked(made)
        says(child.id, pays("a"))
        drive_to(child.id)
        says(child.id, text="I paid it.")
        assert drive_to(child.id) == "COMPLETED"
        cancel_run(run_id=first, actor="user:x")
        drive_to(first)
        again, second = _asked(made, retry_of_id=first)
        says(second.id, pays("a"))
        drive_to(second.id)
        assert [(r.state, r.reason) for r in acting.actions(second.id)] == [("VOIDED", "DUPLICATE")]
        says(second.id, text="I paid it.")
        assert drive_to(second.id) == "COMPLETED"
        drive_to(again)
        says(again, text="I paid it.")
        assert drive_to(again) == "COMPLETED"


@pytest.mark.requirement("R79")
def test_a_parent_may_say_what_its_child_has_read(shop: Downstream) -> None:
    read_tool(lambda: {"status": "paid"})
    with family(shop, tools=("shop.look",), claims=("paid",)) as made:
        run_id, child = _asked(made)
        says(child.id, ("shop__look", {"what": "a"}))
        drive_to(child.id)
        says(child.id, text="It was paid on Monday.")
        assert drive_to(child.id) == "COMPLETED"
        drive_to(run_id)
        says(run_id, text="It was paid on Monday.")
        assert drive_to(run_id) == "COMPLETED"


def test_what_is_known_of_a_child_stays_when_its_parent_cannot_be_told(shop: Downstream) -> None:
    """Else the reply in hand would be compared with a revision that was rolled back, and lost."""
    with family(shop) as made:
        run_id, child = _asked(made)
        names = ("dbname", "user", "password", "host", "port")
        ours = {k: v for k, v in connection.get_connection_params().items() if k in names}
        with psycopg.connect(**ours) as other, transaction.atomic():
            held = "SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE"
            other.execute(held, [run_id])
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '300ms'")
            row, now = lock_run(child.id)
            before, seen = (row.revision, row.event_seq), copy.copy(row)
            draft = Draft(run=row, now=now)
            draft.set_run(stop_reason="CANCEL", reason="x")
            draft.move_run(RunState.CANCELLING)
            draft.move_run(RunState.CANCELLED)
            with pytest.raises(OperationalError), transaction.atomic():
                finish(seen, draft, actor="test")
            assert (seen.revision, seen.event_seq) == before


@pytest.mark.requirement("R69")
def test_a_limit_lowered_below_what_was_used_leaves_nothing_to_share(shop: Downstream) -> None:
    with family(shop) as made:
        run_id = made.run()
        says(run_id, ASK)
        pause_run(run_id=run_id, actor="user:o")
        resume_run(run_id=run_id, actor="user:o", limits=NewLimits(max_actions=0))
        drive_to(run_id)
        assert action(run_id).state in ("RUNNING", "DENIED")


@pytest.mark.requirement("R69")
def test_a_part_stays_with_the_parent_whatever_is_asked_for(shop: Downstream) -> None:
    budget, own = Budget(turns=10, actions=12, tokens=20_000), Budget(turns=6, actions=6)
    with family(shop, budget=budget, own=own, call={"tokens": 50_000}) as made:
        run_id = made.run()
        says(run_id, ASK, tokens=2000)
        drive_to(run_id)
        run = Run.objects.get(pk=run_id)
        assert run.tokens_used + run.tokens_held < 20_000


@pytest.mark.requirement("R71")
def test_a_stopping_child_that_was_suspended_can_be_let_go_to_its_end(shop: Downstream) -> None:
    with family(shop) as made:
        run_id, child = _asked(made)
        shop.behaves = ["dropped"]
        says(child.id, pays("a"))
        drive_to(child.id)
        spent = isolation.spent_at()
        with unguarded():
            late = {"stop_reason": "DEADLINE", "reason": "late", "claims": spent}
            Run.objects.filter(pk=child.id).update(**late)
        assert poison.suspend(child.id, worker=WorkerIdentity(frozenset()))
        cancel_run(run_id=run_id, actor="user:o")
        assert drive_to(run_id) == "CANCELLING"
        resume_run(run_id=child.id, actor="user:o")
        drive_to(child.id)
        assert state_of(child.id) != "SUSPENDED"


@pytest.mark.parametrize("ends", ["failed", "done"])
def test_a_write_waits_for_what_a_call_before_it_comes_to(shop: Downstream, ends: str) -> None:
    """Where an agent stops after a failure, also for the call of another agent."""
    with family(shop) as made:
        _careful(made)
        run_id = made.run()
        says(run_id, ASK, pays("a"))
        drive_to(run_id)
        child = child_of(run_id)
        assert shop.effects == []
        if ends == "failed":
            cancel_run(run_id=child.id, actor="user:o")
        else:
            says(child.id, text="fine")
            drive_to(child.id)
        drive_to(run_id)
        assert [what for _, what in shop.effects] == ([] if ends == "failed" else ["a"])


def test_a_cancel_names_what_a_child_has_in_flight(shop: Downstream) -> None:
    with family(shop) as made:
        run_id, child = _asked(made)
        shop.behaves = ["dropped"]
        says(child.id, pays("a"))
        drive_to(child.id)
        answer = cancel_run(run_id=run_id, actor="user:o")
        assert [row.run_id for row in answer.in_flight] == [child.id]


def test_the_money_of_a_child_is_counted_once(shop: Downstream) -> None:
    with family(shop) as made:
        run_id, child = _asked(made)
        with unguarded():
            Run.objects.filter(pk=child.id).update(cost_used=500)
            Run.objects.filter(pk=run_id).update(cost_used=100)
        says(child.id, text="done")
        drive_to(child.id)
        drive_to(run_id)
        assert Run.objects.get(pk=run_id).cost_used == 600
        assert {row.agent: row.used for row in spend(database_clock())} == {
            "boss": 100,
            "helper": 500,
        }
