"""Every page: it opens, asks at most 20 queries, and only for those who may."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.console.dom import Page
from tests.console.world import BOARDS, LISTS, make_desk
from tests.factories import force_state, make_user, make_waiting

pytestmark = pytest.mark.django_db

MOST = 20


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


@pytest.mark.requirement("R108")
def test_every_page_asks_at_most_20_queries(root: Client) -> None:
    """However many rows there are: the lists and boards are read with many, too."""
    desk = make_desk()
    for _ in range(30):
        make_waiting()
    for url in desk.pages():
        with CaptureQueriesContext(connection) as queries:
            response = root.get(url)
        assert response.status_code == 200, url
        asked = [q["sql"] for q in queries if not q["sql"].startswith(("SAVEPOINT", "RELEASE"))]
        assert len(asked) <= MOST, (url, len(asked), asked)


def test_a_person_with_few_rights_asks_no_more_queries() -> None:
    desk = make_desk()
    client = Client()
    client.force_login(make_user("olga", groups=("agent_approver",)))
    for url in desk.pages():
        with CaptureQueriesContext(connection) as queries:
            client.get(url)
        asked = [q["sql"] for q in queries if not q["sql"].startswith(("SAVEPOINT", "RELEASE"))]
        assert len(asked) <= MOST, (url, len(asked))


@pytest.mark.parametrize("staff", [True, False])
def test_without_a_permission_no_page_shows_anything(staff: bool) -> None:
    desk = make_desk()
    client = Client()
    client.force_login(User.objects.create_user("nobody", password="x", is_staff=staff))
    for url in desk.pages():
        response = client.get(url)
        if staff and url in ("/admin/", "/admin/help/"):
            assert "ORD-77" not in response.content.decode()
            continue
        assert response.status_code == (403 if staff else 302), url


def test_the_menu_has_only_what_one_may_open() -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody", password="x", is_staff=True))
    page = Page(client.get("/admin/").content.decode())
    (nav,) = [e for e in page.elements if e.attributes.get("aria-label") == "Console"]
    assert nav.text.split() == ["Home"]


def test_a_get_of_any_page_writes_nothing(root: Client) -> None:
    desk = make_desk()
    for url in desk.pages():
        with CaptureQueriesContext(connection) as queries:
            root.get(url)
        writes = [
            q["sql"]
            for q in queries
            if q["sql"].lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE"))
        ]
        assert writes == [], url


def test_home_tells_what_waits(root: Client) -> None:
    make_desk()
    text = " ".join(Page(root.get("/admin/").content.decode()).text_of("main"))
    assert "1 Waits for a decision" in text
    assert "1 Unknown outcomes" in text
    assert "No worker lives" not in text


def test_home_says_when_nothing_works(root: Client) -> None:
    make_waiting()
    text = " ".join(Page(root.get("/admin/").content.decode()).text_of("main"))
    assert "No worker lives: nothing moves." in text
    assert "The sweep has never run" in text


def test_every_plot_has_its_numbers_as_a_table(root: Client) -> None:
    desk = make_desk()
    force_state(desk.ended, state="FAILED", stop_reason="MODEL_ERROR")
    page = root.get("/admin/")
    html = Page(page.content.decode())
    plots = [plot for plot in page.context["plots"] if not plot.is_empty]
    assert [plot.name for plot in plots] >= ["outcomes"]
    rows = html.text_of("tr")
    for plot in plots:
        for row in plot.rows:
            assert " ".join(row) in rows, plot.name


def test_an_unknown_address_and_a_wrong_id_are_not_found(root: Client) -> None:
    nothing = "00000000-0000-7000-8000-000000000000"
    for url in (
        f"/admin/review/{nothing}/",
        f"/admin/review/{nothing}/edit/",
        f"/admin/unknown/{nothing}/",
        f"/admin/runs/run/{nothing}/turn/1/",
        f"/admin/runs/run/{nothing}/events.ndjson",
    ):
        assert root.get(url).status_code == 404, url
    for url in (*BOARDS, *LISTS):
        assert root.get(url).status_code == 200, url
