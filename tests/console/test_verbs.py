"""What a person does to a run through its page: the same use cases as REST, with a reason."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from approvals.models import Approval
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal, Event, Evidence, Run
from runs.steps.observations import render
from tests.console.dom import Form, Page
from tests.factories import Waiting, force_state, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = {"cancel": "cancel_run", "pause": "pause_run", "resume": "pause_run", "retry": "retry_run"}


def may(user: User, *names: str) -> None:
    user.user_permissions.add(*Permission.objects.filter(codename__in=names))


def browser(*names: str) -> Client:
    user = make_user("olga")
    may(user, *names)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def url_of(run: Run, tab: str = "") -> str:
    return f"/admin/runs/run/{run.pk}/change/" + (f"?tab={tab}" if tab else "")


def form(client: Client, run: Run, verb: str) -> Form:
    page = Page(client.get(url_of(run)).content.decode())
    (found,) = [f for f in page.forms if f.action.endswith(f"/do/{verb}/")]
    return found


def test_pause_then_resume(client: Client) -> None:
    client = browser("pause_run")
    run = make_waiting().run
    pause = form(client, run, "pause")
    assert pause.required == {"reason"}
    assert client.post(pause.action, {**pause.fields, "reason": "look"}).status_code == 302
    run.refresh_from_db()
    assert (run.state, run.resume_to) == ("SUSPENDED", "WAITING_APPROVAL")
    page = " ".join(Page(client.get(url_of(run)).content.decode()).text_of("main"))
    assert "It is paused: look." in page
    resume = form(client, run, "resume")
    assert client.post(resume.action, {**resume.fields, "reason": "seen"}).status_code == 302
    run.refresh_from_db()
    assert run.state == "WAITING_APPROVAL"
    said = Event.objects.filter(run=run, type="run.resumed").get()
    assert (said.actor, said.data["reason"]) == ("user:olga", "seen")


def test_a_reason_is_asked_for() -> None:
    client = browser("cancel_run")
    run = make_run()
    cancel = form(client, run, "cancel")
    response = client.post(cancel.action, {**cancel.fields, "reason": "  "})
    assert response.status_code == 400
    run.refresh_from_db()
    assert run.stop_reason is None


def test_cancel_says_what_it_will_not_stop() -> None:
    client = browser("cancel_run")
    waiting = make_waiting()
    force_state(waiting.action, state="UNKNOWN", idempotency_key="k" * 40, effect="WRITE")
    force_state(waiting.run, state="RECONCILING")
    page = " ".join(Page(client.get(url_of(waiting.run)).content.decode()).text_of("aside"))
    assert "This will not stop what was sent: refund_desk.submit_refund for order:ORD-77" in page
    cancel = form(client, waiting.run, "cancel")
    client.post(cancel.action, {**cancel.fields, "reason": "wrong customer"})
    waiting.run.refresh_from_db()
    assert waiting.run.stop_reason == "CANCEL"
    assert waiting.run.ended_at is None


def test_limits_need_a_permission_of_their_own() -> None:
    run = make_run()
    force_state(run, state="SUSPENDED", resume_to="COMPILING_CONTEXT", reason="BUDGET")
    client = browser("pause_run")
    resume = form(client, run, "resume")
    assert "max_turns" not in resume.fields
    sent = {**resume.fields, "reason": "more", "max_turns": "40"}
    assert client.post(resume.action, sent).status_code == 403
    may(User.objects.get(username="olga"), "manage_budget")
    assert client.post(resume.action, {**sent, "max_cost": "1.5"}).status_code == 302
    run.refresh_from_db()
    assert (run.state, run.max_turns, run.max_cost) == ("COMPILING_CONTEXT", 40, 1_500_000)


@pytest.mark.parametrize("verb", RIGHTS)
def test_each_verb_has_its_permission(verb: str) -> None:
    client = browser()
    run = make_run()
    before = Run.objects.values().get()
    page = Page(client.get(url_of(run)).content.decode())
    assert not [f for f in page.forms if "/do/" in f.action]
    token = client.cookies["csrftoken"].value if "csrftoken" in client.cookies else ""
    sent = {"reason": "x", "csrfmiddlewaretoken": token}
    assert client.post(f"/admin/runs/run/{run.pk}/do/{verb}/", sent).status_code == 403
    assert client.get(f"/admin/runs/run/{run.pk}/do/{verb}/").status_code == 405
    assert Run.objects.values().get() == before


def test_what_ended_is_refused_with_its_reason() -> None:
    client = browser("pause_run")
    run = make_run()
    pause = form(client, run, "pause")
    force_state(run, state="CANCELLED", ended_at=run.created_at, stop_reason="CANCEL")
    response = client.post(pause.action, {**pause.fields, "reason": "look"})
    assert response.status_code == 409
    assert "run_terminal" in response.content.decode()


def taken_over() -> tuple[Client, Waiting]:
    waiting = make_waiting(action={"intent_key": "i" * 64, "fingerprint": "f" * 64})
    client = browser("pause_run")
    pause = form(client, waiting.run, "pause")
    client.post(pause.action, {**pause.fields, "reason": "I do it myself"})
    return client, waiting


def test_a_person_takes_over_acts_and_hands_back() -> None:
    client, waiting = taken_over()
    by_hand = form(client, waiting.run, "by-hand")
    sent = {
        **by_hand.fields,
        "reference": "rf_by_hand_1",
        "evidence": "refunded in the back office",
    }
    assert client.post(by_hand.action, sent).status_code == 302
    waiting.reload()
    assert (waiting.action.state, waiting.action.reason) == ("VOIDED", "BY_HAND")
    assert waiting.action.downstream_ref == "rf_by_hand_1"
    assert waiting.approval.state == "VOIDED"
    assert Evidence.objects.get().source == "person:user:olga"
    event = Event.objects.filter(type="action.done_by_hand").get()
    assert event.data["evidence"] == "refunded in the back office"
    told = render(waiting.action, None)
    assert "Do not do it again" in told
    assert "rf_by_hand_1" in told
    resume = form(client, waiting.run, "resume")
    assert client.post(resume.action, {**resume.fields, "reason": "done"}).status_code == 302


def test_what_was_done_by_hand_is_not_done_again() -> None:
    """The intent has an owner, and a later call with it is told so."""
    client, waiting = taken_over()
    by_hand = form(client, waiting.run, "by-hand")
    client.post(by_hand.action, {**by_hand.fields, "reference": "rf_1", "evidence": "seen"})
    owner = KeyOwner.objects.get()
    assert (owner.action_id, owner.released_at) == (waiting.action.pk, None)
    later = ActionJournal(tool=waiting.action.tool, state="VOIDED", same_as=waiting.action)
    told = json.loads(render(later, waiting.reload().action))
    assert told["status"] == "already_done"


def test_by_hand_needs_a_paused_run_and_an_action_that_was_not_sent() -> None:
    client, waiting = taken_over()
    by_hand = form(client, waiting.run, "by-hand")
    sent = {**by_hand.fields, "reference": "rf_1", "evidence": "seen"}
    assert client.post(by_hand.action, {**sent, "evidence": ""}).status_code == 400
    force_state(waiting.run, state="WAITING_APPROVAL", resume_to=None)
    assert "run_not_paused" in client.post(by_hand.action, sent).content.decode()
    force_state(waiting.run, state="SUSPENDED", resume_to="RECONCILING")
    force_state(waiting.action, state="UNKNOWN", idempotency_key="k" * 40, effect="WRITE")
    assert "action_not_open" in client.post(by_hand.action, sent).content.decode()
    assert Approval.objects.get().state == "PENDING"
