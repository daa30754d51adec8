"""An agent is switched off and on over the API."""

from __future__ import annotations

import pytest

from runs.control_models import Switch
from runs.models import Run
from tests.runs.api_support import AGENT, ALL_SCOPES, Api, assert_problem, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_agent_that_is_off_starts_nothing_until_it_is_on(api: Api) -> None:
    off = api.send("POST", f"/agents/{AGENT}/pause", {"reason": "wrong orders"})
    assert off.status_code == 200, off.content
    paused = off.json()["paused"]
    assert (paused["by"], paused["reason"]) == ("token:ops", "wrong orders")
    assert api.get(f"/agents/{AGENT}").json()["paused"] == paused
    listed = {agent["name"]: agent["paused"] for agent in api.get("/agents").json()["data"]}
    assert listed[AGENT] == paused
    refused = assert_problem(api.post_run(), 503, "agent_paused")
    assert "wrong orders" in refused["detail"]
    assert not Run.objects.exists()
    on = api.send("POST", f"/agents/{AGENT}/resume", {"reason": "fixed"})
    assert (on.status_code, on.json()["paused"]) == (200, None)
    assert api.post_run().status_code == 201


def test_it_needs_a_reason_and_its_own_scope(api: Api) -> None:
    for body in ({}, {"reason": ""}, {"reason": " "}):
        assert_problem(api.send("POST", f"/agents/{AGENT}/pause", body), 422, "invalid_input")
    scopes = [scope for scope in ALL_SCOPES if scope != "agents:operate"]
    less = Api(make_token(name="less", scopes=scopes))
    answer = less.send("POST", f"/agents/{AGENT}/pause", {"reason": "x"})
    assert_problem(answer, 403, "scope_missing")
    bound = Api(make_token(name="bound", agents=["another"]))
    answer = bound.send("POST", f"/agents/{AGENT}/pause", {"reason": "x"})
    assert_problem(answer, 404, "not_found")
    assert not Switch.objects.exists()
