"""The stuck board: each cause is found, said in words, and offers one safe action."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from runs import stuck
from runs.models import Event, Run
from runs.selectors import database_clock
from tests.console.dom import Page
from tests.console.world import live_worker
from tests.factories import force_state, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)


def causes() -> dict[str, set[UUID]]:
    """The runs on the board, by cause."""
    return {
        group.cause.name: {run.run_id for run in group.runs}
        for group in stuck.board().groups
        if group.runs
    }


@pytest.fixture
def client() -> Client:
    user = make_user("olga")
    user.user_permissions.add(*Permission.objects.filter(codename__in=["pause_run", "cancel_run"]))
    client = Client()
    client.force_login(user)
    return client


def lost_lease(run: Run) -> None:
    """A run whose worker is gone; it was claimed once."""
    past = database_clock() - timedelta(minutes=2)
    force_state(
        run,
        state="CALLING_MODEL",
        lease_worker=uuid4(),
        claim_token=uuid4(),
        call_deadline_at=past,
        claims=1,
        fence=3,
        wake_at=past,
    )


def test_nothing_stands_still() -> None:
    live_worker()
    make_waiting()
    board = stuck.board()
    assert (causes(), list(board.system)) == ({}, [])


def test_each_cause_is_found() -> None:
    live_worker(queues=("compile", "model", "tools"))
    past = database_clock() - timedelta(minutes=5)
    runs = {name: make_run() for name in ("poison", "no_worker", "queued", "model_retry")}
    force_state(runs["poison"], claims=3, wake_at=past)
    force_state(runs["no_worker"], state="OBSERVING", wake_at=past)
    force_state(runs["queued"], wake_at=past)
    later = database_clock() + timedelta(minutes=1)
    force_state(runs["model_retry"], state="RETRY_WAIT", resume_to="CALLING_MODEL", wake_at=later)
    runs["lost_lease"] = make_run()
    lost_lease(runs["lost_lease"])
    expired, unknown = make_waiting(), make_waiting()
    force_state(expired.approval, expires_at=past)
    force_state(expired.run, wake_at=past)
    force_state(unknown.action, state="UNKNOWN", idempotency_key="k" * 40, first_sent_at=past)
    force_state(unknown.run, state="RECONCILING", wake_at=later)
    expected = {name: {run.pk} for name, run in runs.items()}
    expected |= {"approval_expired": {expired.run.pk}, "unknown": {unknown.run.pk}}
    assert causes() == expected


def test_a_run_that_somebody_works_on_is_not_stuck() -> None:
    worker = live_worker()
    run = make_run()
    lost_lease(run)
    force_state(
        run, lease_worker=worker.pk, call_deadline_at=database_clock() + timedelta(minutes=1)
    )
    assert causes() == {}


def test_the_whole_system_stands_still() -> None:
    titles = [item.title for item in stuck.board().system]
    assert titles == ["No worker lives", "The sweep does not run"]
    worker = live_worker()
    worker.swept_at = database_clock() - timedelta(minutes=5)
    worker.save()
    assert [item.title for item in stuck.board().system] == ["The sweep does not run"]


def test_a_lost_lease_is_released_once(client: Client) -> None:
    live_worker()
    run = make_run()
    lost_lease(run)
    page = Page(client.get("/admin/stuck/").content.decode())
    (form,) = [form for form in page.forms if form.action.endswith(f"{run.pk}/")]
    assert "Release the lease" in form.buttons[0].text
    assert client.post(form.action, form.fields).status_code == 302
    run.refresh_from_db()
    assert (run.lease_worker, run.fence, run.claims) == (None, 4, 1)
    assert Event.objects.get(type="run.released").actor == "user:olga"
    client.post(form.action, form.fields)
    run.refresh_from_db()
    assert run.fence == 4


def test_a_message_is_sent_again_without_a_write(client: Client) -> None:
    live_worker()
    run = make_run()
    force_state(run, wake_at=database_clock() - timedelta(minutes=5))
    before = Run.objects.values().get()
    said = client.post(f"/admin/stuck/{run.pk}/", {"cause": "queued"}, follow=True)
    assert "Its message was sent again." in said.content.decode()
    assert Run.objects.values().get() == before


def test_what_kills_its_process_is_cancelled(client: Client) -> None:
    run = make_run()
    force_state(run, state="SUSPENDED", resume_to="CALLING_MODEL", reason="POISON: 5 claims")
    client.post(f"/admin/stuck/{run.pk}/", {"cause": "poison"})
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == ("CANCELLED", "CANCEL")


def test_the_cause_must_still_hold_and_the_right_too(client: Client) -> None:
    live_worker()
    run = make_run()
    said = client.post(f"/admin/stuck/{run.pk}/", {"cause": "poison"}, follow=True)
    assert "Nothing was done" in said.content.decode()
    assert client.post(f"/admin/stuck/{run.pk}/", {"cause": "unknown"}).status_code == 404
    assert client.get(f"/admin/stuck/{run.pk}/").status_code == 405
    other = Client()
    other.force_login(make_user("ada"))
    assert other.post(f"/admin/stuck/{run.pk}/", {"cause": "queued"}).status_code == 403
    run.refresh_from_db()
    assert run.ended_at is None


def test_no_worker_for_a_step_is_told_from_a_busy_one() -> None:
    live_worker(queues=("compile",))
    past = database_clock() - timedelta(minutes=5)
    served, not_served = make_run(), make_run()
    force_state(served, wake_at=past)
    force_state(not_served, state="DISPATCHING_TOOLS", wake_at=past)
    assert causes() == {"queued": {served.pk}, "no_worker": {not_served.pk}}
