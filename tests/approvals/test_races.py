"""Two people at once, on real connections: one decision stands, and it is whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections, transaction

from agentcore.lifecycle import ActionState
from approvals import records
from approvals.errors import DecisionError
from approvals.models import ApprovalVote
from runs.approving import Decision
from runs.models import Event
from runs.services import decide_approval
from runs.transitions import locked_run
from tests.factories import Waiting, decider, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls: Callable[[], Decision]) -> list[Decision | DecisionError]:
    """Every call in a thread of its own, all starting together."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Decision]) -> Decision | DecisionError:
        try:
            start.wait(10)
            return call()
        except DecisionError as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def decide(waiting: Waiting, name: str, choice: str) -> Callable[[], Decision]:
    return lambda: decide_approval(
        approval_id=waiting.approval.pk,
        params_hash=waiting.approval.params_hash,
        decision=choice,  # type: ignore[arg-type]
        decider=decider(name),
        reason="because",
    )


def split(results: list[Decision | DecisionError]) -> tuple[list[Decision], list[DecisionError]]:
    done = [result for result in results if isinstance(result, Decision)]
    return done, [result for result in results if isinstance(result, DecisionError)]


@pytest.mark.requirement("R65")
def test_two_people_approve_at_once() -> None:
    waiting = make_waiting()
    done, refused = split(
        at_once(decide(waiting, "user:grace", "APPROVE"), decide(waiting, "user:linus", "APPROVE"))
    )
    assert (len(done), [error.code for error in refused]) == (1, ["already_decided"])
    assert ApprovalVote.objects.count() == 1
    assert Event.objects.filter(run=waiting.run, data__has_key="votes").count() == 1
    assert waiting.reload().action.state == ActionState.READY


def test_approve_and_reject_at_once() -> None:
    waiting = make_waiting()
    done, refused = split(
        at_once(decide(waiting, "user:grace", "APPROVE"), decide(waiting, "user:linus", "REJECT"))
    )
    assert (len(done), len(refused)) == (1, 1)
    vote = ApprovalVote.objects.get()
    waiting.reload()
    ends = {"APPROVE": ("APPROVED", "READY"), "REJECT": ("REJECTED", "REJECTED")}
    assert (waiting.approval.state, waiting.action.state) == ends[vote.decision]


@pytest.mark.requirement("R65")
def test_a_double_click_is_one_vote() -> None:
    waiting = make_waiting()
    click = decide(waiting, "user:grace", "APPROVE")
    done, refused = split(at_once(click, click))
    assert refused == []
    assert sorted(decision.already for decision in done) == [False, True]
    assert ApprovalVote.objects.count() == 1


def test_two_of_two_at_once() -> None:
    waiting = make_waiting(required_count=2)
    done, refused = split(
        at_once(decide(waiting, "user:grace", "APPROVE"), decide(waiting, "user:linus", "APPROVE"))
    )
    assert refused == []
    assert sorted(decision.votes for decision in done) == [1, 2]
    assert waiting.reload().action.state == ActionState.READY


def test_a_decision_waits_for_whoever_holds_the_run_and_then_looks_again() -> None:
    """The approval is voided by the holder of the run lock; the decision that waited is refused."""
    waiting = make_waiting()
    voided = threading.Event()

    def hold_and_void() -> None:
        try:
            with locked_run(waiting.run.pk, actor="sweep", event="run.advanced") as draft:
                voided.set()
                _until_somebody_waits_for(connection.cursor)
                records.void([waiting.approval.pk])
                draft.move_action(waiting.action, ActionState.VOIDED)
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold_and_void)
    holder.start()
    assert voided.wait(10)
    (result,) = at_once(decide(waiting, "user:grace", "APPROVE"))
    holder.join(10)
    assert isinstance(result, DecisionError)
    assert result.code == "approval_stale"
    assert ApprovalVote.objects.count() == 0
    assert waiting.reload().action.state == ActionState.VOIDED


def _until_somebody_waits_for(cursor) -> None:
    """Return when another session is blocked by this one (a condition, not a time)."""
    assert transaction.get_connection().in_atomic_block
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"""
    for _ in range(100_000):
        with cursor() as open_cursor:
            open_cursor.execute(query)
            if open_cursor.fetchone()[0]:
                return
    raise AssertionError("nobody came to wait for the run")
