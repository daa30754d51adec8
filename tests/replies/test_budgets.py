"""Limits of a whole run: what is spent, what stops it, and who may let it go on."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from agentcore.budgets import Budget
from agentcore.ledger import Price
from agentcore.lifecycle import RunState
from runs import driver, services
from runs.models import Run
from runs.pausing import NewLimits
from runs.steps.base import Call
from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.replies.desk import Desk, answer, said
from tests.replies.tools_of_the_desk import READ

pytestmark = pytest.mark.django_db(transaction=True)

USAGE = {"input_tokens": 400, "output_tokens": 50}


def ask(*orders: str, usage: Any = USAGE) -> Answer:
    calls = [
        call(f"c{n}", "get_order", arguments=json.dumps({"order_id": order}))
        for n, order in enumerate(orders)
    ]
    return answer(reply(*calls, usage=usage))


def many(count: int, **more: Any) -> list[Answer]:
    return [ask(f"ord_{n}", **more) for n in range(count)]


def priced(*prices: Price) -> None:
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(update={"prices": prices})


def ended(desk: Desk, run: Run) -> tuple[str, str | None]:
    desk.drive(run)
    desk.check(run)
    return run.state, run.stop_reason


STOPPED = (RunState.INCOMPLETE, "BUDGET")


# --- counts ------------------------------------------------------------------------------------


@pytest.mark.requirement("R4", "R67", "R70")
@pytest.mark.parametrize(
    ("budget", "requests", "reason"),
    [
        (Budget(turns=3), 3, "3 turns used, 3 are allowed"),
        (Budget(actions=2), 3, "3 actions proposed, 2 are allowed"),
        (Budget(tool_calls={"desk.get_order": 2}), 3, "3 calls of desk.get_order"),
    ],
)
def test_a_count_that_is_used_up_ends_the_run(
    desk: Desk, budget: Budget, requests: int, reason: str
) -> None:
    desk.script(*many(6), said())
    run = desk.start(budget=budget)
    assert ended(desk, run) == STOPPED
    assert len(desk.requests()) == requests
    assert reason in run.reason
    assert run.failure is None, "a limit is no failure"


@pytest.mark.requirement("R67")
def test_failed_calls_have_a_limit_of_their_own(desk: Desk) -> None:
    bad = [ask(), answer(reply(call("c", "nothing", arguments="{}")))]
    desk.script(*many(1), bad[1], *many(1), bad[1], said())
    run = desk.start(budget=Budget(failures=1))
    assert ended(desk, run) == STOPPED
    assert "2 calls failed, 1 are allowed" in run.reason


@pytest.mark.requirement("R67")
@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(actions=3), "4 actions proposed, 3 are allowed"),
        (Budget(parallel=3), "4 calls in one reply, 3 are allowed"),
        (Budget(tool_calls={"desk.get_order": 3}), "4 calls of desk.get_order, 3 are allowed"),
    ],
)
def test_more_calls_than_are_allowed_run_not_at_all(
    desk: Desk, budget: Budget, reason: str
) -> None:
    desk.script(ask("a", "b", "c", "d"), said())
    run = desk.start(budget=budget)
    assert ended(desk, run) == STOPPED
    assert reason in run.reason
    assert READ == []
    assert {action.state for action in desk.actions(run)} == {"VOIDED"}


def test_exactly_the_actions_that_are_allowed_may_be_used_and_answered(desk: Desk) -> None:
    desk.script(ask("a", "b"), said())
    run = desk.start(budget=Budget(actions=2))
    assert ended(desk, run) == (RunState.COMPLETED, None)


# --- tokens and money --------------------------------------------------------------------------


@pytest.mark.requirement("R67", "R68")
def test_tokens_are_reserved_before_and_settled_after_each_call(desk: Desk) -> None:
    desk.script(*many(2), said())
    run = desk.start(budget=Budget(tokens=30_000))
    assert ended(desk, run) == (RunState.COMPLETED, None)
    entries = [line.entry for line in desk.ledger(run)]
    assert sorted(entries) == ["RESERVE"] * 3 + ["SETTLE"] * 3
    assert run.tokens_held == 0
    asked = [request["max_output_tokens"] for request in desk.requests()]
    assert all(16 <= most <= 16_384 for most in asked), "the answer is limited by what is left"


@pytest.mark.requirement("R67", "R70")
def test_a_token_budget_stops_before_the_call_that_would_exceed_it(desk: Desk) -> None:
    desk.script(*many(11, usage={"input_tokens": 700, "output_tokens": 300}))
    run = desk.start(budget=Budget(tokens=4000))
    assert ended(desk, run) == STOPPED
    assert run.tokens_used <= 4000
    assert "tokens" in run.reason


@pytest.mark.requirement("R67")
def test_a_provider_that_counts_more_than_was_reserved_overspends_one_call(desk: Desk) -> None:
    desk.script(*many(11, usage={"input_tokens": 9000, "output_tokens": 9000}))
    run = desk.start(budget=Budget(tokens=10_000))
    assert ended(desk, run) == STOPPED
    assert len(desk.requests()) == 1


@pytest.mark.requirement("R67", "R68")
def test_money_follows_the_price_of_the_day(desk: Desk) -> None:
    old = Price("gpt-test", date(2020, 1, 1), 10**9, 10**9, 10**9)
    priced(old, Price("gpt-test", date(2021, 1, 1), 2_000_000, 1_000_000, 4_000_000))
    desk.script(*many(1), said())
    run = desk.start(budget=Budget(cost="1.00 USD"), model="gpt-test")
    assert ended(desk, run) == (RunState.COMPLETED, None)
    first = next(line for line in desk.ledger(run) if line.entry == "SETTLE")
    assert first.cost == 400 * 2 + 50 * 4
    assert first.price_from == date(2021, 1, 1)
    assert 0 < run.cost_used < 1_000_000


@pytest.mark.requirement("R67", "R70")
def test_a_money_budget_stops_before_it_is_exceeded(desk: Desk) -> None:
    priced(Price("gpt-test", date(2021, 1, 1), 1_000_000, 1_000_000, 1_000_000))
    desk.script(*many(11, usage={"input_tokens": 500, "output_tokens": 200}))
    run = desk.start(budget=Budget(cost="0.003 USD"), model="gpt-test")
    assert ended(desk, run) == STOPPED
    assert 0 < run.cost_used <= 3000
    assert "micro-dollars" in run.reason


def test_a_money_limit_on_a_model_without_a_price_asks_nobody(desk: Desk) -> None:
    desk.script(said())
    run = desk.start(budget=Budget(cost="1.00 USD"), model="unheard-of")
    assert ended(desk, run) == (RunState.FAILED, "RUNTIME_ERROR")
    assert desk.requests() == []
    assert run.failure["code"] == "no_price"


@pytest.mark.requirement("R68")
def test_lost_and_failed_calls_use_up_the_budget_too(desk: Desk) -> None:
    desk.script(answer("", mode="reset"))
    run = desk.start(budget=Budget(tokens=20_000))
    assert ended(desk, run) == STOPPED
    assert run.tokens_used <= 20_000
    assert all(line.estimated for line in desk.ledger(run))


def test_a_call_that_the_provider_refused_costs_nothing(desk: Desk) -> None:
    desk.script(answer('{"error":{"code":"rate_limit_exceeded"}}', status=429), said())
    run = desk.start()
    ended(desk, run)
    settled = [line for line in desk.ledger(run) if line.entry == "SETTLE"]
    assert settled[0].input_tokens == settled[0].output_tokens == 0


# --- crashes -----------------------------------------------------------------------------------


@pytest.mark.requirement("R68", "R17")
def test_a_late_reply_corrects_the_estimate_and_makes_no_action(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker hangs in its call; another takes over, asks again and ends the run."""
    desk.script(ask("late", usage={"input_tokens": 7, "output_tokens": 2}), said("Done here."))
    run = desk.start()
    real = driver.perform
    calls = []

    def hangs(request: Call) -> Any:
        results = real(request)
        calls.append(request)
        if len(calls) == 1:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE runs_run SET call_deadline_at = 'epoch', wake_at = 'epoch'")
            desk.drive(run)
            assert run.state == RunState.COMPLETED
        return results

    monkeypatch.setattr(driver, "perform", hangs)
    driver.drive(run_id=run.id, revision=None, inline=frozenset(driver.STEPS))
    first, second = desk.attempts(run)
    assert first.late
    assert first.lost_at
    assert not second.late
    lines = {(line.attempt_id, line.entry): line for line in desk.ledger(run)}
    estimate, correction = lines[first.id, "SETTLE"], lines[first.id, "CORRECT"]
    assert estimate.estimated
    assert estimate.input_tokens + correction.input_tokens == 7
    assert estimate.output_tokens + correction.output_tokens == 2
    assert desk.actions(run) == []
    desk.check_account(run)


@pytest.mark.requirement("R68", "R16")
def test_a_process_that_dies_in_its_call_is_charged_its_reservation_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.script(ask("a"), said())
    run = desk.start()

    def dies(_: Call) -> Any:
        raise SystemExit

    real = driver.perform
    monkeypatch.setattr(driver, "perform", dies)
    with pytest.raises(SystemExit):
        driver.drive(run_id=run.id, revision=None, inline=frozenset(driver.STEPS))
    monkeypatch.setattr(driver, "perform", real)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET call_deadline_at = 'epoch', wake_at = 'epoch'")
    desk.drive(run)
    desk.check(run)
    assert run.state == RunState.COMPLETED
    first = desk.attempts(run)[0]
    lines = [line for line in desk.ledger(run) if line.attempt_id == first.id]
    reserve, settled = sorted(lines, key=lambda line: line.entry)
    assert settled.estimated
    assert (settled.input_tokens, settled.output_tokens) == (
        reserve.input_tokens,
        reserve.output_tokens,
    )


# --- what follows ------------------------------------------------------------------------------


@pytest.mark.requirement("R70")
def test_an_operator_extends_the_budget_of_a_suspended_run(desk: Desk) -> None:
    desk.script(*many(3), said())
    run = desk.start(budget=Budget(turns=2, on_exhausted="suspend"))
    desk.drive(run)
    assert (run.state, run.stop_reason) == (RunState.SUSPENDED, None)
    assert "2 turns used, 2 are allowed" in run.reason
    services.resume_run(run_id=run.id, actor="user:grace", limits=NewLimits(max_turns=9))
    assert ended(desk, run) == (RunState.COMPLETED, None)
    assert len(READ) == 3, "nothing was done twice"
    resumed = run.events.get(type="run.resumed", actor="user:grace")
    assert resumed.data["limits"] == {"max_turns": 9}


def test_a_run_that_is_resumed_without_more_budget_is_suspended_again(desk: Desk) -> None:
    desk.script(*many(3), said())
    run = desk.start(budget=Budget(turns=2, on_exhausted="suspend"))
    desk.drive(run)
    services.resume_run(run_id=run.id, actor="user:grace")
    desk.drive(run)
    assert run.state == RunState.SUSPENDED
    assert len(desk.requests()) == 2


@pytest.mark.requirement("R70")
def test_one_turn_set_aside_tells_how_far_it_came(desk: Desk) -> None:
    desk.script(*many(2), said("Two orders were read. Order 3 is open."))
    run = desk.start(budget=Budget(turns=3, diagnose=True))
    assert ended(desk, run) == STOPPED
    last = desk.requests()[-1]
    assert last["tools"] == []
    assert "2 turns used, 2 are allowed" in last["input"][-1]["content"]
    assert [turn.decision for turn in desk.turns(run)] == ["TOOL_CALLS", "TOOL_CALLS", "CLOSING"]
    assert desk.turns(run)[-1].text == "Two orders were read. Order 3 is open."


@pytest.mark.requirement("R70")
@pytest.mark.parametrize("last", [ask("ord_9"), answer("", status=500), answer(reply())])
def test_whatever_the_model_does_with_its_last_turn_the_run_ends(desk: Desk, last: Answer) -> None:
    desk.script(*many(2), last, *many(9))
    run = desk.start(budget=Budget(turns=3, diagnose=True))
    assert ended(desk, run) == STOPPED
    assert len(desk.requests()) == 3
    assert len(READ) == 2, "what it calls in its last turn is not called"


@pytest.mark.requirement("R71")
def test_a_used_up_budget_does_not_hide_a_write_of_unknown_fate(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"order_id": "ord_1001", "amount_cents": 500, "reason": None}
    refund = call("c1", "refund_order", arguments=json.dumps(arguments))
    desk.script(answer(reply(refund)), said())
    monkeypatch.setattr("tests.replies.tools_of_the_desk.MADE", _Raising())
    run = desk.start(budget=Budget(turns=1))
    desk.drive(run)
    assert run.state == RunState.RECONCILING
    assert run.stop_reason is None
    assert [action.state for action in desk.actions(run)] == ["UNKNOWN"]


class _Raising(list[Any]):
    def append(self, row: Any) -> None:
        raise TimeoutError("no answer")


@pytest.mark.requirement("R67", "R70")
def test_a_reply_beyond_the_actions_waits_for_a_person_who_may_allow_more(desk: Desk) -> None:
    desk.script(ask("a", "b"), ask("c"), said())
    run = desk.start(budget=Budget(actions=1, on_exhausted="suspend"))
    desk.drive(run)
    assert (run.state, run.stop_reason, READ) == (RunState.SUSPENDED, None, [])
    services.resume_run(run_id=run.id, actor="user:grace", limits=NewLimits(max_actions=3))
    assert ended(desk, run) == (RunState.COMPLETED, None)
    assert len(READ) == 1, "what was not run stays so; the model was told and asked anew"
    told = json.loads(desk.requests()[1]["input"][3]["output"])
    assert told["status"] == "voided"
    assert told["data"] == {"reason": "BUDGET", "detail": "2 actions proposed, 1 are allowed"}


# --- progress ----------------------------------------------------------------------------------


@pytest.mark.requirement("R72")
def test_a_loop_is_cut_after_two_repeats(desk: Desk) -> None:
    desk.script(ask("ord_1"))
    run = desk.start()
    assert ended(desk, run) == (RunState.INCOMPLETE, "NO_PROGRESS")
    assert len(READ) == 3
    assert "the same call 3 times" in run.reason


@pytest.mark.requirement("R72")
def test_back_and_forth_is_cut(desk: Desk) -> None:
    desk.script(*[ask("ord_1"), ask("ord_2")] * 5)
    run = desk.start()
    assert ended(desk, run) == (RunState.INCOMPLETE, "NO_PROGRESS")
    assert len(READ) == 4
    assert "back and forth" in run.reason


@pytest.mark.requirement("R73")
def test_a_tool_that_is_declared_as_polling_is_not_cut(desk: Desk) -> None:
    from dataclasses import replace

    from tools.spec import Tool

    spec = replace(desk.tools["get_order"].spec, polling=True)
    desk.tools["get_order"] = Tool(spec)
    desk.script(*[ask("ord_1")] * 8, said())
    run = desk.start()
    assert ended(desk, run) == (RunState.COMPLETED, None)
    assert len(READ) == 8


def test_a_person_lets_a_run_go_on_that_stood_still(desk: Desk) -> None:
    desk.script(*[ask("ord_1")] * 4, said())
    run = desk.start(budget=Budget(on_exhausted="suspend"))
    desk.drive(run)
    assert run.state == RunState.SUSPENDED
    services.resume_run(run_id=run.id, actor="user:grace", reason="the other desk was slow")
    assert ended(desk, run) == (RunState.COMPLETED, None)


def test_the_model_is_told_what_is_left(desk: Desk) -> None:
    desk.script(*many(1), answer(reply(message("That is all."))))
    run = desk.start(budget=Budget(turns=5, actions=4, tokens=50_000))
    ended(desk, run)
    left = [json.loads(r["input"][-1]["content"].splitlines()[1]) for r in desk.requests()]
    assert [(s["turns_left"], s["actions_left"]) for s in left] == [(5, 4), (4, 3)]
    assert left[0]["tokens_left"] - left[1]["tokens_left"] == 450
