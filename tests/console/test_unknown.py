"""The pages about unknown writes, through their own forms, as a browser without JavaScript."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from agentcore.lifecycle import ActionState
from agentcore.reconciling import Verdict
from runs.models import ActionJournal, Event
from runs.reconcile_models import Reconciliation
from runs.selectors import database_clock
from runs.services import record_verdict
from tests.console.dom import Form, Page
from tests.factories import force_state, make_run, make_user
from tests.unknown import HEIDI, Unknown, make_sent

pytestmark = pytest.mark.django_db

A = ActionState
BOARD = "/admin/unknown/"
EVIDENCE = "Seen in the payment dashboard."


def allow(user: User) -> User:
    user.user_permissions.add(Permission.objects.get(codename="reconcile_action"))
    return user


@pytest.fixture
def page(reviewer: User) -> Client:
    """A browser of somebody who may give verdicts; it enforces CSRF."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(allow(reviewer))
    return client


def url_of(made: Unknown) -> str:
    return f"{BOARD}{made.action.pk}/"


def read(client: Client, url: str, status: int = 200) -> Page:
    response = client.get(url)
    assert response.status_code == status
    return Page(response.content.decode())


def form_on(shown: Page) -> Form:
    (form,) = [form for form in shown.forms if "action_revision" in form.fields]
    return form


def filled(form: Form, verdict: Verdict, /, **changed: str) -> dict[str, str]:
    facts = {
        Verdict.EFFECT_EXISTS: {"downstream_ref": "rf_1"},
        Verdict.EFFECT_DOES_NOT_EXIST: {"ground": "KEY_CLOSED"},
        Verdict.STILL_UNKNOWN: {"next_probe": "3600"},
    }
    given = {"verdict": str(verdict), "evidence": EVIDENCE, **facts.get(verdict, {})}
    return {**form.fields, **given, **changed}


def send(client: Client, made: Unknown, verdict: Verdict, /, **changed: str) -> Any:
    """Post the page's own form, as it was rendered, with the fields a person fills in."""
    form = form_on(read(client, url_of(made)))
    assert form.method == "post"
    return client.post(form.action, filled(form, verdict, **changed))


def text_of(shown: Page) -> str:
    return " ".join(shown.text_of("main"))


def test_the_addresses_are_stable() -> None:
    made = make_sent()
    assert reverse("unknown:board") == BOARD
    assert reverse("unknown:item", args=[made.action.pk]) == url_of(made)


@pytest.mark.requirement("R107")
def test_the_board_shows_what_is_open_the_urgent_first(page: Client) -> None:
    unknown = make_sent(arguments={"order_id": "ORD-1", "amount": "5.00 EUR", "reason": "late"})
    person = make_sent(A.NEEDS_HUMAN, resource_key="order:ORD-2")
    pending = make_sent(A.PENDING, outcome="PENDING")
    settled = make_sent()
    force_state(settled.action, state="SUCCEEDED", ended_at=database_clock())
    force_state(unknown.action, probes=3)
    shown = read(page, BOARD)
    links = [e for e in shown.elements if e.attributes.get("class") == "headline"]
    assert [e.attributes["href"] for e in links] == [url_of(m) for m in (person, unknown, pending)]
    assert "submit_refund(amount=5.00 EUR, order_id=ORD-1, reason=late)" in links[1].text
    first, second, _ = shown.text_of("tr")[1:]
    assert "Needs human" in first
    assert "ATTEMPTS_USED" in first
    assert "order:ORD-2" in first
    assert "none, a person decides" in first
    assert "10 min ago" in second
    assert " 3 " in second
    assert "in 59 min" in second or "in 1 h" in second


def test_an_empty_board_says_so(page: Client) -> None:
    assert "The outcome of every write is known." in read(page, BOARD).text_of("p")


@pytest.mark.requirement("R107", "R58")
def test_the_page_shows_what_was_sent_and_what_is_known(page: Client) -> None:
    made = make_sent()
    other = make_sent(resource_key=made.action.resource_key, tool="crm.note")
    shown = read(page, url_of(made))
    text = text_of(shown)
    for fact in (
        "amount text 80.00 EUR",
        made.action.idempotency_key or "?",
        made.action.fingerprint,
        '{"amount":"80.00 EUR","order_id":"ORD-77","reason":"damaged"}',
        "read_timeout",
        "▲ Ambiguous",
        f"{made.attempt.send_by:%Y-%m-%d %H:%M:%S} UTC".split()[0],
        str(made.attempt.worker)[-8:],
        "The downstream acts once for our key",
        "token:shop-backend",
        "The downstream has not been asked.",
        "Key kept until in 29 d",
        "Settles over,",
        "crm.note",
    ):
        assert fact in text, fact
    links = [e.attributes.get("href") for e in shown.elements]
    assert f"/admin/runs/actionjournal/{other.action.pk}/change/" in links


def test_a_secret_argument_is_not_shown(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from runs.console import presenters

    spec = presenters.registry.get("refund_desk.submit_refund")
    assert spec is not None
    monkeypatch.setattr(presenters.registry, "get", lambda _: replace(spec, redact=("reason",)))
    made = make_sent()
    for url in (BOARD, url_of(made)):
        html = page.get(url).content.decode()
        assert "damaged" not in html.replace("arrived damaged", "")


@pytest.mark.requirement("R107", "R108")
@pytest.mark.parametrize(
    ("verdict", "after", "said"),
    [
        (Verdict.EFFECT_EXISTS, A.SUCCEEDED, "it happened"),
        (Verdict.EFFECT_DOES_NOT_EXIST, A.FAILED, "cannot still happen"),
        (Verdict.STILL_UNKNOWN, A.UNKNOWN, "still unknown"),
        (Verdict.RESEND_SAME_KEY, A.NEEDS_HUMAN, "before a second person agrees"),
        (Verdict.ABANDON, A.ABANDONED, "given up"),
    ],
)
def test_a_verdict_through_the_form(
    page: Client, verdict: Verdict, after: ActionState, said: str
) -> None:
    made = make_sent()
    response = send(page, made, verdict)
    assert response.status_code == 302
    assert response["Location"] == url_of(made)
    assert made.reload().action.state == after
    shown = read(page, url_of(made))
    assert said in " ".join(shown.text_of("li"))
    row = Reconciliation.objects.get()
    assert (row.person, row.evidence) == ("user:grace", EVIDENCE)
    assert EVIDENCE in text_of(shown)


def test_the_result_is_json(page: Client) -> None:
    made = make_sent()
    wrong = send(page, made, Verdict.EFFECT_EXISTS, result="{refund: 1}")
    assert wrong.status_code == 400
    assert "{refund: 1}" in text_of(Page(wrong.content.decode())), "what was typed is kept"
    assert send(page, made, Verdict.EFFECT_EXISTS, result='{"refund": 1}').status_code == 302
    assert made.reload().action.result == {"refund": 1}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"evidence": "  "}, "form_incomplete"),
        ({"verdict": ""}, "form_incomplete"),
        ({"verdict": "FORGET_IT"}, "form_incomplete"),
        ({"downstream_ref": ""}, "reference_required"),
        ({"evidence_link": "ftp://x"}, "evidence_link_invalid"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_written(
    page: Client, changed: dict[str, str], code: str
) -> None:
    made = make_sent()
    response = send(page, made, Verdict.EFFECT_EXISTS, **changed)
    assert response.status_code == 400
    assert code in response.content.decode()
    assert not Reconciliation.objects.exists()
    assert made.reload().action.state == A.UNKNOWN


@pytest.mark.requirement("R65")
def test_a_page_that_is_out_of_date_says_what_changed(page: Client) -> None:
    made = make_sent(A.NEEDS_HUMAN)
    form = form_on(read(page, url_of(made)))
    record_verdict(
        action_id=made.action.pk,
        action_revision=made.action.revision,
        verdict=Verdict.STILL_UNKNOWN,
        person=HEIDI,
        evidence_text="the dashboard is down",
        next_probe_in=timedelta(hours=1),
    )
    response = page.post(form.action, filled(form, Verdict.ABANDON))
    assert response.status_code == 409
    shown = Page(response.content.decode())
    text = text_of(shown)
    assert "user:heidi said: still unknown" in text
    assert "NEEDS_HUMAN → UNKNOWN" in text
    again = form_on(shown)
    assert again.fields["action_revision"] == str(made.reload().action.revision)
    kept = [e for e in shown.elements if e.tag == "textarea" and e.attributes["name"] == "evidence"]
    assert kept[0].text == EVIDENCE, "nothing has to be typed again"
    assert page.post(again.action, filled(again, Verdict.ABANDON)).status_code == 302


def test_a_settled_one_offers_no_verdict(page: Client) -> None:
    made = make_sent()
    form = form_on(read(page, url_of(made)))
    send(page, made, Verdict.EFFECT_EXISTS)
    shown = read(page, url_of(made))
    assert not [f for f in shown.forms if "action_revision" in f.fields]
    late = page.post(form.action, filled(form, Verdict.ABANDON))
    assert late.status_code == 409
    assert "action_not_unknown" in late.content.decode()


def test_the_second_person_is_told_who_asked(page: Client) -> None:
    made = make_sent()
    record_verdict(
        action_id=made.action.pk,
        action_revision=made.action.revision,
        verdict=Verdict.RESEND_SAME_KEY,
        person=HEIDI,
        evidence_text="not in the dashboard, the key is known there",
    )
    assert "user:heidi asked for this. If you agree" in text_of(read(page, url_of(made)))
    assert send(page, made, Verdict.RESEND_SAME_KEY).status_code == 302
    assert made.reload().action.reason == "RESEND_GRANTED"


def test_a_resend_that_is_not_possible_says_why(page: Client) -> None:
    made = make_sent(sent_ago=timedelta(days=40))
    shown = read(page, url_of(made))
    (radio,) = [e for e in shown.elements if e.attributes.get("value") == "RESEND_SAME_KEY"]
    assert "disabled" in radio.attributes
    assert "may have forgotten our key" in text_of(shown)
    assert send(page, made, Verdict.RESEND_SAME_KEY).status_code == 409


@pytest.mark.requirement("R107")
def test_probe_now_makes_the_probe_due(page: Client) -> None:
    made = make_sent()
    shown = read(page, url_of(made))
    (form,) = [f for f in shown.forms if f.action.endswith("/probe/")]
    assert page.get(form.action).status_code == 405
    assert page.post(form.action, form.fields).status_code == 302
    made.reload()
    event = Event.objects.latest("id")
    assert (event.type, event.actor) == ("action.probe_asked", "user:grace")
    assert made.action.next_probe_at == made.run.wake_at == event.created_at


def test_a_person_is_not_asked_by_probe(page: Client) -> None:
    made = make_sent(A.NEEDS_HUMAN)
    token = form_on(read(page, url_of(made))).fields["csrfmiddlewaretoken"]
    response = page.post(f"{url_of(made)}probe/", {"csrfmiddlewaretoken": token})
    assert response.status_code == 409
    assert "Say that it is still unknown" in response.content.decode()


@pytest.mark.requirement("R108")
def test_who_may_look_and_who_may_say(reviewer: User) -> None:
    made = make_sent()
    nobody, looker = Client(), Client()
    assert nobody.get(BOARD).status_code == 302
    looker.force_login(reviewer)  # may read records, may not give verdicts
    assert looker.get(BOARD).status_code == 200
    assert "You need the permission runs.reconcile_action" in text_of(read(looker, url_of(made)))
    given = {"action_revision": made.action.revision, "seen": 1, "verdict": "ABANDON"}
    assert looker.post(url_of(made), {**given, "evidence": EVIDENCE}).status_code == 403
    assert looker.post(f"{url_of(made)}probe/").status_code == 403
    plain = make_user("plain")
    plain.user_permissions.clear()
    client = Client()
    client.force_login(plain)
    assert client.get(BOARD).status_code == 403
    assert client.get(url_of(made)).status_code == 403
    assert not Reconciliation.objects.exists()


@pytest.mark.requirement("R108")
def test_who_asked_for_the_run_gives_no_verdict(reviewer: User) -> None:
    made = make_sent(run=make_run(principal="user:grace"))
    client = Client()
    client.force_login(allow(reviewer))
    assert "You asked for this run" in text_of(read(client, url_of(made)))
    given = {"action_revision": made.action.revision, "seen": 1, "verdict": "ABANDON"}
    assert client.post(url_of(made), {**given, "evidence": EVIDENCE}).status_code == 403


def test_no_change_without_the_csrf_token(page: Client) -> None:
    made = make_sent()
    given = {"action_revision": made.action.revision, "seen": 1, "verdict": "ABANDON"}
    assert page.post(url_of(made), {**given, "evidence": EVIDENCE}).status_code == 403
    assert page.post(f"{url_of(made)}probe/").status_code == 403
    assert made.reload().action.state == A.UNKNOWN


def test_an_action_that_is_no_write_has_no_page(page: Client) -> None:
    made = make_sent()
    force_state(made.action, effect="READ", state="SUCCEEDED", ended_at=database_clock())
    assert page.get(url_of(made)).status_code == 404
    assert page.get(f"{BOARD}00000000-0000-7000-8000-000000000000/").status_code == 404
    assert ActionJournal.objects.count() == 1
