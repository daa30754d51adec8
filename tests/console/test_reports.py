"""Approvals as CSV, events as NDJSON, the chain, and what the model was shown."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.db import connection
from django.test import Client

from agentcore.context import MANIFEST_VERSION, Frame
from runs.models import Event
from runs.services import decide_approval
from tests.console.dom import Page
from tests.factories import decider, make_agent_version, make_run, make_user, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


def rows(client: Client, query: str = "") -> list[dict[str, str]]:
    response = client.get(f"/admin/approvals.csv{query}")
    assert response["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(response.content.decode())))


@pytest.mark.requirement("R106")
def test_the_report_says_who_decided_what_and_how_fast(client: Client) -> None:
    waiting, other = make_waiting(), make_waiting()
    decide_approval(
        approval_id=waiting.approval.pk,
        params_hash=waiting.approval.params_hash,
        decision="REJECT",
        decider=decider("user:grace"),
        reason="wrong order",
    )
    found = {row["approval"]: row for row in rows(client)}
    assert set(found) == {str(waiting.approval.pk), str(other.approval.pk)}
    row = found[str(waiting.approval.pk)]
    assert (row["state"], row["decisions"]) == ("REJECTED", "user:grace REJECT")
    assert (row["reasons"], row["requested_by"]) == ("wrong order", "token:shop-backend")
    assert float(row["seconds_to_decide"]) >= 0
    assert row["params_hash"] == waiting.approval.params_hash
    assert json.loads(row["arguments"]) == waiting.approval.arguments
    assert [r["approval"] for r in rows(client, "?state=PENDING")] == [str(other.approval.pk)]
    assert rows(client, "?voter=user:grace")[0]["approval"] == str(waiting.approval.pk)
    assert rows(client, "?four=own") == []


@pytest.mark.parametrize("begins", ["=", "\n=", "\uff1d", "\uff20", "|", "\t="])
def test_a_cell_is_never_a_formula(client: Client, begins: str) -> None:
    rule = f'{begins}HYPERLINK("http://evil.example")'
    make_waiting(rule=rule, action={"resource_key": "+1"})
    (row,) = rows(client)
    assert row["rule"] == f"'{rule}"
    assert row["resource"] == "'+1"


def test_the_report_needs_the_right_to_see_approvals(client: Client) -> None:
    from django.contrib.auth.models import User

    nobody = Client()
    nobody.force_login(User.objects.create_user("nobody", password="x", is_staff=True))
    assert nobody.get("/admin/approvals.csv").status_code == 403
    assert client.get("/admin/approvals.csv?four=x&before=1").status_code == 200


def test_events_as_a_file(client: Client) -> None:
    waiting = make_waiting()
    response = client.get(f"/admin/runs/run/{waiting.run.pk}/events.ndjson")
    lines = [json.loads(line) for line in b"".join(response).decode().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert [line["hash"] for line in lines] == [
        event.hash for event in Event.objects.filter(run=waiting.run).order_by("seq")
    ]


def test_the_chain_of_a_run_is_checked_on_demand(client: Client) -> None:
    run = make_waiting().run
    url = f"/admin/runs/run/{run.pk}/verify/"
    assert "holds" in client.post(url, follow=True).content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE runs_event SET actor = 'user:mallory' WHERE seq = 2")
        cursor.execute("SET session_replication_role = origin")
    assert "broken" in client.post(url, follow=True).content.decode()
    assert client.get(url).status_code == 405


def test_what_the_model_was_shown_is_built_again(client: Client) -> None:
    spec = {"instructions": "Be exact.", "model": "m", "settings": {}, "tools": []}
    manifest = {"version": MANIFEST_VERSION, "frame": Frame(task_state={"left": 3}).stored()}
    run = make_run(agent_version=make_agent_version(spec=spec))
    make_waiting(run=run, turn={"manifest": manifest})
    page = Page(client.get(f"/admin/runs/run/{run.pk}/turn/1/").content.decode())
    shown = " ".join(page.text_of("pre"))
    assert "Refund order ORD-77, it arrived damaged." in shown
    assert "Be exact." in shown
    # These rows were not made by a real call, so the page has to say that the hash differs.
    assert "The hash differs from the stored one" in " ".join(page.text_of("div"))
