"""The review pages, through their own forms, as a browser without JavaScript uses them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import ApprovalVote
from runs.models import Event
from tests.console.dom import Element, Page
from tests.factories import (
    Waiting,
    force_state,
    make_run,
    make_user,
    make_waiting,
)

pytestmark = pytest.mark.django_db

QUEUE = "/admin/review/"


def url_of(waiting: Waiting) -> str:
    return f"/admin/review/{waiting.approval.pk}/"


def read(client: Client, url: str, status: int = 200) -> Page:
    response = client.get(url)
    assert response.status_code == status
    return Page(response.content.decode())


def decisions(page: Page) -> list[Element]:
    """The buttons that decide."""
    buttons = [button for form in page.forms for button in form.buttons]
    return [button for button in buttons if button.attributes.get("name") == "decision"]


def send(client: Client, waiting: Waiting, decision: str, **changed: str) -> Any:
    """Post the page's own form, as it was rendered, with the fields a person fills in."""
    form = read(client, url_of(waiting)).form_of(decision)
    assert form.method == "post"
    return client.post(form.action, {**form.fields, "decision": decision, **changed})


def test_the_addresses_are_stable() -> None:
    waiting = make_waiting()
    assert reverse("review:queue") == QUEUE
    assert reverse("review:item", args=[waiting.approval.pk]) == url_of(waiting)


def test_the_queue_shows_what_waits(page: Client) -> None:
    later = make_waiting(required_count=2, role="agent_senior_approver")
    sooner = make_waiting(ttl=timedelta(minutes=5), run=make_run(principal="user:ada"))
    done = make_waiting()
    force_state(done.approval, state="VOIDED")
    shown = read(page, QUEUE)
    links = [e for e in shown.elements if e.attributes.get("class") == "headline"]
    assert [e.attributes["href"] for e in links] == [url_of(sooner), url_of(later)]
    assert links[0].text == "Refund 80.00 EUR to Ada Lovelace for order ORD-77"
    cells = " ".join(shown.text_of("td"))
    assert "user:ada" in cells
    assert "0 of 2 approvals" in cells
    assert "agent_senior_approver" in cells


def test_an_empty_queue_says_so(page: Client) -> None:
    assert "Nothing waits for a person." in read(page, QUEUE).text_of("p")


@pytest.mark.requirement("R40")
def test_the_page_shows_what_is_decided_about(page: Client) -> None:
    waiting = make_waiting(role="")
    read_at = datetime.fromisoformat(waiting.approval.impact["at"])
    shown = read(page, url_of(waiting))
    rows = shown.text_of("tr")
    assert "refunded 0.00 EUR →changes 80.00 EUR" in rows
    assert "status delivered =stays delivered" in rows
    assert "amount text 80.00 EUR" in rows
    assert "order_id text ORD-77" in rows
    text = " ".join(shown.text_of("main"))
    for fact in (
        "Refund 80.00 EUR to Ada Lovelace for order ORD-77",
        f"as of {read_at:%Y-%m-%d %H:%M:%S} UTC",
        "Bound to its version 7",
        f"sha256:{waiting.approval.params_hash}",
        "refund_desk.submit_refund version 1",
        "amount above 50.00 EUR",
        "token:shop-backend",
        "Refund order ORD-77, it arrived damaged.",
        f"{waiting.approval.expires_at:%Y-%m-%d %H:%M:%S} UTC",
        '{"amount":"80.00 EUR","order_id":"ORD-77","reason":"damaged"}',
    ):
        assert fact in text, fact
    (quote,) = [e for e in shown.elements if e.tag == "blockquote"]
    assert quote.text.strip() == waiting.turn.text
    assert any(
        e.attributes.get("href", "").endswith(f"{waiting.run.pk}/change/") for e in shown.elements
    )


def test_the_buttons_name_verb_and_object(page: Client) -> None:
    shown = read(page, url_of(make_waiting()))
    buttons = [b for form in shown.forms for b in form.buttons if "value" in b.attributes]
    assert {b.attributes["value"]: b.text for b in buttons} == {
        "APPROVE": "Approve submit_refund for order:ORD-77",
        "REJECT": "Reject submit_refund for order:ORD-77",
        "RESPOND": "Respond to submit_refund for order:ORD-77",
    }
    assert shown.form_of("REJECT").required == {"reason"}


def test_no_preview_is_said_not_hidden(page: Client) -> None:
    waiting = make_waiting(impact={})
    assert "No preview" in " ".join(read(page, url_of(waiting)).text_of("p"))


@pytest.mark.requirement("R44")
def test_approve_through_the_form(page: Client) -> None:
    """The decision half of R44; that the same saved call then runs is proven by the flow tests."""
    waiting = make_waiting()
    response = send(page, waiting, "APPROVE")
    assert (response.status_code, response["Location"]) == (302, url_of(waiting))
    waiting.reload()
    assert (waiting.approval.state, waiting.action.state) == ("APPROVED", "READY")
    assert ApprovalVote.objects.get().voter == "user:grace"
    after = read(page, url_of(waiting))
    assert "Approved. The run goes on with exactly these arguments." in after.text_of("li")
    assert not decisions(after)


@pytest.mark.requirement("R44")
def test_reject_through_the_form(page: Client) -> None:
    waiting = make_waiting()
    assert send(page, waiting, "REJECT", reason="wrong order").status_code == 302
    waiting.reload()
    assert (waiting.approval.state, waiting.action.state) == ("REJECTED", "REJECTED")
    assert waiting.action.detail == "wrong order"


def test_reject_without_a_reason(page: Client) -> None:
    waiting = make_waiting()
    response = send(page, waiting, "REJECT", reason="  ")
    assert response.status_code == 400
    assert "Say why you reject" in response.content.decode()
    assert waiting.reload().approval.state == "PENDING"


def test_the_same_click_again(page: Client) -> None:
    waiting = make_waiting()
    form = read(page, url_of(waiting)).form_of("APPROVE")
    data = {**form.fields, "decision": "APPROVE"}
    assert [page.post(form.action, data).status_code for _ in range(2)] == [302, 302]
    assert ApprovalVote.objects.count() == 1
    assert "You had already approved this" in page.get(url_of(waiting)).content.decode()


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("approval", {"expires_at": "2020-01-01T00:00:00Z"}, "approval_expired"),
        ("approval", {"state": "VOIDED"}, "approval_stale"),
        ("action", {"arguments": {"order_id": "ORD-78"}}, "approval_stale"),
        ("run", {"stop_reason": "DEADLINE"}, "run_not_waiting"),
    ],
)
def test_what_changed_since_the_page_was_read(
    page: Client, column: str, value: dict[str, Any], code: str
) -> None:
    """409 with the current content and why; nothing is written."""
    waiting = make_waiting()
    form = read(page, url_of(waiting)).form_of("APPROVE")
    force_state(getattr(waiting, column), **value)
    response = page.post(form.action, {**form.fields, "decision": "APPROVE"})
    assert response.status_code == 409
    (alert,) = [
        e for e in Page(response.content.decode()).elements if e.attributes.get("role") == "alert"
    ]
    assert code in alert.text
    assert ApprovalVote.objects.count() == 0
    assert waiting.reload().action.state == "AWAITING_APPROVAL"


def test_a_form_made_for_another_question(page: Client) -> None:
    one, other = make_waiting(), make_waiting()
    response = send(page, one, "APPROVE", approval_id=str(other.approval.pk))
    assert response.status_code == 400
    assert send(page, one, "APPROVE", params_hash="0" * 64).status_code == 409
    assert send(page, one, "APPROVE", params_hash="no hash").status_code == 400
    assert ApprovalVote.objects.count() == 0


# --- who ------------------------------------------------------------------------------------


@pytest.mark.parametrize("superuser", [False, True])
def test_the_requester_sees_no_buttons_and_may_not_post(superuser: bool) -> None:
    ada = make_user("ada", superuser=superuser)
    waiting = make_waiting(run=make_run(principal="user:ada"))
    client = Client()
    client.force_login(ada)
    shown = read(client, url_of(waiting))
    assert not decisions(shown)
    assert "Somebody else must decide" in " ".join(shown.text_of("p"))
    data = {
        "approval_id": str(waiting.approval.pk),
        "params_hash": waiting.approval.params_hash,
        "decision": "APPROVE",
    }
    assert client.post(url_of(waiting), data).status_code == 403
    assert waiting.reload().approval.state == "PENDING"


def test_who_may_only_look() -> None:
    viewer, waiting, client = make_user(decide=False), make_waiting(), Client()
    client.force_login(viewer)
    data = {
        "approval_id": str(waiting.approval.pk),
        "params_hash": waiting.approval.params_hash,
        "decision": "APPROVE",
    }
    assert "permission" in " ".join(read(client, url_of(waiting)).text_of("p"))
    assert client.post(url_of(waiting), data).status_code == 403


def test_who_may_not_look() -> None:
    waiting, client = make_waiting(), Client()
    for url in (QUEUE, url_of(waiting)):
        assert client.get(url)["Location"].startswith("/admin/login/")
    nobody = User.objects.create_user("nobody", is_staff=True)
    client.force_login(nobody)
    for url in (QUEUE, url_of(waiting)):
        assert client.get(url).status_code == 403


def test_a_role_is_a_group() -> None:
    waiting, client = make_waiting(role="agent_senior_approver"), Client()
    client.force_login(make_user(groups=("agent_approver",)))
    assert "agent_senior_approver" in " ".join(read(client, url_of(waiting)).text_of("p"))
    client.force_login(make_user(groups=("agent_senior_approver",)))
    assert send(client, waiting, "APPROVE").status_code == 302


def test_post_without_csrf_token(page: Client) -> None:
    waiting = make_waiting()
    form = read(page, url_of(waiting)).form_of("APPROVE")
    fields = {n: v for n, v in form.fields.items() if n != "csrfmiddlewaretoken"}
    assert page.post(form.action, {**fields, "decision": "APPROVE"}).status_code == 403
    assert waiting.reload().approval.state == "PENDING"


def test_get_changes_nothing(page: Client) -> None:
    waiting = make_waiting()
    before = Event.objects.count(), waiting.run.revision
    query = f"?decision=APPROVE&params_hash={waiting.approval.params_hash}"
    for url in (QUEUE, url_of(waiting), url_of(waiting) + query):
        assert page.get(url).status_code == 200
    waiting.reload()
    assert (Event.objects.count(), waiting.run.revision) == before
    assert waiting.approval.state == "PENDING"
    assert page.post(QUEUE).status_code == 403
