"""A start looks its token up in the transaction that makes the run, and costs two round trips."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from psycopg.pq import Trace

from runs import prepared, services
from runs.access_models import ApiToken
from runs.api import remembering
from runs.models import Run
from runs.refusals import Refused
from runs.rest_models import WebhookDelivery
from runs.selectors import database_clock
from runs.webhooks.endpoints import create_endpoint
from tests.runs.api_support import (
    AGENT,
    Api,
    assert_problem,
    body_for,
    caller,
    declare_agent,
    make_token,
    request_for,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api() -> Api:
    """A caller that this process remembers."""
    declare_agent()
    made = Api(make_token())
    assert made.post_run().status_code == 201
    return made


@contextmanager
def _sent() -> Iterator[list[str]]:
    """The queries that libpq sends for this thread, whole, in their order."""
    connection.ensure_connection()
    raw = connection.connection.pgconn
    found: list[str] = []
    with tempfile.NamedTemporaryFile("r") as file:
        raw.trace(os.open(file.name, os.O_WRONLY | os.O_APPEND))
        raw.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield found
        finally:
            raw.untrace()
        said = re.split(r"^([FB])\t\d+\t(\w+)", file.read(), flags=re.MULTILINE)[1:]
        messages = zip(said[::3], said[1::3], said[2::3], strict=True)
        found += [text.strip('\t\n "') for side, kind, text in messages if (side, kind) == SENT]


SENT = ("F", "Query")


def test_a_start_is_two_round_trips(api: Api) -> None:
    for _ in range(3):
        api.post_run()  # prepares the statements
    with _sent() as sent:
        assert api.post_run().status_code == 201
    first, second = sent
    assert first.startswith("BEGIN; EXECUTE ")
    assert second.endswith("; COMMIT")
    assert Run.objects.count() == 5


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"revoked_at": "2026-01-01T00:00:00Z"}, "revoked"),
        ({"expires_at": "2026-01-01T00:00:00Z"}, "expired"),
    ],
)
def test_a_remembered_token_that_is_no_longer_good_starts_nothing(
    api: Api, change: dict[str, Any], word: str
) -> None:
    ApiToken.objects.update(**change)
    problem = assert_problem(api.post_run(), 401, "unauthenticated")
    assert word in problem["detail"]
    assert Run.objects.count() == 1


def test_a_token_that_was_forgotten_by_the_database_starts_nothing(api: Api) -> None:
    ApiToken.objects.all().delete()
    assert_problem(api.post_run(), 401, "unauthenticated")
    assert Run.objects.count() == 1


@pytest.mark.parametrize("body", [{"agent": "nobody", "input": {}}, {}, [1]])
def test_it_is_not_told_what_is_wrong_with_its_request(api: Api, body: Any) -> None:
    assert_problem(api.post_run(body), 422, "invalid_input")
    ApiToken.objects.update(revoked_at=database_clock())
    assert_problem(api.post_run(body), 401, "unauthenticated")


def test_what_a_token_may_do_is_what_is_stored_now(api: Api) -> None:
    ApiToken.objects.update(scopes=["runs:write", "one.more"])
    assert api.post_run().status_code == 201
    assert Run.objects.latest("id").scopes == ["runs:write", "one.more"]
    ApiToken.objects.update(agents=["another"])
    assert_problem(api.post_run(), 403, "agent_forbidden")
    ApiToken.objects.update(agents=[AGENT], scopes=["runs:read"])
    assert_problem(api.post_run(), 403, "scope_missing")
    assert Run.objects.count() == 2


def test_an_answer_is_given_again_only_to_a_good_token(api: Api) -> None:
    assert api.post_run(key="k").status_code == 201
    assert api.post_run(key="k")["Idempotency-Replayed"] == "true"
    ApiToken.objects.update(revoked_at=database_clock())
    assert_problem(api.post_run(key="k"), 401, "unauthenticated")


def test_no_answer_is_given_again_for_what_is_refused_before_the_token_is_compared(
    api: Api,
) -> None:
    assert api.post_run(key="k").status_code == 201
    ApiToken.objects.update(agents=["another"])
    assert_problem(api.post_run(), 403, "agent_forbidden")
    ApiToken.objects.update(revoked_at=database_clock())
    assert_problem(api.post_run(key="k"), 401, "unauthenticated")


def test_a_session_without_its_csrf_token_is_refused(api: Api) -> None:
    api.headers = {}
    api.client.force_login(User.objects.create_user("anna", is_staff=True))
    api.client.handler.enforce_csrf_checks = True
    assert "X-CSRFToken" in assert_problem(api.post_run(), 403, "scope_missing")["detail"]


def test_refusals_prepare_nothing_more(api: Api) -> None:
    """A client that asks again and again for what is open already."""

    def refused(times: int) -> int:
        """How many statements the connection has prepared after so many more refusals."""
        for _ in range(times):
            assert_problem(api.post_run(body_for(dedupe_key="one")), 409, "dedupe_open_run")
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'ac\\_%'")
            return int(cursor.fetchone()[0])

    assert api.post_run(body_for(dedupe_key="one")).status_code == 201
    known = refused(prepared.AFTER + 2)
    assert refused(12) == known
    assert api.post_run(body_for(dedupe_key="two")).status_code == 201


def test_the_use_of_a_token_is_noted_although_it_is_remembered(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = database_clock() - timedelta(hours=1)
    ApiToken.objects.update(last_used_at=long_ago)
    monkeypatch.setattr(remembering, "_known", {})  # as after `SECONDS`
    api.post_run()
    assert ApiToken.objects.get().last_used_at > long_ago
    assert remembering.SECONDS < 60


def test_no_more_callers_are_remembered_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_agent()
    monkeypatch.setattr(remembering, "MOST", 2)
    monkeypatch.setattr(remembering, "_known", known := {})
    for name in ("a", "b", "c"):
        assert Api(make_token(name=name)).post_run().status_code == 201
        assert len(known) <= 2


def test_prepared_statements_that_are_gone_cost_no_start(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that gives each transaction another connection."""
    for _ in range(3):
        api.post_run()
    monkeypatch.setattr(prepared, "_possible", True)
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert api.post_run().status_code == 201
    assert not prepared._possible
    assert Run.objects.count() == 5


# --- who is told -------------------------------------------------------------------------------


def _told() -> list[str]:
    return list(WebhookDelivery.objects.order_by("seq").values_list("type", flat=True))


def test_an_endpoint_that_was_there_is_told_of_the_next_run(api: Api) -> None:
    assert _told() == []
    create_endpoint(caller=caller(), url="https://hooks.example.org/a")
    assert api.post_run(body_for()).status_code == 201
    assert _told() == ["run.created"]


def test_an_endpoint_made_while_a_run_starts_is_told_of_what_follows() -> None:
    """The look for endpoints is that of the moment in which the event says it was."""
    declare_agent()

    def elsewhere() -> None:
        create_endpoint(caller=caller(), url="https://hooks.example.org/a")
        connection.close()

    def answer(run: Run) -> tuple[int, dict[str, str]]:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere).result(10)
        return 201, {"id": run.id.hex}

    once = services.Once("p", "POST", "/r", "k", "d" * 64, answer, tenant=caller().tenant)
    services.start_run_once(caller=caller(), request=request_for(), once=once)
    assert _told() == []
    services.cancel_run(run_id=Run.objects.get().id, actor="token:desk", reason="")
    assert _told() == ["run.cancelling"]


def test_who_does_not_look_for_endpoints_asks_the_outbox() -> None:
    """A start without an idempotency key, such as a retry of a bulk operation."""
    declare_agent()
    create_endpoint(caller=caller(), url="https://hooks.example.org/a")
    services.start_run(caller=caller(), request=request_for())
    assert _told() == ["run.created"]
    with pytest.raises(Refused):
        services.start_run(caller=caller(), request=request_for(agent="nobody"))


# --- what is answered --------------------------------------------------------------------------


def test_the_answer_is_the_run_as_it_is_read(api: Api) -> None:
    """Also a member that the first run of the agent had otherwise, in any order."""
    session = api.post("/sessions").json()["id"]
    soon = (database_clock() + timedelta(minutes=3)).replace(microsecond=0).isoformat()
    asked: list[dict[str, Any]] = [
        {},
        {"session": session, "on_behalf_of": "anna", "priority": "high", "dry_run": True},
        {"dedupe_key": "one", "metadata": {"a": "\u2028ä<"}, "ttl_seconds": 60},
        {"budget": {"max_turns": 2, "max_actions": 1, "max_tokens": 5000, "deadline_at": soon}},
        {"input": {"order_id": "B", "note": "é", "weight": 0.5}, "start_at": soon},
        {},
    ]
    for more in asked:
        response = api.post_run(body_for(**more), traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
        assert response.status_code == 201, response.content
        made = response.json()
        assert made == api.get(f"/runs/{made['id']}").json()
        assert made["trace_id"] == "a" * 32
        assert response["Location"] == made["links"]["self"]
        assert response["Content-Type"] == "application/json"
