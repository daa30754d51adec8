"""`services.start_run`: one transaction, one run, whatever happens around it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from agentcore import failpoints
from runs import once as once_module
from runs import services
from runs.access_models import IdempotencyRecord
from runs.models import Event, Run
from runs.refusals import Refused
from runs.selectors import begun, database_clock
from runs.starting import BudgetRequest
from tests.runs.api_support import caller, declare_agent, request_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _agent() -> None:
    declare_agent()


def _once(key: str = "k1", digest: str = "d" * 64, **fields: Any) -> services.Once:
    values = {
        "principal": "default/token:desk",
        "method": "POST",
        "route": "/api/v1/runs",
        "key": key,
        "body_sha256": digest,
        "answer": lambda run: (201, {"id": run.id.hex}),
    }
    return services.Once(**{**values, **fields})


def _start_once(once: services.Once | None = None) -> services.Answer:
    return services.start_run_once(caller=caller(), request=request_for(), once=once or _once())


@pytest.mark.requirement("R1")
def test_a_run_is_its_row_and_event_one() -> None:
    before = database_clock()
    run = services.start_run(
        caller=caller(), request=request_for(metadata={"order": "77"}, dedupe_key="order-77")
    )
    run.refresh_from_db()
    assert run.id.version == 7
    assert (run.state, run.revision, run.event_seq, run.turn) == ("QUEUED", 1, 1, 0)
    assert (run.tenant, run.principal, run.scopes) == ("default", "token:desk", ["billing.refund"])
    assert run.input == {"order_id": "A-1", "amount": "0.00", "note": None, "weight": None}
    assert (run.max_turns, run.max_actions) == (6, 4)
    assert run.deadline_at == run.created_at + timedelta(minutes=10)
    assert before <= run.created_at == run.wake_at <= database_clock()
    event = Event.objects.get(run=run)
    assert (event.seq, event.type, event.actor) == (1, "run.created", "token:desk")
    assert (event.revision_before, event.revision_after) == (0, 1)
    assert event.hash == run.event_head
    assert [move["to"] for move in event.data["transitions"]] == ["QUEUED"]


def test_the_budget_may_only_fall() -> None:
    soon = database_clock() + timedelta(minutes=1)
    asked = BudgetRequest(max_turns=2, max_actions=0, deadline_at=soon)
    run = services.start_run(caller=caller(), request=request_for(budget=asked))
    assert (run.max_turns, run.max_actions, run.deadline_at) == (2, 0, soon)


@pytest.mark.parametrize(
    ("budget", "pointer"),
    [
        ({"max_turns": 7}, "/budget/max_turns"),
        ({"max_actions": 5}, "/budget/max_actions"),
        ({"minutes": 11}, "/budget/deadline_at"),
        ({"minutes": -1}, "/budget/deadline_at"),
    ],
)
def test_a_budget_that_rises_is_refused(budget: dict[str, int], pointer: str) -> None:
    minutes = budget.pop("minutes", None)
    moment = database_clock() + timedelta(minutes=minutes) if minutes else None
    asked = BudgetRequest(**budget, deadline_at=moment)
    with pytest.raises(Refused) as refused:
        services.start_run(caller=caller(), request=request_for(budget=asked))
    assert [error.pointer for error in refused.value.errors] == [pointer]
    assert not Run.objects.exists()


@pytest.mark.requirement("R65")
def test_a_dedupe_key_has_one_open_run_in_a_tenant() -> None:
    run = services.start_run(caller=caller(), request=request_for(dedupe_key="o"))
    with pytest.raises(Refused) as refused:
        services.start_run(caller=caller(), request=request_for(dedupe_key="o"))
    assert refused.value.code == "dedupe_open_run"
    assert refused.value.context == {"run": f"run_{run.id.hex}"}
    services.start_run(caller=caller(tenant="other"), request=request_for(dedupe_key="o"))
    services.start_run(caller=caller(), request=request_for())
    services.start_run(caller=caller(), request=request_for())
    assert Run.objects.count() == 4


@pytest.mark.requirement("R65")
def test_the_same_key_gives_the_same_answer_and_no_second_run() -> None:
    first = _start_once()
    again = _start_once()
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.status, again.body, again.run_id) == (first.status, first.body, first.run_id)
    assert Run.objects.count() == Event.objects.count() == IdempotencyRecord.objects.count() == 1


def test_a_key_belongs_to_one_caller_and_one_route() -> None:
    _start_once()
    for other in ({"principal": "other/token:desk"}, {"route": "/api/v1/else"}, {"key": "k2"}):
        assert not _start_once(_once(**other)).replayed
    assert Run.objects.count() == 4


def test_the_same_key_with_another_body_is_refused() -> None:
    _start_once()
    with pytest.raises(Refused) as refused:
        _start_once(_once(digest="e" * 64))
    assert refused.value.code == "idempotency_key_reused"
    assert Run.objects.count() == 1


@pytest.mark.requirement("R65")
def test_while_a_request_is_being_answered_its_key_is_refused_at_once() -> None:
    """The first request stands inside its transaction; the second does not wait for it."""
    inside, leave = threading.Event(), threading.Event()

    def slow(run: Run) -> tuple[int, dict[str, str]]:
        inside.set()
        assert leave.wait(10)
        return 201, {"id": run.id.hex}

    def first() -> services.Answer:
        try:
            return _start_once(_once(answer=slow))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(first)
        assert inside.wait(10)
        try:
            with pytest.raises(Refused) as refused:
                _start_once()
        finally:
            leave.set()
        assert refused.value.code == "idempotency_in_progress"
        assert refused.value.retry_after == 1
        assert not answer.result(10).replayed
    assert _start_once().replayed
    assert Run.objects.count() == 1


@pytest.mark.requirement("R65")
@pytest.mark.parametrize(
    ("point", "committed"), [("start_run.before_commit", 0), ("start_run.after_commit", 1)]
)
def test_a_failure_beside_the_commit_leaves_all_or_nothing(
    monkeypatch: pytest.MonkeyPatch, point: str, committed: int
) -> None:
    """After the commit the answer is lost; the same key later gets the run that was made."""
    monkeypatch.setattr(failpoints, "_ARMED", {point: "raise"})
    with pytest.raises(failpoints.FailpointError):
        _start_once()
    monkeypatch.setattr(failpoints, "_ARMED", {})
    rows = (Run.objects.count(), Event.objects.count(), IdempotencyRecord.objects.count())
    assert rows == (committed,) * 3
    assert _start_once().replayed is bool(committed)
    assert Run.objects.count() == 1


@pytest.mark.requirement("R65")
def test_the_unique_index_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the advisory lock two racing requests still make one run."""
    monkeypatch.setattr(once_module, "take_key", lambda once: begun())
    barrier = threading.Barrier(2)

    def answer(run: Run) -> tuple[int, dict[str, str]]:
        barrier.wait(10)  # both have looked for the key, and neither has stored it
        return 201, {"id": run.id.hex}

    def start(_: int) -> services.Answer:
        try:
            return _start_once(_once(answer=answer))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(start, range(2)))
    assert sorted(answer.replayed for answer in answers) == [False, True]
    assert answers[0].body == answers[1].body
    assert Run.objects.count() == 1
