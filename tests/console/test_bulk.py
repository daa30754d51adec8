"""Approving several at once: alike, low risk, each impact listed, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from approvals.models import ApprovalVote
from tests.console.dom import Form, Page
from tests.factories import Waiting, force_state, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db

BULK = "/admin/review/bulk/"


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(make_user("olga"))
    return client


def refund(**fields: Any) -> Waiting:
    return make_waiting(action={"effect": "WRITE"}, **fields)


def confirm(client: Client, *chosen: Waiting) -> Form:
    response = client.post(BULK, {"ids": [str(item.approval.pk) for item in chosen]})
    assert response.status_code == 200
    page = Page(response.content.decode())
    assert " ".join(page.text_of("ol")).count("Refund 80.00 EUR") == len(chosen)
    (form,) = [form for form in page.forms if form.action == BULK]
    return form


def send(client: Client, form: Form, count: str, *chosen: Waiting) -> Any:
    ids = [str(item.approval.pk) for item in chosen]
    return client.post(BULK, {**form.fields, "ids": ids, "count": count}, follow=True)


def test_the_count_is_typed_and_each_is_decided_by_itself(client: Client) -> None:
    one, two = refund(), refund()
    form = confirm(client, one, two)
    assert send(client, form, "3", one, two).status_code == 400
    assert ApprovalVote.objects.count() == 0
    force_state(two.approval, state="VOIDED")
    said = send(client, form, "2", one, two).content.decode()
    assert "Approved: 1 of 2." in said
    assert "Not approved: submit_refund for order:ORD-77" in said
    assert (one.reload().approval.state, two.reload().approval.state) == ("APPROVED", "VOIDED")


def test_the_hash_of_the_page_is_what_counts(client: Client) -> None:
    one = refund()
    form = confirm(client, one)
    form.fields[f"hash-{one.approval.pk}"] = "0" * 64
    assert "Approved: 0 of 1." in send(client, form, "1", one).content.decode()
    assert one.reload().approval.state == "PENDING"


def test_what_may_not_be_decided_at_once(client: Client) -> None:
    alike, hard, risky = refund(), make_waiting(), refund()
    other = make_waiting(action={"effect": "WRITE"}, rule="always")
    force_state(risky.approval, high_risk=True)
    for chosen in ([], [alike, hard], [risky], [alike, other], [refund() for _ in range(26)]):
        ids = [str(item.approval.pk) for item in chosen]
        said = client.post(BULK, {"ids": ids, "count": str(len(ids))}, follow=True)
        assert "Nothing was decided" in said.content.decode(), len(ids)
    assert ApprovalVote.objects.count() == 0
    assert client.get(BULK).status_code == 405


def test_four_eyes_and_rights_hold_here_too(client: Client) -> None:
    own = refund(run=make_run(principal="user:olga"))
    form = confirm(client, own)
    assert "Approved: 0 of 1." in send(client, form, "1", own).content.decode()
    plain = Client()
    plain.force_login(make_user("viewer", decide=False))
    assert plain.post(BULK, {"ids": [str(own.approval.pk)]}).status_code == 403
    assert ApprovalVote.objects.count() == 0
