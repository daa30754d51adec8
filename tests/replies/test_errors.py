"""No usable reply: how long is waited, how often is asked, and what the operator is told."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from agentcore.lifecycle import RunState
from runs.models import Run
from runs.selectors import database_clock
from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.replies.desk import KEY, Desk, answer, of_record, said
from tests.replies.tools_of_the_desk import READ

pytestmark = pytest.mark.django_db(transaction=True)


def limited(seconds: int | str) -> Answer:
    body = json.dumps({"error": {"message": "slow", "code": "rate_limit_exceeded"}})
    return answer(body, status=429, retry_after=str(seconds))


def waiting(desk: Desk, first: Answer) -> tuple[Run, timedelta]:
    """A run whose first call failed, at rest; how long it waits."""
    desk.script(first, said())
    run = desk.start()
    desk.drive(run, hurry=False)
    assert (run.state, run.resume_to) == (RunState.RETRY_WAIT, RunState.CALLING_MODEL)
    assert run.lease_worker is None, "a waiting run occupies no worker"
    return run, run.wake_at - database_clock()


@pytest.mark.parametrize("seconds", [2, 121, 3600])
def test_retry_after_is_a_timer_however_long_it_is(desk: Desk, seconds: int) -> None:
    run, wait = waiting(desk, limited(seconds))
    assert timedelta(seconds=seconds - 1) < wait < timedelta(seconds=seconds + 2)
    assert len(desk.requests()) == 1
    desk.wake(run)
    desk.drive(run)
    assert run.state == RunState.COMPLETED
    first, second = desk.requests()
    assert first == second, "the same turn is asked again"
    assert len(desk.turns(run)) == 1


def test_a_retry_after_beyond_the_deadline_ends_at_the_deadline(desk: Desk) -> None:
    run, _ = waiting(desk, limited(3600 * 40))
    assert run.wake_at == run.deadline_at


def test_runs_that_are_told_the_same_time_do_not_come_back_together(desk: Desk) -> None:
    waits = set()
    for _ in range(4):
        run, _ = waiting(desk, limited(300))
        waits.add(run.wake_at - desk.attempts(run)[0].ended_at)
    assert max(waits) - min(waits) > timedelta(milliseconds=50)


def test_waits_without_a_word_of_the_provider_double_with_jitter(desk: Desk) -> None:
    desk.script(of_record("hm-err-503-overloaded"))
    run = desk.start()
    waits = []
    for _ in range(4):
        desk.drive(run, hurry=False)
        waits.append((run.wake_at - database_clock()).total_seconds())
        desk.wake(run)
    for n, wait in enumerate(waits):
        assert 2**n * 0.4 < wait <= 2**n


@pytest.mark.requirement("R21")
def test_the_runtime_alone_counts_the_tries(desk: Desk) -> None:
    desk.script(of_record("hm-err-503-overloaded"))
    run = desk.start()
    desk.drive(run)
    assert len(desk.requests()) == len(desk.attempts(run)) == 5
    assert (run.state, run.stop_reason) == (RunState.FAILED, "MODEL_ERROR")
    assert "overloaded" in run.reason
    assert not desk.actions(run)
    desk.check(run)


@pytest.mark.requirement("R94")
def test_a_failure_names_its_layer_with_evidence(desk: Desk) -> None:
    desk.script(of_record("err-401-invalid-key"))
    run = desk.start()
    desk.drive(run)
    assert run.failure["layer"] == "model"
    assert run.failure["code"] == "invalid_api_key"
    (shown,) = run.failure["evidence"]
    assert shown["attempt"] == str(desk.attempts(run)[0].id)
    assert shown["error_class"] == "invalid_api_key"
    assert KEY not in json.dumps([run.reason, run.failure])


def test_an_invalid_call_is_answered_at_most_three_times_in_a_row(desk: Desk) -> None:
    bad = [
        answer(reply(call(f"c{n}", "get_order", arguments=f'{{"order_id":{n}}}'))) for n in range(5)
    ]
    desk.script(*bad)
    run = desk.start()
    desk.drive(run)
    assert len(desk.requests()) == 3
    assert (run.state, run.stop_reason) == (RunState.FAILED, "MODEL_ERROR")
    assert "invalid call" in run.reason
    assert run.failure["layer"] == "model"
    assert READ == []
    desk.check(run)


def test_a_good_call_in_between_begins_the_count_anew(desk: Desk) -> None:
    def ask(call_id: str, order: str) -> Answer:
        return answer(reply(call(call_id, "get_order", arguments=order)))

    good = [ask(f"g{n}", json.dumps({"order_id": f"ord_{n}"})) for n in range(3)]
    bad = [ask(f"b{n}", f'{{"order_id":{n}}}') for n in range(4)]
    desk.script(bad[0], bad[1], good[0], bad[2], good[1], bad[3], good[2], said())
    run = desk.start()
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert READ == ["get_order"] * 3


def test_invalid_replies_are_told_at_most_twice(desk: Desk) -> None:
    desk.script(of_record("hm-empty-output"))
    run = desk.start()
    desk.drive(run)
    assert len(desk.requests()) == 3
    assert (run.state, run.stop_reason) == (RunState.FAILED, "MODEL_ERROR")
    assert run.reason.startswith("3 invalid replies, last: empty_output")
    notes = [i["content"] for i in desk.requests()[-1]["input"] if i.get("role") == "developer"]
    assert sum("empty_output" in note for note in notes) == 2
    desk.check(run)


def _reads(count: int, size: int = 40) -> list[Answer]:
    return [
        answer(
            reply(
                message("x" * size),
                call(f"c{n}", "get_order", arguments=json.dumps({"order_id": f"ord_{n}"})),
            )
        )
        for n in range(count)
    ]


@pytest.mark.requirement("R25", "R63")
def test_a_request_that_is_too_long_is_compacted_once(desk: Desk) -> None:
    too_long = of_record("err-400-context-length")
    desk.script(*_reads(4, 3000), too_long, said())
    run = desk.start()
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    refused, accepted = desk.requests()[-2:]
    assert len(json.dumps(accepted)) < 0.7 * len(json.dumps(refused))
    assert [turn.decision for turn in desk.turns(run)][-2:] == ["DROPPED", "FINAL"]
    desk.check(run)


@pytest.mark.requirement("R25")
def test_a_request_that_stays_too_long_stops_the_run(desk: Desk) -> None:
    desk.script(*_reads(8, 3000), of_record("err-400-context-length"))
    run = desk.start()
    desk.drive(run)
    assert len(desk.requests()) == 10, (
        "eight reads, the long request, and once more after compaction"
    )
    assert (run.state, run.stop_reason) == (RunState.FAILED, "CONTEXT_ERROR")
    assert run.failure["layer"] == "context"
    desk.check(run)
