"""A bulk operation lets nobody see or do more than one request at a time would."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from runs import chores
from runs.models import Run
from tests.api.test_operating import _failed, _make, _start
from tests.factories import TENANT, make_run
from tests.runs.api_support import AGENT, ALL_SCOPES, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_caller_of_some_agents_has_no_operation_on_others(api: Api) -> None:
    run = make_run(tenant=TENANT)  # of an agent that the bound token is not for
    made = _make(api)
    bound = Api(make_token(name="bound", tenant=TENANT, agents=[AGENT]))
    path = f"/bulk_operations/{made['id']}"
    assert_problem(bound.get(f"/runs/run_{run.id.hex}"), 404, "not_found")
    assert_problem(bound.get(path), 404, "not_found")
    assert_problem(_start(bound, made), 404, "not_found")
    assert_problem(bound.post(f"{path}/abort"), 404, "not_found")
    assert api.get(path).json()["status"] == "ready"


def test_a_caller_of_some_agents_has_an_operation_on_them(api: Api) -> None:
    body: dict[str, Any] = {"agent": AGENT, "input": {"order_id": "A"}}
    api.post("/runs", body)
    made = _make(api)
    bound = Api(make_token(name="bound", tenant=TENANT, agents=[AGENT]))
    assert bound.get(f"/bulk_operations/{made['id']}").json()["total"] == 1
    assert _start(bound, made).status_code == 202


def test_a_retry_has_the_scopes_of_who_started_the_operation(api: Api) -> None:
    first = _failed(api)
    made = _make(api, verb="retry", filter={"status": ["failed"]})
    fewer = [scope for scope in ALL_SCOPES if scope != "billing.refund"]
    other = Api(make_token(name="fewer", tenant=TENANT, scopes=fewer))
    assert _start(other, made).status_code == 202
    chores.do_once()
    again = Run.objects.get(retry_of_id=first.pk)
    assert again.principal == "token:fewer"
    assert "billing.refund" not in again.scopes


def test_what_starts_an_operation_is_stored_nowhere_and_answered_again(api: Api) -> None:
    """An answer is kept for 30 days, the token is of use for 30 minutes."""
    make_run(tenant=TENANT)
    asked = {"verb": "cancel", "filter": {"status": ["queued"]}, "dry_run": False}
    made = api.post("/bulk_operations", asked, key="k").json()
    assert len(made["confirm_token"]) >= 22
    token = f"%{made['confirm_token']}%"
    for table in ("runs_idempotencyrecord", "runs_bulkoperation", "runs_bulkitem", "runs_event"):
        with connection.cursor() as cursor:
            query = f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s"  # noqa: S608
            cursor.execute(query, [token])
            assert cursor.fetchone() == (0,)
    again = api.post("/bulk_operations", asked, key="k")
    assert (again["Idempotency-Replayed"], again.json()) == ("true", made)
    assert _make(api)["confirm_token"] != made["confirm_token"]
    assert _start(api, again.json()).status_code == 202
