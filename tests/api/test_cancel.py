"""`POST /runs/{id}/cancel`: a command; `cancelled` is said only when nothing is in flight."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection

from agentcore.lifecycle import ActionState, RunState
from runs import services
from runs.access_models import IdempotencyRecord
from runs.models import ActionJournal, Event, Run
from runs.models import Worker as WorkerRow
from runs.selectors import database_clock
from tests.api.support import work_on
from tests.factories import TENANT, Waiting, decider, force_state, make_run, make_waiting
from tests.runs.api_support import Api, assert_problem

pytestmark = pytest.mark.django_db(transaction=True)


def _path(run: Run) -> str:
    return f"/runs/run_{run.id.hex}"


def _hold(run: Run) -> None:
    """Somebody works on the run."""
    now = database_clock()
    live = WorkerRow.objects.create(
        id=uuid4(), hostname="h", pid=1, version="t", started_at=now, beat_at=now
    )
    force_state(
        run,
        lease_worker=live.id,
        claim_token=uuid4(),
        fence=run.fence + 1,
        call_deadline_at=now + timedelta(minutes=1),
    )


def _sent(state: ActionState) -> Waiting:
    """A run of which one write is in flight."""
    waiting = make_waiting()
    force_state(waiting.run, state="RECONCILING")
    force_state(
        waiting.action,
        state=state,
        idempotency_key="k" * 60,
        generation=0,
        first_sent_at=database_clock(),
    )
    return waiting


@pytest.mark.requirement("R10")
def test_a_run_that_nobody_works_on_ends_in_the_same_transaction(api: Api) -> None:
    waiting = make_waiting()
    answer = api.post(f"{_path(waiting.run)}/cancel", {"reason": "customer called"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["status_reason"]) == ("cancelled", "customer called")
    assert body["in_flight_actions"] == []
    waiting.reload()
    states = (waiting.run.state, waiting.action.state, waiting.approval.state)
    assert states == ("CANCELLED", "VOIDED", "VOIDED")
    last = Event.objects.filter(run=waiting.run).latest("seq")
    assert (last.type, last.actor) == ("run.cancelling", "token:ops")
    assert last.data["command"] == "cancel"
    assert body["revision"] == waiting.run.revision == last.revision_after


@pytest.mark.requirement("R10")
def test_while_somebody_works_on_it_the_run_is_cancelling_until_that_one_ends_it(api: Api) -> None:
    run = make_run(tenant=TENANT)
    _hold(run)
    answer = api.post(f"{_path(run)}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == ("QUEUED", "CANCEL")
    assert api.get(_path(run)).json()["status"] == "cancelling"
    assert run.wake_at <= database_clock()


@pytest.mark.requirement("R11")
@pytest.mark.parametrize("state", [ActionState.UNKNOWN, ActionState.NEEDS_HUMAN])
def test_what_was_sent_is_listed_and_the_run_waits_for_its_fate(
    api: Api, state: ActionState
) -> None:
    waiting = _sent(state)
    answer = api.post(f"{_path(waiting.run)}/cancel")
    assert answer.status_code == 202
    (sent,) = answer.json()["in_flight_actions"]
    assert sent["id"] == f"act_{waiting.action.id.hex}"
    assert (sent["state"], sent["resource_key"]) == (state.lower(), "order:ORD-77")
    assert sent["first_sent_at"]
    work_on(waiting.run)
    assert waiting.reload().run.state != "CANCELLED"
    assert api.get(_path(waiting.run)).json()["status"] == "cancelling"


@pytest.mark.requirement("R11")
def test_cancelling_becomes_cancelled_once_the_fate_is_known(api: Api) -> None:
    waiting = _sent(ActionState.UNKNOWN)
    api.post(f"{_path(waiting.run)}/cancel")
    force_state(waiting.action, state="SUCCEEDED", ended_at=database_clock())
    work_on(waiting.run)
    assert api.get(_path(waiting.run)).json()["status"] == "cancelled"
    types = list(Event.objects.filter(run=waiting.run).values_list("type", flat=True))
    assert types.index("run.cancelling") < types.index("run.cancelled")


def test_a_suspended_run_with_something_sent_wakes_up_to_settle_it(api: Api) -> None:
    waiting = _sent(ActionState.UNKNOWN)
    force_state(waiting.run, state="SUSPENDED", resume_to="RECONCILING")
    assert api.post(f"{_path(waiting.run)}/cancel").json()["status"] == "cancelling"
    assert waiting.reload().run.state == RunState.CANCELLING


def test_a_cancelled_run_takes_no_decision(api: Api) -> None:
    waiting = make_waiting()
    api.post(f"{_path(waiting.run)}/cancel")
    with pytest.raises(services.DecisionError):
        services.decide_approval(
            approval_id=waiting.approval.pk,
            params_hash=waiting.approval.params_hash,
            decision="APPROVE",
            decider=decider(),
        )
    assert waiting.reload().action.state == "VOIDED"


def test_an_ended_run_is_answered_and_left_alone(api: Api) -> None:
    run = make_run(tenant=TENANT)
    api.post(f"{_path(run)}/cancel")
    events = Event.objects.count()
    again = api.post(f"{_path(run)}/cancel", {"reason": "other"})
    assert (again.status_code, again.json()["status_reason"]) == (200, "cancelled")
    assert Event.objects.count() == events


def test_another_stop_reason_stands(api: Api) -> None:
    waiting = _sent(ActionState.UNKNOWN)
    force_state(waiting.run, stop_reason="BUDGET")
    assert api.post(f"{_path(waiting.run)}/cancel").status_code == 202
    assert waiting.reload().run.stop_reason == "BUDGET"


@pytest.mark.requirement("R65")
def test_the_same_key_is_answered_from_the_store(api: Api) -> None:
    run = make_run(tenant=TENANT)
    _hold(run)
    path = f"{_path(run)}/cancel"
    first = api.post(path, key="k")
    again = api.post(path, key="k")
    assert again.json() == first.json()
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert_problem(api.post(path, {"reason": "x"}, key="k"), 422, "idempotency_key_reused")
    assert IdempotencyRecord.objects.get().run_id == run.id
    assert Event.objects.filter(run=run, type="run.cancelling").count() == 1


def test_if_match_asks_for_a_revision(api: Api) -> None:
    run = make_run(tenant=TENANT)
    path = f"{_path(run)}/cancel"
    tag = api.get(_path(run))["ETag"]
    for other in ('"rev-7"', "rev-1", '"x"'):
        assert_problem(api.post(path, **{"If-Match": other}), 412, "revision_mismatch")
    run.refresh_from_db()
    assert run.stop_reason is None
    assert api.post(path, **{"If-Match": tag}).status_code == 200


def test_another_tenant_finds_nothing(api: Api) -> None:
    run = make_run(tenant="other")
    assert_problem(api.post(f"{_path(run)}/cancel"), 404, "not_found")
    run.refresh_from_db()
    assert run.stop_reason is None
    assert not IdempotencyRecord.objects.exists()


def test_a_read_in_flight_is_no_effect(api: Api) -> None:
    waiting = _sent(ActionState.RUNNING)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
    ActionJournal.objects.filter(pk=waiting.action.pk).update(effect="READ")
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = origin")
    assert api.post(f"{_path(waiting.run)}/cancel").json()["in_flight_actions"] == []
