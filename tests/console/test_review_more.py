"""Edit, respond, escalate and claim through the forms of the review pages."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from approvals.models import Approval
from runs.models import ActionJournal, Run
from tests.console.dom import Form, Page
from tests.factories import Waiting, make_agent_version, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)


def browser(name: str, *names: str) -> Client:
    user = make_user(name)
    user.user_permissions.add(*Permission.objects.filter(codename__in=names))
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def url_of(waiting: Waiting) -> str:
    return f"/admin/review/{waiting.approval.pk}/"


def form(client: Client, url: str, ends: str) -> Form:
    page = Page(client.get(url).content.decode())
    (found,) = [item for item in page.forms if item.action.endswith(ends)]
    return found


def waiting_run() -> Waiting:
    from runs.agents import get_agent

    agent = get_agent("refund_desk")
    assert agent is not None
    run: Run = make_run(scopes=["refunds.write"], agent_version=agent.freeze())
    return make_waiting(run=run)


def test_an_edit_makes_a_new_action_that_somebody_else_decides() -> None:
    waiting = waiting_run()
    client = browser("olga", "edit_arguments")
    edit = form(client, f"{url_of(waiting)}edit/", "/edit/")
    assert edit.fields["arg-amount"] == "80.00 EUR"
    sent = {**edit.fields, "arg-amount": "45.00 EUR", "arg-reason": "damaged", "reason": "half"}
    response = client.post(edit.action, sent)
    new = ActionJournal.objects.get(edit=1)
    assert (response.status_code, response["Location"]) == (
        302,
        f"/admin/runs/actionjournal/{new.pk}/change/",
    )
    assert (new.arguments["amount"], new.edited_by) == ("45.00 EUR", "user:olga")
    waiting.reload()
    assert (waiting.action.state, waiting.approval.state) == ("VOIDED", "VOIDED")


def test_an_edit_that_the_tool_refuses_comes_back_with_what_was_written() -> None:
    waiting = waiting_run()
    client = browser("olga", "edit_arguments")
    edit = form(client, f"{url_of(waiting)}edit/", "/edit/")
    sent = {**edit.fields, "arg-amount": "lots", "arg-reason": "damaged", "reason": "why not"}
    response = client.post(edit.action, sent)
    assert response.status_code == 422
    page = Page(response.content.decode())
    (again,) = [item for item in page.forms if item.action.endswith("/edit/")]
    assert again.fields["arg-amount"] == "lots"
    assert [e for e in page.elements if e.attributes.get("id") == "error-amount"]
    nothing = {**sent, "arg-amount": "80.00 EUR"}
    assert client.post(edit.action, nothing).status_code == 400
    assert ActionJournal.objects.count() == 1


def test_editing_needs_its_permission() -> None:
    waiting = waiting_run()
    client = browser("olga")
    assert client.get(f"{url_of(waiting)}edit/").status_code == 403
    assert "Edit the arguments" not in client.get(url_of(waiting)).content.decode()


def test_respond_gives_the_model_the_answer() -> None:
    waiting = make_waiting()
    client = browser("olga")
    page = Page(client.get(url_of(waiting)).content.decode())
    sent = {**page.form_of("RESPOND").fields, "decision": "RESPOND", "reason": "send a voucher"}
    assert client.post(url_of(waiting), sent).status_code == 302
    waiting.reload()
    assert (waiting.action.state, waiting.action.reason) == ("REJECTED", "RESPONDED")
    assert waiting.action.detail == "send a voucher"


def test_a_chosen_reason_is_told_in_words() -> None:
    waiting = make_waiting()
    client = browser("olga")
    page = Page(client.get(url_of(waiting)).content.decode())
    sent = {
        **page.form_of("REJECT").fields,
        "decision": "REJECT",
        "choice": "wrong_amount",
        "reason": "it was 8",
    }
    client.post(url_of(waiting), sent)
    assert waiting.reload().action.detail == "Wrong amount or content: it was 8"


def test_escalating_asks_a_higher_group() -> None:
    waiting = make_waiting()
    client = browser("olga")
    up = form(client, url_of(waiting), "/escalate/")
    response = client.post(up.action, {**up.fields, "reason": "too much for me"})
    after = Approval.objects.get(supersedes=waiting.approval.pk)
    assert response["Location"] == f"/admin/review/{after.pk}/"
    assert (after.role, waiting.reload().approval.state) == ("agent_senior_approver", "VOIDED")
    old = " ".join(Page(client.get(url_of(waiting)).content.decode()).text_of("main"))
    assert "Another question has taken the place of this one" in old
    assert client.post(up.action, {**up.fields, "reason": "again"}).status_code == 409


def test_a_claim_is_shown_and_given_back() -> None:
    waiting = make_waiting()
    olga, ada = browser("olga"), browser("ada")
    claim = form(olga, url_of(waiting), "/claim/")
    olga.post(claim.action, claim.fields)
    assert "user:olga looks at it" in ada.get("/admin/review/").content.decode()
    other = form(ada, url_of(waiting), "/claim/")
    assert ada.post(other.action, {**other.fields, "to": "claim"}).status_code == 409
    back = form(olga, url_of(waiting), "/claim/")
    olga.post(back.action, back.fields)
    assert Approval.objects.get().claimed_by == ""


def test_the_page_names_guarantee_and_repeat() -> None:
    done = make_waiting(run=make_run(agent_version=make_agent_version()))
    impact = {"summary": "Refund again"}
    waiting = make_waiting(impact=impact)
    from tests.factories import force_state

    repeat = {"action": str(done.action.pk), "at": "2026-01-01", "reference": "rf_1"}
    force_state(waiting.approval, impact={"preview": impact, "repeat": repeat})
    text = " ".join(Page(browser("olga").get(url_of(waiting)).content.decode()).text_of("aside"))
    assert "dedupe + probe" in text
    assert "rf_1" in text
