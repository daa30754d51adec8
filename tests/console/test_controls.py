"""Switches, thresholds and standing approvals, through the forms of their pages."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from approvals.models import StandingApproval
from runs import switches
from runs.models import PolicyThreshold
from tests.console.dom import Form, Page
from tests.factories import make_user

pytestmark = pytest.mark.django_db(transaction=True)

TOOL = "refund_desk.submit_refund"


@pytest.fixture
def client() -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user("root", superuser=True))
    return client


def form(client: Client, url: str, ends: str) -> Form:
    page = Page(client.get(url).content.decode())
    (found,) = [item for item in page.forms if item.action.endswith(ends)]
    return found


@pytest.mark.requirement("R115")
@pytest.mark.parametrize(
    ("page", "kind", "name"), [("agents", "agent", "refund_desk"), ("tools", "tool", TOOL)]
)
def test_off_and_on_again_with_a_reason(client: Client, page: str, kind: str, name: str) -> None:
    url, ends = f"/admin/{page}/", f"/switch/{kind}/{name}/"
    off = form(client, url, ends)
    assert off.required == {"reason"}
    client.post(off.action, {**off.fields, "reason": "it pays twice"})
    (row,) = switches.all_off()
    assert (row.kind, row.name, row.reason, row.changed_by) == (
        kind.upper(),
        name,
        "it pays twice",
        "user:root",
    )
    assert "it pays twice" in client.get(url).content.decode()
    on = form(client, url, ends)
    assert on.fields["to"] == "on"
    client.post(on.action, {**on.fields, "reason": "repaired"})
    assert switches.all_off() == []


def test_a_switch_needs_its_permission_and_a_reason(client: Client) -> None:
    off = form(client, "/admin/tools/", f"/switch/tool/{TOOL}/")
    said = client.post(off.action, {**off.fields, "reason": " "}, follow=True)
    assert "Nothing was changed" in said.content.decode()
    plain = Client()
    plain.force_login(make_user("ada"))
    assert plain.post(off.action, {"to": "off", "reason": "x"}).status_code == 403
    assert "/switch/" not in plain.get("/admin/tools/").content.decode()
    assert switches.all_off() == []


def test_a_threshold_is_added_and_retired(client: Client) -> None:
    add = form(client, "/admin/policy/", "/policy/add/")
    sent = {
        **add.fields,
        "tool": TOOL,
        "argument": "amount",
        "op": ">",
        "value": "20.00 EUR",
        "verdict": "ASK",
        "role": "agent_senior_approver",
        "quorum": "2",
        "hours": "1.5",
        "reason": "a week of fraud",
    }
    assert client.post(add.action, sent).status_code == 302
    row = PolicyThreshold.objects.get()
    assert (row.op, row.value, row.quorum, row.ttl_seconds) == (">", "20.00 EUR", 2, 5400)
    assert row.created_by == "user:root"
    refused = client.post(add.action, {**sent, "argument": "colour"})
    assert refused.status_code == 422
    assert "has no argument" in refused.content.decode()
    assert client.post(add.action, {**sent, "quorum": "two"}).status_code == 422
    end = form(client, "/admin/policy/", f"/{row.pk}/retire/")
    client.post(end.action, {**end.fields, "reason": "over"})
    row.refresh_from_db()
    assert row.retired_by == "user:root"


def test_a_standing_approval_is_given_and_revoked(client: Client) -> None:
    give = form(client, "/admin/policy/", "/policy/standing/")
    sent = {
        **give.fields,
        "tool": TOOL,
        "tenant": "acme",
        "argument": "amount",
        "op": "<=",
        "value": "60.00 EUR",
        "max_uses": "3",
        "hours": "8",
        "reason": "night shift",
    }
    assert client.post(give.action, {**sent, "hours": ""}).status_code == 422
    assert client.post(give.action, sent).status_code == 302
    row = StandingApproval.objects.get()
    assert (row.conditions, row.max_uses) == ([["amount", "<=", "60.00 EUR"]], 3)
    end = form(client, "/admin/policy/", f"/{row.pk}/revoke/")
    client.post(end.action, {**end.fields, "reason": "over"})
    row.refresh_from_db()
    assert row.revoked_by == "user:root"


def test_each_needs_its_permission() -> None:
    user = make_user("ada")
    plain = Client()
    plain.force_login(user)
    nothing = "00000000-0000-7000-8000-000000000000"
    for path in ("add/", f"{nothing}/retire/", "standing/", f"standing/{nothing}/revoke/"):
        assert plain.post(f"/admin/policy/{path}", {"reason": "x"}).status_code == 403, path
    user.user_permissions.add(*Permission.objects.filter(codename="manage_policy"))
    assert plain.post(f"/admin/policy/{nothing}/retire/", {"reason": "x"}).status_code == 404
