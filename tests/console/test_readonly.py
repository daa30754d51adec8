"""The records are read, never edited: not by a form, not by a superuser, not by accident."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from runs.console.lists import PAGE
from runs.console.readonly import ReadOnlyAdmin
from runs.models import (
    ActionJournal,
    BulkOperation,
    Event,
    Incident,
    Run,
    WebhookDelivery,
    WebhookEndpoint,
)
from tests.console.dom import Page
from tests.factories import Waiting, force_state, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db

LISTS = {
    "/admin/runs/run/": Run,
    "/admin/runs/actionjournal/": ActionJournal,
    "/admin/approvals/approval/": Approval,
    "/admin/runs/incident/": Incident,
    "/admin/runs/event/": Event,
    "/admin/runs/webhookdelivery/": WebhookDelivery,
    "/admin/runs/bulkoperation/": BulkOperation,
}


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


@pytest.fixture
def waiting() -> Waiting:
    made = make_waiting()
    at = made.run.created_at
    Incident.objects.create(run=made.run, kind="KEY_CONFLICT", detail="other amount", created_at=at)
    endpoint = WebhookEndpoint.objects.create(
        tenant="acme", url="https://hook.example/", salt="s", created_by="token:x", created_at=at
    )
    WebhookDelivery.objects.create(
        tenant="acme",
        endpoint=endpoint,
        run=made.run,
        seq=1,
        type="run.completed",
        next_try_at=at,
        created_at=at,
    )
    BulkOperation.objects.create(
        tenant="acme",
        verb="cancel",
        status="READY",
        total=0,
        created_by="token:x",
        created_at=at,
        expires_at=at,
    )
    return made


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("url", LISTS)
def test_a_superuser_edits_nothing(root: Client, waiting: Waiting, url: str) -> None:
    model = LISTS[url]
    rows = model._default_manager.order_by("pk")
    row, before = rows.last(), list(rows.values())
    assert row is not None
    assert root.post(f"{url}{row.pk}/change/", {"state": "COMPLETED"}).status_code == 403
    assert root.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert root.get(f"{url}{row.pk}/delete/").status_code == 403
    assert root.post(f"{url}add/", {}).status_code == 403
    assert root.get(f"{url}add/").status_code == 403
    action = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    root.post(url, action)
    assert list(rows.values()) == before


@pytest.mark.parametrize("url", LISTS)
def test_lists_and_pages_open_and_offer_no_change(root: Client, waiting: Waiting, url: str) -> None:
    shown = Page(root.get(url).content.decode())
    assert "delete_selected" not in str(shown.elements)
    assert not [e for e in shown.elements if "/add/" in e.attributes.get("href", "")]
    row = LISTS[url]._default_manager.order_by("pk").last()
    assert row is not None
    assert root.get(f"{url}{row.pk}/change/", follow=True).status_code == 200
    assert root.get(f"{url}00000000-0000-7000-8000-000000000000/change/").status_code == 404
    assert root.get(f"{url}nonsense/change/").status_code == 404


def test_every_admin_of_our_tables_is_read_only() -> None:
    ours = [m for m in admin.site._registry if m._meta.app_label in {"runs", "approvals"}]
    assert set(ours) == set(LISTS.values())
    for model in ours:
        options = admin.site._registry[model]
        assert options.actions is None
        assert isinstance(options, ReadOnlyAdmin)


def test_the_tabs_of_a_run_show_its_rows(root: Client, waiting: Waiting) -> None:
    force_state(waiting.action, downstream_ref="rf_991", idempotency_key="k1")
    url = f"/admin/runs/run/{waiting.run.pk}/change/"
    wanted = {
        "overview": (
            str(waiting.run.pk),
            "Refund order ORD-77, it arrived damaged.",
            "refund_desk@1",
            "1 of 12",
            "◔ Waiting approval",
            "refund_desk.submit_refund waits for a person: amount above 50.00 EUR.",
            "KEY_CONFLICT",
        ),
        "timeline": ("run.created", "a person must decide"),
        "turns": (waiting.turn.text, "What the model was shown"),
        "actions": ("rf_991", "dedupe + probe"),
        "approvals": ("amount above 50.00 EUR",),
        "cost": ("Nothing was spent.",),
        "raw": ("WAITING_APPROVAL",),
    }
    for tab, facts in wanted.items():
        response = root.get(url, {"tab": tab})
        text = " ".join(Page(response.content.decode()).text_of("main"))
        for fact in facts:
            assert fact in text, (tab, fact)


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("k_one", 1),
        ("rf_991", 1),
        ("order:ORD-77", 2),
        ("ORD-77", 2),
        ("RD-77", 0),
        ("rf_99", 0),
        ("' OR 1=1 --", 0),
        ("", 2),
    ],
)
def test_what_did_we_do_to_this_order(
    root: Client, waiting: Waiting, term: str, found: int
) -> None:
    make_waiting()
    force_state(waiting.action, downstream_ref="rf_991", idempotency_key="k_one")
    response = root.get("/admin/runs/actionjournal/", {"q": term})
    assert len(response.context["listing"].lines) == found


def test_an_action_is_found_by_its_run(root: Client, waiting: Waiting) -> None:
    make_waiting()
    response = root.get("/admin/runs/actionjournal/", {"q": str(waiting.run.pk)})
    assert len(response.context["listing"].lines) == 1


def test_no_list_counts_or_skips_rows(root: Client, waiting: Waiting) -> None:
    for url in LISTS:
        with CaptureQueriesContext(connection) as queries:
            assert root.get(url).status_code == 200
        asked = [q["sql"].upper() for q in queries]
        assert not [sql for sql in asked if "COUNT(" in sql or "OFFSET" in sql], url
        assert [sql for sql in asked if f"LIMIT {PAGE + 1}" in sql], url


def test_a_list_goes_on_by_key(root: Client) -> None:
    made = [str(make_run().pk) for _ in range(PAGE + 3)][::-1]
    seen: list[str] = []
    url = "/admin/runs/run/"
    while url:
        listing = root.get(url).context["listing"]
        seen += [line.key for line in listing.lines]
        url = f"/admin/runs/run/{listing.older}" if listing.older else ""
    assert seen == made


def test_a_question_that_cannot_be_read_is_answered(root: Client, waiting: Waiting) -> None:
    for query in ("before=nonsense", "age=soon", "cost=x", "metadata=novalue", "has=nonsense"):
        response = root.get(f"/admin/runs/run/?{query}")
        assert response.status_code == 400, query
        assert Page(response.content.decode()).text_of("div")
