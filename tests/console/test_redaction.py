"""What a tool keeps secret is nowhere; showing it takes a right and leaves an event."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client

from agentcore.observed import fold, place_in
from runs.console.redaction import HIDDEN, Redactor
from runs.models import Event
from tests.console.world import attempt, make_desk
from tests.factories import force_state, make_user
from tools import registry

CANARY = "ORD-4711"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def secret_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool hides which order it is about."""
    spec = registry.get("refund_desk.submit_refund")
    assert spec is not None
    hiding = replace(spec, redact=("order_id",))
    monkeypatch.setattr(registry, "get", lambda _: hiding)
    monkeypatch.setattr(registry, "all_tools", lambda: (hiding,))


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


def everywhere() -> tuple[str, list[str]]:
    """A run with the secret wherever a model, a tool or an event may repeat it."""
    desk = make_desk(arguments={"order_id": CANARY, "amount": "80.00 EUR", "reason": "damaged"})
    waiting = desk.waiting
    call = {"type": "function_call", "arguments": json.dumps({"order_id": CANARY, "x": 1})}
    said = f"I send {CANARY} now"
    force_state(waiting.action, result={"echo": CANARY}, observation=said, detail=said)
    force_state(waiting.run, output={"text": said}, reason=said, input={"request": said})
    deep = {"deep": [{"order_id": CANARY}]}
    at = waiting.run.created_at
    attempt(
        waiting.action, kind="PRECHECK", outcome="SUCCESS", result=deep, detail=said, ended_at=at
    )
    run = str(waiting.run.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE runs_turn SET output = %s, text = %s", [json.dumps([call]), said])
        cursor.execute(
            "UPDATE runs_event SET data = %s WHERE run_id = %s", [json.dumps({"said": said}), run]
        )
        cursor.execute("SET session_replication_role = origin")
    files = ["/admin/approvals.csv", f"/admin/runs/run/{run}/events.ndjson"]
    return run, [*[url for url in desk.pages() if not url.endswith("/edit/")], *files]


def test_what_is_stored_as_a_place_is_shown_in_full_without_secrets(client: Client) -> None:
    run, _ = everywhere()
    said = f"{'I look into it. ' * 20}It is {CANARY}, I wrote."
    output = json.dumps([{"type": "message", "content": said}])
    told = json.dumps({"data": {"echo": said}, "tool": "t"}, sort_keys=True)
    stored = fold(told, {"echo": said})
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE runs_turn SET output = %s, text = %s", [output, place_in(output, said)]
        )
        cursor.execute(
            "UPDATE runs_actionjournal SET result = %s, observation = %s WHERE run_id = %s",
            [json.dumps({"echo": said}), stored, run],
        )
        cursor.execute("SET session_replication_role = origin")
    assert CANARY not in place_in(output, said) + stored
    for tab in ("turns", "actions"):
        page = client.get(f"/admin/runs/run/{run}/change/?tab={tab}").content.decode()
        assert "I look into it. I look into it." in page, tab
        assert ", I wrote." in page, tab
        assert not any(word in page for word in (CANARY, "@output", "@result")), tab


@pytest.mark.requirement("R105")
def test_a_secret_is_on_no_page_and_in_no_file(client: Client) -> None:
    _, urls = everywhere()
    for url in urls:
        response = client.get(url)
        assert response.status_code == 200, url
        assert CANARY not in b"".join(response).decode(), url


def test_showing_it_takes_a_right_and_leaves_an_event(client: Client) -> None:
    run, _ = everywhere()
    url = f"/admin/runs/run/{run}/reveal/"
    plain = Client()
    user = make_user("ada")
    plain.force_login(user)
    assert plain.post(url, {"tab": "actions"}).status_code == 403
    assert plain.get(url).status_code == 405
    assert not Event.objects.filter(type="run.revealed").exists()
    user.user_permissions.add(Permission.objects.get(codename="reveal_redacted"))
    assert CANARY not in plain.get(f"/admin/runs/run/{run}/change/?tab=actions").content.decode()
    shown = plain.post(url, {"tab": "actions"})
    assert CANARY in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    event = Event.objects.get(type="run.revealed")
    assert (event.actor, event.data["what"]) == ("user:ada", "actions")


def test_names_and_values_are_found_inside_json_and_text() -> None:
    redactor = Redactor(frozenset({"note"}), ("s3cret", "4711"))
    assert redactor.json({"note": 1, "a": ["say s3cret!", 4711, True]}) == {
        "note": HIDDEN,
        "a": [f"say {HIDDEN}!", HIDDEN, True],
    }
    assert json.loads(redactor.text('{"note": "x", "b": 2}')) == {"note": HIDDEN, "b": 2}
    assert redactor.text("{not json s3cret") == f"{{not json {HIDDEN}"
    assert Redactor(frozenset({"note"}), ("x",), reveal=True).json({"note": "x"}) == {"note": "x"}
