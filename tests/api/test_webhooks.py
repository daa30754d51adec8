"""Webhooks: in the outbox with the event, signed, sent until taken, never to a private address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest
from django.conf import settings
from django.db import transaction
from openai import InvalidWebhookSignatureError, OpenAI
from standardwebhooks import Webhook, WebhookVerificationError

from runs import outcomes, services
from runs.api.webhooks import EventType
from runs.models import Event, Run
from runs.rest_models import WebhookDelivery, WebhookEndpoint
from runs.selectors import database_clock
from runs.webhooks import sending
from runs.webhooks.outbox import EVENT_TYPES
from tests.api.receiver import Receiver, receiver
from tests.factories import TENANT, make_run
from tests.runs.api_support import Api, assert_problem

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def target() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    options = settings.AGENTCORE_OPTIONS.model_copy(
        update={"webhook_networks": "127.0.0.0/8", "webhook_timeout": 2.0}
    )
    monkeypatch.setattr(settings, "AGENTCORE_OPTIONS", options)


def _endpoint(api: Api, target: Receiver, **more: Any) -> dict[str, Any]:
    answer = api.send("POST", "/webhook_endpoints", {"url": f"{target.url}/hook", **more})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def _ended(run: Run) -> Run:
    services.cancel_run(run_id=run.id, actor="user:olga")
    run.refresh_from_db()
    return run


def _due_now() -> None:
    WebhookDelivery.objects.update(next_try_at=database_clock())


def test_a_delivery_is_signed_so_that_other_libraries_read_it(api: Api, target: Receiver) -> None:
    made = _endpoint(api, target)
    run = _ended(make_run(tenant=TENANT, metadata={"order": "77"}))
    assert sending.deliver_due() == 2
    kinds = {json.loads(message.body)["type"] for message in target.messages}
    assert kinds == {"run.created", "run.cancelling"}
    for message in target.messages:
        body = Webhook(made["secret"]).verify(message.body, message.headers)
        assert body["data"]["run"] == f"run_{run.id.hex}"
        assert body["data"]["metadata"] == {"order": "77"}
        event = Event.objects.get(run=run, seq=body["data"]["seq"])
        assert (
            message.headers["webhook-id"] == body["data"]["id"] == f"evt_{run.id.hex}_{event.seq}"
        )
        assert len(message.body) < 20_000
        client = OpenAI(api_key="x", webhook_secret=made["secret"])
        unwrapped = client.webhooks.unwrap(message.body, message.headers)
        assert unwrapped.data.id == body["data"]["id"]
        with pytest.raises(WebhookVerificationError):
            Webhook(made["secret"]).verify(message.body + b" ", message.headers)
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.unwrap(message.body.replace(b"77", b"78"), message.headers)
        client.close()
    listed = api.get("/webhook_deliveries", status="delivered").json()["data"]
    assert [item["last_status"] for item in listed] == [200, 200]


@pytest.mark.requirement("R55")
def test_the_outbox_row_stands_and_falls_with_the_event(api: Api, target: Receiver) -> None:
    _endpoint(api, target)
    run = make_run(tenant=TENANT)
    assert WebhookDelivery.objects.get().seq == 1
    with transaction.atomic():
        make_run(tenant=TENANT)
        assert WebhookDelivery.objects.count() == 2
        transaction.set_rollback(True)
    assert WebhookDelivery.objects.get().run_id == run.id


def test_an_endpoint_gets_what_it_asked_for_and_of_its_tenant_alone(
    api: Api, target: Receiver
) -> None:
    ended = _endpoint(api, target, events=["run.cancelled", "run.cancelling"])
    everything = _endpoint(api, target)
    _ended(make_run(tenant=TENANT))
    _ended(make_run(tenant="other"))
    rows = WebhookDelivery.objects.values_list("endpoint_id", "type", "tenant")
    found = {(f"whep_{endpoint.hex}", kind) for endpoint, kind, _ in rows}
    assert {tenant for _, _, tenant in rows} == {TENANT}
    assert found == {
        (ended["id"], "run.cancelling"),
        (everything["id"], "run.created"),
        (everything["id"], "run.cancelling"),
    }


def test_a_run_that_names_an_endpoint_tells_no_other(api: Api, target: Receiver) -> None:
    named, _ = _endpoint(api, target), _endpoint(api, target)
    body = {"agent": "api_desk", "input": {"order_id": "A"}, "webhook_endpoint": named["id"]}
    assert api.post("/runs", body).status_code == 201
    assert f"whep_{WebhookDelivery.objects.get().endpoint_id.hex}" == named["id"]
    unknown = {**body, "webhook_endpoint": "whep_" + "0" * 32}
    assert_problem(api.post("/runs", unknown), 422, "invalid_input")


def test_every_type_of_the_outbox_may_be_asked_for() -> None:
    assert get_args(EventType) == ("*", *EVENT_TYPES)


def test_the_later_word_of_the_business_is_told(api: Api, target: Receiver) -> None:
    _endpoint(api, target, events=["run.business_result"])
    run = _ended(make_run(tenant=TENANT))
    assert api.get(f"/runs/run_{run.id.hex}").json()["business_outcome"] == "no_effect"
    assert not WebhookDelivery.objects.exists()
    outcomes.record_business_result(
        run_id=run.id, outcome="settled", source="bank", detail="booked", actor="source:bank"
    )
    assert sending.deliver_due() == 1
    (message,) = target.messages
    assert json.loads(message.body)["type"] == "run.business_result"
    assert api.get(f"/runs/run_{run.id.hex}").json()["business_outcome"] == "settled"


def test_it_tries_again_on_schedule_with_the_same_id_and_gives_up(
    api: Api, target: Receiver
) -> None:
    _endpoint(api, target, events=["run.created"])
    make_run(tenant=TENANT)
    target.answers = [(500, {})] * sending.TRIES
    for tries in range(1, sending.TRIES + 1):
        _due_now()
        before = database_clock()
        assert sending.deliver_due() == 1
        row = WebhookDelivery.objects.get()
        assert (row.tries, row.last_status, row.claim) == (tries, 500, None)
        if tries < sending.TRIES:
            planned = sending.DELAYS[tries - 1]
            waits = (row.next_try_at - before).total_seconds()
            assert 0.94 * planned < waits < 1.06 * planned + 5
            assert sending.deliver_due() == 0
    assert row.status == "DEAD"
    assert len({message.headers["webhook-id"] for message in target.messages}) == 1
    (dead,) = api.get("/webhook_deliveries", status="dead").json()["data"]
    assert (dead["tries"], dead["last_error"]) == (10, "answered 500")
    again = api.send("POST", f"/webhook_deliveries/{dead['id']}/redeliver")
    assert (again.status_code, again.json()["status"]) == (202, "pending")
    assert sending.deliver_due() == 1
    assert WebhookDelivery.objects.get().status == "DELIVERED"


def test_retry_after_may_only_add(api: Api, target: Receiver) -> None:
    _endpoint(api, target, events=["run.created"])
    make_run(tenant=TENANT)
    target.answers = [(429, {"Retry-After": "900"})]
    sending.deliver_due()
    waits = WebhookDelivery.objects.get().next_try_at - database_clock()
    assert timedelta(seconds=880) < waits <= timedelta(seconds=900)


def test_410_disables_the_endpoint(api: Api, target: Receiver) -> None:
    made = _endpoint(api, target)
    make_run(tenant=TENANT)
    target.answers = [(410, {})]
    sending.deliver_due()
    shown = api.get(f"/webhook_endpoints/{made['id']}").json()
    assert (shown["enabled"], shown["disabled_reason"]) == (False, "it answered 410 Gone")
    assert WebhookDelivery.objects.get().status == "DEAD"
    make_run(tenant=TENANT)
    assert WebhookDelivery.objects.count() == 1
    dead = api.get("/webhook_deliveries").json()["data"][0]["id"]
    path = f"/webhook_deliveries/{dead}/redeliver"
    assert_problem(api.send("POST", path), 422, "invalid_input")
    api.send("PATCH", f"/webhook_endpoints/{made['id']}", {"enabled": True})
    assert api.send("POST", path).status_code == 202


def test_a_redirect_is_not_followed(api: Api, target: Receiver) -> None:
    _endpoint(api, target, events=["run.created"])
    make_run(tenant=TENANT)
    target.answers = [(302, {"Location": f"{target.url}/elsewhere"})]
    sending.deliver_due()
    assert [message.path for message in target.messages] == ["/hook"]
    assert "redirects are not followed" in WebhookDelivery.objects.get().last_error


def test_a_receiver_that_does_not_answer_is_left_after_the_time_limit(
    api: Api, target: Receiver
) -> None:
    _endpoint(api, target, events=["run.created"])
    make_run(tenant=TENANT)
    target.stalls = True
    sending.deliver_due()
    row = WebhookDelivery.objects.get()
    assert (row.status, row.last_status) == ("PENDING", None)
    assert row.last_error.startswith("read_timeout")


@pytest.mark.requirement("R65")
def test_a_sender_that_dies_leaves_the_delivery_to_the_next(api: Api, target: Receiver) -> None:
    _endpoint(api, target, events=["run.created"])
    make_run(tenant=TENANT)
    (taken,) = sending.claim_due(limit=8)
    assert sending.claim_due(limit=8) == []  # it is being sent
    WebhookDelivery.objects.update(claimed_until=database_clock() - timedelta(seconds=1))
    assert sending.deliver_due() == 1
    sending.record_try(delivery=taken.delivery, sent=sending.Sent(500))
    row = WebhookDelivery.objects.get()  # the late word of the dead does not count
    assert (row.status, row.last_status, row.last_error) == ("DELIVERED", 200, "")


def test_one_endpoint_takes_only_part_of_the_threads(api: Api, target: Receiver) -> None:
    slow, quick = _endpoint(api, target), _endpoint(api, target)
    for _ in range(10):
        make_run(tenant=TENANT)
    taken = [f"whep_{item.endpoint.id.hex}" for item in sending.claim_due(limit=8)]
    assert sorted(taken) == sorted([slow["id"], quick["id"]] * sending.PER_ENDPOINT)


# --- endpoints ---------------------------------------------------------------------------


def test_the_secret_is_shown_once_and_not_stored(api: Api, target: Receiver) -> None:
    made = _endpoint(api, target)
    shown = api.get(f"/webhook_endpoints/{made['id']}").json()
    assert made["secret"].startswith("whsec_")
    assert "secret" not in shown
    assert shown == {key: value for key, value in made.items() if key != "secret"}
    assert made["secret"][6:] not in str(WebhookEndpoint.objects.values())


def test_after_a_rotation_both_secrets_are_valid_for_a_while(api: Api, target: Receiver) -> None:
    made = _endpoint(api, target, events=["run.created"])
    new = api.send("POST", f"/webhook_endpoints/{made['id']}/rotate_secret").json()
    assert new["secret"] != made["secret"]
    make_run(tenant=TENANT)
    sending.deliver_due()
    WebhookEndpoint.objects.update(previous_until=database_clock() - timedelta(seconds=1))
    make_run(tenant=TENANT)
    sending.deliver_due()
    both, one = target.messages
    for secret in (made["secret"], new["secret"]):
        Webhook(secret).verify(both.body, both.headers)
    Webhook(new["secret"]).verify(one.body, one.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(made["secret"]).verify(one.body, one.headers)


def test_an_endpoint_is_changed_and_deleted(api: Api, target: Receiver) -> None:
    made = _endpoint(api, target)
    path = f"/webhook_endpoints/{made['id']}"
    changed = api.send("PATCH", path, {"description": "billing", "events": ["run.failed"]}).json()
    assert (changed["description"], changed["events"]) == ("billing", ["run.failed"])
    assert api.send("PATCH", path, {"enabled": False}).json()["disabled_reason"] == "by request"
    assert [item["id"] for item in api.get("/webhook_endpoints").json()["data"]] == [made["id"]]
    assert api.send("DELETE", path).status_code == 204
    assert_problem(api.get(path), 404, "not_found")
    assert_problem(api.send("DELETE", path), 404, "not_found")
    assert api.get("/webhook_endpoints").json()["data"] == []
