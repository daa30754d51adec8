"""What a run came to for the business at every end, and the output as its agent version has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from agentcore.budgets import Budget
from agentcore.lifecycle import RunState
from agentcore.values import Pending
from runs import agents, outcomes, services
from runs.models import ActionJournal, Evidence, Incident, Run
from runs.reconcile_models import Callback
from runs.services import receive_callback
from tests.agentcore.bodies import call, reply
from tests.agentcore.loopback import Answer
from tests.factories import force_state
from tests.replies.desk import Desk, answer, said
from tests.replies.tools_of_the_desk import MADE
from tests.runs.callback_support import body_of, sources
from tools import Effect, Key, ToolContext, tool

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _payments() -> Iterator[None]:
    with sources():
        yield


def refund() -> Answer:
    arguments = {"order_id": "ord_1001", "amount_cents": 500, "reason": None}
    return answer(reply(call("c1", "refund_order", arguments=json.dumps(arguments))))


def paid(desk: Desk, *orders: str, before: Any = None) -> Run:
    """A run that was answered while the bank was still at it."""

    @tool(
        effect=Effect.WRITE,
        contract=Key(retention=timedelta(days=1)),
        identity=("order_id",),
        accepted_is_done=True,
        app_label="desk",
    )
    def pay_out(ctx: ToolContext, order_id: str) -> str | Pending:
        """Pay out.

        Args:
            order_id: for which order.
        """
        return Pending("queued")

    desk.tools["pay_out"] = pay_out
    calls = [
        call(f"c{n}", "pay_out", arguments=json.dumps({"order_id": order}))
        for n, order in enumerate(orders)
    ]
    desk.script(answer(reply(*calls)), said("The money is on its way."))
    run = desk.start(tools=["pay_out"])
    desk.drive(run)
    assert (run.state, run.business_outcome) == (RunState.COMPLETED, "in_progress")
    return run


def hears(action: ActionJournal, word: str, **data: Any) -> str:
    about = {"idempotency_key": action.idempotency_key, **data}
    return receive_callback(**body_of(None, word, **about)).did


# --- the later word ----------------------------------------------------------------------------


@pytest.mark.requirement("R78", "R114")
@pytest.mark.parametrize(
    ("word", "after", "incidents"), [("succeeded", "settled", 0), ("failed", "not_done", 1)]
)
def test_the_downstreams_later_word_is_the_business_outcome(
    desk: Desk, word: str, after: str, incidents: int
) -> None:
    run = paid(desk, "ord_1001")
    (action,) = desk.actions(run)
    answered = run.output
    hears(action, word)
    run.refresh_from_db()
    assert (run.state, run.output, run.business_outcome) == ("COMPLETED", answered, after)
    action.refresh_from_db()
    assert action.state == "SUCCEEDED", "it was accepted, and that stays true"
    event = run.events.get(type="run.business_result")
    assert (event.data["before"], event.data["after"]) == ("in_progress", after)
    assert Incident.objects.filter(action=action).count() == incidents
    assert Evidence.objects.filter(action=action, source__startswith="callback:payments").exists()


@pytest.mark.requirement("R114")
def test_two_payments_are_settled_when_both_are(desk: Desk) -> None:
    run = paid(desk, "ord_1001", "ord_2002")
    first, second = desk.actions(run)
    hears(first, "succeeded")
    run.refresh_from_db()
    assert run.business_outcome == "in_progress"
    hears(second, "pending")
    run.refresh_from_db()
    assert run.business_outcome == "in_progress"
    hears(second, "succeeded")
    run.refresh_from_db()
    assert run.business_outcome == "settled"


@pytest.mark.requirement("R114")
def test_a_word_that_comes_before_the_answer_is_not_forgotten(desk: Desk) -> None:
    run = paid(desk, "ord_1001")
    (action,) = desk.actions(run)
    hears(action, "succeeded")
    force_state(run, business_outcome="")
    assert outcomes.business_outcome(view_of(run)) == "settled"


def view_of(run: Run) -> Any:
    from runs.view import load_view

    return load_view(run.id)


def test_done_under_another_reference_settles_nothing(desk: Desk) -> None:
    run = paid(desk, "ord_1001")
    (action,) = desk.actions(run)
    force_state(action, downstream_ref="pay_1")
    assert hears(action, "succeeded", reference="pay_2") == "CONTRADICTION"
    run.refresh_from_db()
    assert run.business_outcome == "in_progress"
    assert Callback.objects.get().did == "CONTRADICTION"


def test_one_source_may_say_more_than_one_thing(desk: Desk) -> None:
    desk.script(refund(), said())
    run = desk.drive(desk.start())
    (action,) = desk.actions(run)
    for outcome in ("settled", "returned"):
        outcomes.record_business_result(
            run_id=run.id,
            outcome=outcome,
            source="import:bank",
            detail=outcome,
            actor="user:grace",
            action_id=action.id,
        )
    run.refresh_from_db()
    assert run.business_outcome == "returned"
    assert run.events.filter(type="run.business_result").count() == 2


# --- every other end ---------------------------------------------------------------------------


@pytest.mark.requirement("R78")
@pytest.mark.parametrize(
    ("first", "outcome"), [(refund(), "effect_made"), (said(""), "no_effect")], ids=["made", "not"]
)
def test_a_run_that_ends_without_an_answer_says_what_was_done(
    desk: Desk, first: Answer, outcome: str
) -> None:
    desk.script(first, answer("", status=401))
    run = desk.drive(desk.start())
    assert (run.state, run.business_outcome) == (RunState.FAILED, outcome)
    assert len(MADE) == (outcome == "effect_made")


@pytest.mark.requirement("R78")
def test_a_cancelled_and_a_limited_run_say_so_too(desk: Desk) -> None:
    desk.script(refund(), refund(), said())
    run = desk.drive(desk.start(budget=Budget(turns=1)))
    assert (run.state, run.business_outcome) == (RunState.INCOMPLETE, "effect_made")
    desk.script(said())
    waiting = desk.start()
    services.cancel_run(run_id=waiting.id, actor="user:grace")
    waiting.refresh_from_db()
    assert (waiting.state, waiting.business_outcome) == (RunState.CANCELLED, "no_effect")


# --- the output as it was frozen ---------------------------------------------------------------


class Before(BaseModel):
    order: str
    count: int = 0


class After(BaseModel):
    order: int


class Checked(Before):
    @field_validator("order")
    @classmethod
    def _known(cls, order: str) -> str:
        if not order.startswith("ord_"):
            raise ValueError("an order begins with ord_")
        return order


def redeclared(desk: Desk, run: Run, output: type[BaseModel] | None) -> None:
    """The code changes while the run is under way."""
    name = desk.declared[-1]
    known = agents._AGENTS.pop(name)
    if output is not None:
        agents.agent(
            name=name, version="2", instructions="x", tools=list(known.tools), output=output
        )


@pytest.mark.requirement("R76")
@pytest.mark.parametrize("now", [After, None], ids=["declared differently", "declared no more"])
def test_the_answer_is_judged_by_the_schema_of_its_agent_version(
    desk: Desk, now: type[BaseModel] | None
) -> None:
    desk.script(said('{"order": 7}'), said('{"order": "ord_1", "count": 2}'))
    run = desk.start(output=Before)
    redeclared(desk, run, now)
    desk.drive(run)
    assert (run.state, run.output) == (RunState.COMPLETED, {"order": "ord_1", "count": 2})
    note = desk.requests()[-1]["input"][-2]["content"]
    assert "order: type string" in note
    assert "7" not in note, "a reason does not repeat what was said"


@pytest.mark.requirement("R76")
def test_while_it_is_declared_the_models_own_validators_count(desk: Desk) -> None:
    desk.script(said('{"order": "7"}'), said('{"order": "ord_7"}'))
    run = desk.drive(desk.start(output=Checked))
    assert (run.state, run.output) == (RunState.COMPLETED, {"order": "ord_7", "count": 0})
    assert "begins with ord_" in desk.requests()[-1]["input"][-2]["content"]


def test_a_run_that_answered_in_text_goes_on_doing_so(desk: Desk) -> None:
    desk.script(said("Just text."))
    run = desk.start()
    redeclared(desk, run, After)
    desk.drive(run)
    assert (run.state, run.output) == (RunState.COMPLETED, {"text": "Just text."})
