"""A lost reply, settled by somebody else than the probe: the downstream itself, or people."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from config.embedded import Stack
from examples.refund_desk.admin_client import AdminSession, Form, read_forms
from tests.world import World, get_json, manage, open_world, post_json, uuid_of, wait_for

SECRET = "whsec_" + base64.b64encode(b"a secret of the payment service!").decode()
SOURCES = {"payments": {"secrets": [SECRET], "tools": ["refund_desk.*"]}}
PEOPLE = """
from django.contrib.auth.models import User
User.objects.create_superuser("second", "", "second-password")
"""


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("unknown")
    with open_world(stack, folder, AGENTCORE_CALLBACKS=json.dumps(SOURCES)) as made:
        made.start_web()
        made.start_worker()
        manage(made, "shell", "-v0", "-c", PEOPLE)
        yield made


def _listen(world: World, *, on_refund: bool = False) -> None:
    """Tell the payment service where to send its webhooks."""
    assert world.web is not None
    url = f"{world.web.url}/api/v1/callbacks/payments"
    body = {"url": url, "secret": SECRET, "on_refund": on_refund}
    post_json(f"{world.payment.url}/webhooks", body)


def _action(world: World, run_id: str) -> tuple[str, str, int]:
    """(id, state, probes) of the refund."""
    (row,) = world.query(
        "SELECT id::text, state, probes FROM runs_actionjournal"
        " WHERE run_id = %s AND tool = 'refund_desk.submit_refund'",
        uuid_of(run_id),
    )
    return row


def _unknown(world: World, run_id: str, state: str = "UNKNOWN") -> str:
    """The id of the refund once it is in this state."""

    def reached() -> str:
        rows = world.query(
            "SELECT id::text FROM runs_actionjournal WHERE run_id = %s AND state = %s"
            " AND tool = 'refund_desk.submit_refund'",
            uuid_of(run_id),
            state,
        )
        return rows[0][0] if rows else ""

    return wait_for(reached, seconds=20, what=f"the refund is {state}")


@pytest.mark.requirement("R52", "R110")
def test_the_downstream_settles_it_before_any_probe_and_twice(world: World) -> None:
    _listen(world)
    order = "ORD-8001"
    world.fault(mode="commit_then_drop", order_id=order)
    run_id = world.refund(order)
    _unknown(world, run_id)
    (refund,) = world.refunds(order)
    notify = f"{world.payment.url}/refunds/{refund['id']}/notify"
    answers = [post_json(notify, {}) for _ in range(2)]

    assert world.finish(run_id)["status"] == "completed"
    assert [a["body"]["outcome"] for a in answers] == ["succeed", "succeed"]
    assert [a["body"]["repeated"] for a in answers] == [False, True]
    assert _action(world, run_id)[1:] == ("SUCCEEDED", 0), "no probe was needed"
    assert len(world.refunds(order)) == 1
    seqs = world.event_seqs(run_id)
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.requirement("R110")
@pytest.mark.parametrize("lost", [False, True])
def test_the_downstream_is_faster_than_its_own_reply(world: World, lost: bool) -> None:
    """The callback is there before the reply of the request that it is about, or instead of it."""
    _listen(world, on_refund=True)
    order = f"ORD-801{int(lost)}"
    if lost:
        world.fault(mode="commit_then_drop", order_id=order)
    run_id = world.refund(order)

    assert world.finish(run_id)["status"] == "completed"
    assert _action(world, run_id)[1:] == ("SUCCEEDED", 0)
    (refund,) = world.refunds(order)
    rows = world.query("SELECT did, word FROM runs_callback WHERE reference = %s", refund["id"])
    assert rows == [("SUCCEED", "SUCCEEDED")]
    attempts = world.query(
        "SELECT outcome FROM runs_attempt WHERE run_id = %s AND kind = 'TOOL'"
        " AND idempotency_key <> ''",
        uuid_of(run_id),
    )
    assert attempts == [("AMBIGUOUS" if lost else "SUCCESS",)], "the reply is recorded all the same"
    assert world.query("SELECT count(*) FROM runs_incident WHERE run_id = %s", uuid_of(run_id)) == [
        (0,)
    ]


def _session(world: World, user: str) -> AdminSession:
    assert world.web is not None
    session = AdminSession(url=world.web.url)
    session.sign_in(user=user, password=f"{user}-password")
    return session


def _say(world: World, user: str, action: str, verdict: str, **fields: str) -> str:
    """Give a verdict through the page's own form; the page that answers."""
    assert world.web is not None
    page = f"{world.web.url}/admin/unknown/{action}/"
    session = _session(world, user)
    form: Form = next(f for f in read_forms(session.read(page)) if "action_revision" in f.fields)
    given = {"verdict": verdict, "evidence": "seen in the dashboard of the payment service"}
    return session._post(page, form, {**given, **fields})


@pytest.fixture(autouse=True)
def _quiet(world: World) -> Iterator[None]:
    """No fault and no receiver outlives a test."""
    yield
    for path in ("webhooks", "faults"):
        _delete(f"{world.payment.url}/{path}")


def _delete(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=10) as reply:
        assert reply.status == 200


def _blind(world: World) -> None:
    """From now on the probe gets no answer."""
    world.fault(mode="error_before_commit", target="GET /refunds", times=1000)


def _seeing(world: World, run_id: str) -> dict[str, Any]:
    """The end of the run, once the payment service can be asked again."""
    _delete(f"{world.payment.url}/faults")
    return world.finish(run_id)


@pytest.mark.requirement("R52", "R107", "R108")
def test_a_person_says_that_it_happened_and_the_run_goes_on(world: World) -> None:
    _blind(world)
    order = "ORD-8101"
    world.fault(mode="commit_then_drop", order_id=order)
    run_id = world.refund(order)
    action = _unknown(world, run_id)
    (refund,) = world.refunds(order)
    page = _say(world, "boss", action, "EFFECT_EXISTS", downstream_ref=refund["id"])
    assert "Recorded: it happened" in page
    done = _seeing(world, run_id)
    assert done["status"] == "completed", done
    assert _action(world, run_id)[1] == "SUCCEEDED"
    assert len(world.refunds(order)) == 1
    said = world.query(
        "SELECT person, verdict, downstream_ref FROM runs_reconciliation WHERE run_id = %s",
        uuid_of(run_id),
    )
    assert said == [("user:boss", "EFFECT_EXISTS", refund["id"])]


@pytest.mark.requirement("R52", "R107")
def test_two_people_have_it_sent_again_with_the_same_key(world: World) -> None:
    _blind(world)
    order = "ORD-8102"
    world.fault(mode="drop_before_commit", order_id=order)
    run_id = world.refund(order)
    action = _unknown(world, run_id)

    assert "Nothing is sent before a second person agrees" in _say(
        world, "boss", action, "RESEND_SAME_KEY"
    )
    assert _action(world, run_id)[1] == "NEEDS_HUMAN"
    assert world.refunds(order) == []
    assert "Granted by two people" in _say(world, "second", action, "RESEND_SAME_KEY")

    assert _seeing(world, run_id)["status"] == "completed"
    (refund,) = world.refunds(order)
    keys = world.query(
        "SELECT n, outcome, idempotency_key FROM runs_attempt WHERE action_id = %s"
        " AND kind = 'TOOL' ORDER BY n",
        action,
    )
    assert [row[:2] for row in keys] == [(1, "AMBIGUOUS"), (2, "SUCCESS")]
    assert {row[2] for row in keys} == {refund["idempotency_key"]}


@pytest.mark.requirement("R107")
def test_a_person_has_the_downstream_asked_now(world: World) -> None:
    order = "ORD-8103"
    world.fault(mode="commit_then_drop", order_id=order)
    run_id = world.refund(order)
    action = _unknown(world, run_id)
    assert world.web is not None
    page = f"{world.web.url}/admin/unknown/{action}/"
    session = _session(world, "boss")
    html = session.read(page)
    probe = next(f for f in read_forms(html) if f.action.endswith("/probe/"))
    before = get_json(f"{world.payment.url}/requests")["by_route"].get("GET /refunds", 0)
    assert "The downstream is being asked" in session._post(page, probe, {})
    assert world.finish(run_id)["status"] == "completed"
    assert get_json(f"{world.payment.url}/requests")["by_route"]["GET /refunds"] > before
    asked = world.query(
        "SELECT actor FROM runs_event WHERE run_id = %s AND type = 'action.probe_asked'",
        uuid_of(run_id),
    )
    assert asked == [("user:boss",)]
