"""Every endpoint, with another tenant's ids and with a token of every other scope.

The endpoints come from the OpenAPI document, so a new one is walked without being listed here; an
id or a body that this file cannot make is a failure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.urls import resolve

from runs.api.auth import SCOPES
from runs.models import AgentVersion
from runs.rest_models import BulkOperation, Session, WebhookDelivery, WebhookEndpoint
from tests.factories import TENANT, make_waiting
from tests.runs.api_support import AGENT, Api, assert_problem, make_token

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
PATHS: dict[str, dict[str, Any]] = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
SIGNED = {"/api/v1/callbacks/{source}"}
"""Not for callers: the signature is the authentication."""
ROUTES = [(method, path) for path, item in PATHS.items() if path not in SIGNED for method in item]
INSTALLED = {"name"}
"""Path parameters that name what is installed, for every tenant alike."""
HASH = "0" * 64
BODIES: dict[str, Any] = {
    "/runs": {"agent": AGENT, "input": {"order_id": "A"}},
    "/runs/{run_id}/cancel": {"reason": "theirs"},
    "/runs/{run_id}/pause": {},
    "/runs/{run_id}/resume": {},
    "/runs/{run_id}/retry": {},
    "/approvals/{approval_id}/decisions": {"decision": "approve", "params_hash": HASH},
    "/approvals/{approval_id}/claim": None,
    "/approvals/{approval_id}/escalate": {"params_hash": HASH, "reason": "theirs"},
    "/sessions": {},
    "/webhook_endpoints": {"url": "https://example.com/hook"},
    "/webhook_endpoints/{endpoint_id}": {"description": "mine now"},
    "/webhook_endpoints/{endpoint_id}/rotate_secret": None,
    "/webhook_deliveries/{delivery_id}/redeliver": None,
    "/bulk_operations": {"verb": "cancel", "filter": {"status": ["requires_action"]}},
    "/bulk_operations/{operation_id}/start": {"confirm_token": "x", "confirm_count": 1},
    "/bulk_operations/{operation_id}/abort": {},
    "/agents/{name}/pause": {"reason": "theirs"},
    "/agents/{name}/resume": {"reason": "theirs"},
    "/actions/{action_id}/probe": {},
    "/actions/{action_id}/reconciliations": {
        "verdict": "abandon",
        "revision": 0,
        "reason": "none",
    },
}
pytestmark = pytest.mark.django_db


@dataclass
class Theirs:
    """What the other tenant has: path parameter -> public id, and every id as text."""

    ids: dict[str, str]
    texts: set[str]


@pytest.fixture
def theirs(db: None) -> Theirs:
    owner = Api(make_token(name="owner", tenant=TENANT))
    session = owner.post("/sessions", {}).json()["id"]
    endpoint = owner.send("POST", "/webhook_endpoints", {"url": "https://example.com/h"}).json()
    waiting = make_waiting()
    operation = owner.post("/bulk_operations", BODIES["/bulk_operations"]).json()["id"]
    delivery = WebhookDelivery.objects.filter(tenant=TENANT).latest("created_at").id
    ids = {
        "run_id": f"run_{waiting.run.id.hex}",
        "action_id": f"act_{waiting.action.id.hex}",
        "approval_id": f"appr_{waiting.approval.id.hex}",
        "session_id": session,
        "endpoint_id": endpoint["id"],
        "delivery_id": f"whd_{delivery.hex}",
        "operation_id": operation,
    }
    return Theirs(ids, {text.partition("_")[2] for text in ids.values()})


def _rows() -> dict[str, str]:
    """A digest of every table, but for what answering itself writes."""
    own = {"runs_apitoken", "django_migrations", "runs_worker"}
    digests = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            if table not in own:
                cursor.execute(
                    f"SELECT md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), ''))"  # noqa: S608
                    f' FROM "{table}" t'
                )
                digests[table] = cursor.fetchone()[0]
    return digests


def _call(api: Api, method: str, path: str, ids: dict[str, str]) -> Any:
    short = path.removeprefix("/api/v1")
    body = BODIES[short] if method in ("post", "patch") else None
    names = {**ids, "name": "refund_desk" if "/agents" in path else "refund_desk.get_order"}
    return api.send(method.upper(), re.sub(r"{(\w+)}", lambda m: names[m[1]], short), body)


def _names(path: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", path))


@pytest.mark.requirement("R99")
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_another_tenants_ids_lead_nowhere(theirs: Theirs, method: str, path: str) -> None:
    stranger = Api(make_token(name="stranger", tenant="elsewhere"))
    before = _rows()
    answer = _call(stranger, method, path, theirs.ids)
    if _names(path) - INSTALLED:
        assert_problem(answer, 404, "not_found")
        assert _rows() == before
    elif method == "get":
        assert answer.status_code == 200
        assert not any(text in answer.content.decode() for text in theirs.texts)
        assert _rows() == before
    else:  # it makes something of its own, and touches nothing of the other tenant
        assert answer.status_code in (200, 201)
        for model in (Session, WebhookEndpoint, BulkOperation):
            assert model.objects.filter(tenant=TENANT).count() == 1
        assert not any(text in answer.content.decode() for text in theirs.texts)


@pytest.mark.requirement("R99")
@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "/webhook_" in route[1]])
def test_a_token_for_some_agents_has_no_webhooks(theirs: Theirs, method: str, path: str) -> None:
    """An endpoint is told of the runs of every agent of its tenant."""
    bound = Api(make_token(name="bound", tenant=TENANT, agents=["refund_desk"]))
    before = _rows()
    assert_problem(_call(bound, method, path, theirs.ids), 403, "agent_forbidden")
    assert _rows() == before


@pytest.mark.requirement("R99")
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_token_of_every_other_scope_is_refused(theirs: Theirs, method: str, path: str) -> None:
    needed = _scope_of(method, path, theirs.ids)
    before = _rows()
    others = [scope for scope in SCOPES if scope != needed]
    without = Api(make_token(name="without", tenant=TENANT, scopes=others))
    assert_problem(_call(without, method, path, theirs.ids), 403, "scope_missing")
    tool = Api(make_token(name="tool", tenant=TENANT, scopes=["billing.refund"]))
    assert_problem(_call(tool, method, path, theirs.ids), 403, "scope_missing")
    assert_problem(_call(Api("nobody"), method, path, theirs.ids), 401, "unauthenticated")
    assert _rows() == before
    whole = Api(make_token(name="whole", tenant=TENANT))
    assert _call(whole, method, path, theirs.ids).status_code not in (401, 403, 404)


def _scope_of(method: str, path: str, ids: dict[str, str]) -> str:
    """The scope that the view of a route asks for."""
    names = {**ids, "name": "refund_desk"}
    found = resolve(re.sub(r"{(\w+)}", lambda match: names[match[1]], path))
    scope: str = found.func.view_class.scopes[method.upper()]
    assert scope in SCOPES
    return scope


def test_a_made_up_id_of_the_right_form_is_not_found_either(theirs: Theirs) -> None:
    mine = Api(make_token(name="mine", tenant=TENANT))
    for method, path in ROUTES:
        for name in _names(path) - INSTALLED:
            prefix = theirs.ids[name].partition("_")[0]
            for text in (f"{prefix}_{UUID(int=7).hex}", "x", f"{prefix}_", "run_1"):
                answer = _call(mine, method, path, {**theirs.ids, name: text})
                assert_problem(answer, 404, "not_found")
    assert AgentVersion.objects.exists()
