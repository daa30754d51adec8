"""The records are read, never edited: not by a form, not by a superuser, not by accident."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from runs.console.paging import CAP, CappedPaginator
from runs.models import ActionJournal, Incident, Run
from tests.console.dom import Page
from tests.factories import Waiting, force_state, make_user, make_waiting

pytestmark = pytest.mark.django_db

LISTS = {
    "/admin/runs/run/": Run,
    "/admin/runs/actionjournal/": ActionJournal,
    "/admin/approvals/approval/": Approval,
    "/admin/runs/incident/": Incident,
}


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


@pytest.fixture
def waiting() -> Waiting:
    made = make_waiting()
    Incident.objects.create(
        run=made.run, kind="KEY_CONFLICT", detail="other amount", created_at=made.run.created_at
    )
    return made


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("url", LISTS)
def test_a_superuser_edits_nothing(root: Client, waiting: Waiting, url: str) -> None:
    model = LISTS[url]
    row = model._default_manager.get()
    before = model._default_manager.values().get()
    assert root.post(f"{url}{row.pk}/change/", {"state": "COMPLETED"}).status_code == 403
    assert root.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert root.get(f"{url}{row.pk}/delete/").status_code == 403
    assert root.post(f"{url}add/", {}).status_code == 403
    assert root.get(f"{url}add/").status_code == 403
    action = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    root.post(url, action)
    assert model._default_manager.values().get() == before


@pytest.mark.parametrize("url", LISTS)
def test_lists_and_pages_open_and_offer_no_change(root: Client, waiting: Waiting, url: str) -> None:
    shown = Page(root.get(url).content.decode())
    assert "delete_selected" not in str(shown.elements)
    assert not [e for e in shown.elements if "/add/" in e.attributes.get("href", "")]
    row = LISTS[url]._default_manager.get()
    assert root.get(f"{url}{row.pk}/change/", follow=True).status_code == 200
    assert root.get(f"{url}00000000-0000-7000-8000-000000000000/change/").status_code == 404
    assert root.get(f"{url}nonsense/change/").status_code == 404


def test_every_admin_of_our_tables_is_read_only() -> None:
    ours = [m for m in admin.site._registry if m._meta.app_label in {"runs", "approvals"}]
    assert set(ours) == set(LISTS.values())
    for model in ours:
        options = admin.site._registry[model]
        assert options.actions is None
        assert options.show_full_result_count is False


def test_the_page_of_a_run_shows_its_rows(root: Client, waiting: Waiting) -> None:
    force_state(waiting.action, downstream_ref="rf_991", idempotency_key="k1")
    shown = Page(root.get(f"/admin/runs/run/{waiting.run.pk}/change/").content.decode())
    text = " ".join(shown.text_of("main"))
    for fact in (
        str(waiting.run.pk),
        "Refund order ORD-77, it arrived damaged.",
        "refund_desk@1",
        "1 of 12",
        "run.created",
        "◔ Waiting approval",
        "a person must decide",
        "KEY_CONFLICT",
        "rf_991",
        waiting.turn.text,
    ):
        assert fact in text, fact


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
    assert response.context["cl"].result_count == found


def test_an_action_is_found_by_its_run(root: Client, waiting: Waiting) -> None:
    make_waiting()
    response = root.get("/admin/runs/actionjournal/", {"q": str(waiting.run.pk)})
    assert response.context["cl"].result_count == 1


def test_no_list_counts_a_whole_table(root: Client, waiting: Waiting) -> None:
    for url in LISTS:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert root.get(url).status_code == 200
        counts = [q["sql"] for q in queries if "COUNT(" in q["sql"].upper()]
        assert counts
        assert all(f"LIMIT {CAP + 1}" in sql for sql in counts), counts


def test_a_big_list_reads_1000_plus() -> None:
    big = CappedPaginator(list(range(CAP + 500)), 50)
    assert (str(big.count), int(big.count)) == ("1000+", CAP + 1)
    assert str(CappedPaginator(list(range(CAP)), 50).count) == "1000"
