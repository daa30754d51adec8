"""Who may call: tokens, scopes, sessions of the admin site, and the command that makes tokens."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command

from runs.access_models import ApiToken
from runs.api.auth import api_user, token_hash
from runs.models import Run
from runs.selectors import database_clock
from tests.runs.api_support import AGENT, Api, assert_problem, declare_agent, make_token

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _agent() -> None:
    declare_agent()


def _command(*args: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("token", *args, stdout=out, stderr=err)
    return out.getvalue().strip(), err.getvalue()


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic dTpw", "Bearer nonsense", "Bearer agc_\udcff", "agc_x"],
)
def test_without_a_known_token_nothing_is_answered(header: str) -> None:
    api = Api("")
    api.headers = {"Authorization": header.encode("utf-8", "replace").decode("latin-1")}
    for response in (api.get("/runs"), api.post_run()):
        problem = assert_problem(response, 401, "unauthenticated")
        assert response["WWW-Authenticate"].startswith("Bearer")
        assert "oken" in problem["detail"]
    assert not Run.objects.exists()


def test_a_revoked_or_expired_token_says_so() -> None:
    now = database_clock()
    revoked = Api(make_token(revoked_at=now))
    expired = Api(make_token(expires_at=now - timedelta(seconds=1)))
    alive = Api(make_token(expires_at=now + timedelta(hours=1)))
    assert "revoked" in assert_problem(revoked.get("/runs"), 401, "unauthenticated")["detail"]
    assert "expired" in assert_problem(expired.get("/runs"), 401, "unauthenticated")["detail"]
    assert alive.get("/runs").status_code == 200


def test_each_route_asks_for_its_own_scope() -> None:
    run_id = Api(make_token()).post_run().json()["id"]
    calls = {
        "runs:write": lambda api: api.post_run(),
        "runs:read": lambda api: api.get("/runs"),
        "events:read": lambda api: api.get(f"/runs/{run_id}/events"),
    }
    for held in (*calls, "billing.refund"):
        api = Api(make_token(scopes=[held]))
        for scope, call in calls.items():
            if scope == held:
                assert call(api).status_code in (200, 201)
            else:
                assert scope in assert_problem(call(api), 403, "scope_missing")["detail"]
    assert Run.objects.count() == 2


@pytest.mark.requirement("R30")
def test_identity_and_scopes_come_from_the_token_alone() -> None:
    api = Api(make_token(name="billing", tenant="acme", scopes=["runs:write", "billing.refund"]))
    assert_problem(api.post_run({"agent": "x", "input": {}, "tenant": "b"}), 422, "invalid_input")
    assert api.post_run().status_code == 201
    run = Run.objects.get()
    assert (run.tenant, run.principal) == ("acme", "token:billing")
    assert run.scopes == ["runs:write", "billing.refund"]


def test_last_use_is_noted_at_most_once_a_minute() -> None:
    api = Api(make_token())
    api.get("/runs")
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    api.get("/runs")
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=first - timedelta(seconds=61))
    api.get("/runs")
    assert ApiToken.objects.get().last_used_at >= first


def _staff(**fields: Any) -> Api:
    user = User.objects.create_user("olga", password="x", is_staff=True, **fields)
    api = Api("")
    api.headers = {}
    api.client.force_login(user)
    return api


def test_staff_read_with_the_session_of_the_admin_as_far_as_their_permissions_go() -> None:
    run_id = Api(make_token()).post_run().json()["id"]
    api = _staff()
    assert_problem(api.get("/runs"), 403, "scope_missing")
    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_run"))
    assert [run["id"] for run in api.get("/runs").json()["data"]] == [run_id]
    assert_problem(api.get(f"/runs/{run_id}/events"), 403, "scope_missing")


def test_a_session_starts_nothing() -> None:
    assert_problem(_staff(is_superuser=True).post_run(), 403, "scope_missing")
    assert not Run.objects.exists()


def test_a_request_id_of_the_caller_is_kept_when_it_is_a_plain_word() -> None:
    api = Api(make_token())
    api.headers["X-Request-Id"] = "abc-1_2"
    assert api.get("/runs")["X-Request-Id"] == "abc-1_2"
    api.headers["X-Request-Id"] = "a b<"
    assert api.get("/runs")["X-Request-Id"].startswith("req_")


# --- manage.py token ------------------------------------------------------------------------


def test_create_prints_a_token_once_and_stores_only_its_hash() -> None:
    secret, notes = _command("create", "desk", "--scope", "runs:write", "--scope", "runs:read")
    assert re.fullmatch(r"agc_[A-Za-z0-9_-]{43}", secret)
    assert "cannot be shown again" in notes
    row = ApiToken.objects.get()
    assert (row.name, row.tenant, row.scopes) == ("desk", "default", ["runs:write", "runs:read"])
    assert row.sha256 == token_hash(secret)
    assert secret not in str(ApiToken.objects.values().get())
    assert Api(secret).post_run().status_code == 201
    listed, _ = _command("list")
    assert secret not in listed
    assert secret[:12] in listed


def test_expiry_tenant_and_tool_scopes() -> None:
    _, notes = _command(
        "create", "desk", "--tenant", "acme", "--scope", "crm.none", "--expires-in", "30d"
    )
    assert "no installed tool asks" in notes
    row = ApiToken.objects.get()
    assert row.tenant == "acme"
    assert row.expires_at == row.created_at + timedelta(days=30)


def test_agents_and_roles_of_a_token() -> None:
    scopes = (
        "--scope",
        "runs:write",
        "--scope",
        "approvals:decide",
        "--scope",
        "role:Finance",
    )
    secret, notes = _command("create", "desk", *scopes, "--agent", AGENT)
    assert "no group 'Finance'" in notes
    row = ApiToken.objects.get()
    assert (row.agents, api_user(row).decider.roles) == ([AGENT], frozenset({"Finance"}))
    assert Api(secret).post_run().status_code == 201
    ApiToken.objects.update(agents=["another"])
    assert_problem(Api(secret).post_run(), 403, "agent_forbidden")
    listed, _ = _command("list")
    assert "agents: another" in listed


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("create", "desk", "--scope", "runs:read", "--agent", "nobody"), "no agent 'nobody'"),
        (("create", "desk", "--scope", "role:"), "role:NAME"),
        (("create", "desk"), "at least one --scope"),
        (("create", "desk", "--scope", "run:write"), "runs:write"),
        (("create", "desk", "--scope", "A b"), "is not a scope"),
        (("create", "a b", "--scope", "runs:read"), "letters"),
        (("create", "desk", "--scope", "runs:read", "--expires-in", "30"), "30d"),
        (("create", "taken", "--scope", "runs:read"), "--rotate"),
        (("revoke", "nobody"), "token list"),
        (("frobnicate",), "invalid choice"),
        ((), "required"),
    ],
)
def test_a_bad_command_says_what_to_do(args: tuple[str, ...], said: str) -> None:
    make_token(name="taken")
    with pytest.raises(CommandError, match=re.escape(said)):
        _command(*args)
    assert ApiToken.objects.count() == 1


def test_revoke_by_prefix_or_name_works_at_once() -> None:
    first, _ = _command("create", "desk", "--scope", "runs:read")
    second, _ = _command("create", "desk", "--scope", "runs:read", "--rotate")
    assert Api(second).get("/runs").status_code == 200
    assert _command("revoke", first[:12])[0] == "Revoked 1 token."
    assert_problem(Api(first).get("/runs"), 401, "unauthenticated")
    assert Api(second).get("/runs").status_code == 200
    _command("revoke", "desk")
    assert_problem(Api(second).get("/runs"), 401, "unauthenticated")


def test_revoke_by_a_name_of_two_tenants_asks_which() -> None:
    make_token(name="desk", tenant="a")
    make_token(name="desk", tenant="b")
    with pytest.raises(CommandError, match="--tenant"):
        _command("revoke", "desk")
    _command("revoke", "desk", "--tenant", "a")
    assert ApiToken.objects.get(revoked_at__isnull=True).tenant == "b"
