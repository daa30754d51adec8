"""Every bad request gets an error that says what to do, and leaves no row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.access_models import IdempotencyRecord
from runs.api.idempotency import body_sha256
from runs.models import AgentVersion, Event, Run
from tests.runs.api_support import (
    AGENT,
    Api,
    assert_problem,
    body_for,
    declare_agent,
    make_token,
)

pytestmark = pytest.mark.django_db
KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def api() -> Api:
    declare_agent()
    return Api(make_token())


def _nothing_written() -> None:
    for model in (Run, Event, IdempotencyRecord, AgentVersion):
        assert not model.objects.exists(), model


def _with(path: str, value: str) -> str:
    """The good body as JSON text, with raw JSON text at `path`."""
    body: dict[str, Any] = body_for(input={"order_id": "A-1", "note": "n"}, metadata={"a": "b"})
    *parents, last = path.strip("/").split("/")
    place = body
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = "@@"
    return json.dumps(body).replace('"@@"', value)


@pytest.mark.parametrize(
    ("path", "value", "pointer", "code"),
    [
        ("/colour", '"red"', "/colour", "extra_forbidden"),
        ("/agent", "null", "/agent", "string_type"),
        ("/agent", "7", "/agent", "string_type"),
        ("/agent", '""', "/agent", "string_too_short"),
        ("/agent", '"nobody"', "/agent", "unknown_agent"),
        ("/version", '"9"', "/version", "unknown_version"),
        ("/input", "{}", "/input/order_id", "missing"),
        ("/input", "null", "/input", "model_type"),
        ("/input", '"text"', "/input", "model_type"),
        ("/input/order_id", "5", "/input/order_id", "string_type"),
        ("/input/colour", '"red"', "/input/colour", "extra_forbidden"),
        ("/input/note", r'"a\u0000b"', "/input/note", "nul_character"),
        ("/input/note", r'"a\ud800b"', "/input/note", "lone_surrogate"),
        ("/input/weight", "1e999", "/input/weight", "not_finite"),
        ("/input/weight", "9007199254740993", "/input/weight", "number_too_large"),
        ("/metadata", "[]", "/metadata", "dict_type"),
        ("/metadata/n", "1", "/metadata/n", "string_type"),
        ("/metadata/n", json.dumps("x" * 513), "/metadata/n", "string_too_long"),
        ("/dedupe_key", '""', "/dedupe_key", "string_too_short"),
        ("/dedupe_key", json.dumps("x" * 201), "/dedupe_key", "string_too_long"),
        ("/budget", "5", "/budget", "model_type"),
        ("/budget/max_turns", "0", "/budget/max_turns", "greater_than_equal"),
        ("/budget/max_turns", '"3"', "/budget/max_turns", "int_type"),
        ("/budget/max_turns", "true", "/budget/max_turns", "int_type"),
        ("/budget/max_turns", "7", "/budget/max_turns", "above_limit"),
        ("/budget/max_actions", "5", "/budget/max_actions", "above_limit"),
        ("/budget/max_cost", "5", "/budget/max_cost", "string_type"),
        ("/budget/max_money", "5", "/budget/max_money", "extra_forbidden"),
        ("/budget/deadline_at", '"soon"', "/budget/deadline_at", "not_a_time"),
        ("/budget/deadline_at", '"2030-01-01"', "/budget/deadline_at", "not_a_time"),
        ("/budget/deadline_at", '"2030-01-01T00:00:00"', "/budget/deadline_at", "not_a_time"),
        ("/budget/deadline_at", '"2030-02-30T00:00:00Z"', "/budget/deadline_at", "not_a_time"),
        ("/budget/deadline_at", "1893456000", "/budget/deadline_at", "not_a_time"),
        ("/budget/deadline_at", '"2001-01-01T00:00:00Z"', "/budget/deadline_at", "in_the_past"),
        ("/budget/deadline_at", '"2999-01-01T00:00:00Z"', "/budget/deadline_at", "above_limit"),
    ],
)
def test_a_bad_member_is_named(api: Api, path: str, value: str, pointer: str, code: str) -> None:
    problem = assert_problem(api.post_raw(_with(path, value), **KEY), 422, "invalid_input")
    assert (pointer, code) in [(e["pointer"], e["code"]) for e in problem["errors"]]
    assert all(e["detail"] for e in problem["errors"])
    assert not Run.objects.exists()
    assert not IdempotencyRecord.objects.exists()


def test_an_unknown_agent_is_answered_with_the_known_ones(api: Api) -> None:
    problem = assert_problem(api.post_run(body_for(agent="nobody")), 422, "invalid_input")
    assert AGENT in problem["detail"]
    _nothing_written()


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"agent": "a",}',
        b'{"agent": NaN}',
        b'{"agent": -Infinity}',
        b'{"agent": "a", "agent": "b"}',
        b"\xff\xfe",
        b'\xef\xbb\xbf{"agent": "a"}',
        b'{"agent": "\x01"}',
        b"[" * 100_000,
        b'{"agent": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_what_is_not_json_is_refused(api: Api, raw: bytes) -> None:
    response = api.post_raw(raw, **KEY)
    if raw.startswith(b"["):
        assert_problem(response, 422, "invalid_input")
    else:
        assert "JSON" in assert_problem(response, 400, "malformed_json")["detail"]
    _nothing_written()


@pytest.mark.parametrize("raw", ["[]", "null", '"text"', "7", ""])
def test_a_body_that_is_no_object_is_refused(api: Api, raw: str) -> None:
    problem = assert_problem(api.post_raw(raw, **KEY), 422, "invalid_input")
    assert problem["errors"][0]["pointer"] == ("" if raw else "/agent")
    _nothing_written()


def test_the_limits_of_size_and_depth(api: Api) -> None:
    text = json.dumps(body_for(input={"order_id": "x" * 1_000_000}))
    assert_problem(api.post_raw(text, **KEY), 413, "body_too_large")
    deep = "[" * 31 + "]" * 31
    problem = assert_problem(api.post_raw(_with("/input/note", deep), **KEY), 422, "invalid_input")
    assert problem["errors"][0]["code"] == "too_deep"
    _nothing_written()


def test_a_nul_in_a_name_is_refused(api: Api) -> None:
    raw = r'{"agent": "a", "input": {"or\u0000der": 1}}'
    problem = assert_problem(api.post_raw(raw, **KEY), 422, "invalid_input")
    assert problem["errors"][0]["code"] == "nul_character"
    _nothing_written()


@pytest.mark.parametrize("key", ["", " ", '""', '"a', "a,b", "x" * 256, "clé", 'a"b'])
def test_a_key_that_is_missing_or_unusable_is_refused(api: Api, key: str) -> None:
    response = api.post_raw(json.dumps(body_for()), **{"Idempotency-Key": key})
    assert_problem(response, 400, "idempotency_key_missing")
    _nothing_written()


def test_another_media_type_is_refused(api: Api) -> None:
    response = api.post_raw(
        "agent=a", **KEY, **{"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert_problem(response, 415, "unsupported_media_type")


def test_a_refused_request_leaves_its_key_free(api: Api) -> None:
    assert_problem(api.post_run(body_for(agent="nobody"), key="k"), 422, "invalid_input")
    assert api.post_run(key="k").status_code == 201


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        ({"state": "QUEUED"}, "?state", "unknown_parameter"),
        ({"status": "open"}, "?status", "unknown_value"),
        ({"has": "nothing"}, "?has", "unknown_value"),
        ({"agent": ""}, "?agent", "empty"),
        ({"session": "run_1"}, "?session", "not_an_id"),
        ({"created_at__gte": "yesterday"}, "?created_at__gte", "not_a_time"),
        ({"metadata": "x"}, "?metadata", "unknown_parameter"),
        ({"limit": "0"}, "?limit", "out_of_range"),
        ({"limit": "101"}, "?limit", "out_of_range"),
        ({"limit": "²"}, "?limit", "out_of_range"),
        ({"limit": "ten"}, "?limit", "out_of_range"),
        ({"limit": ["1", "2"]}, "?limit", "repeated_parameter"),
        ({"after": "x"}, "?after", "unknown_cursor"),
        ({"after": "act_" + "0" * 32}, "?after", "unknown_cursor"),
        ({"after": "run_\x00"}, "?after", "not_text"),
    ],
)
def test_a_bad_query_is_refused(api: Api, query: Any, pointer: str, code: str) -> None:
    problem = assert_problem(api.get("/runs", **query), 422, "invalid_input")
    assert [(e["pointer"], e["code"]) for e in problem["errors"]] == [(pointer, code)]


def test_parameters_of_other_routes_are_refused(api: Api) -> None:
    run_id = api.post_run().json()["id"]
    assert_problem(api.get(f"/runs/{run_id}", limit="3"), 422, "invalid_input")
    assert_problem(api.get(f"/runs/{run_id}/events", after=run_id), 422, "invalid_input")


@pytest.mark.parametrize("run_id", ["x", "run_", "run_%00", "run_" + "g" * 32, "a" * 32, "run_1/"])
def test_what_is_no_run_id_is_not_found(api: Api, run_id: str) -> None:
    assert_problem(api.get(f"/runs/{run_id}"), 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/api/", "/api/v1/", "/api/v1/runs/", "/api/v2/runs", "/api/v1/x"]
)
def test_a_path_that_is_no_route_is_a_problem(api: Api, path: str) -> None:
    assert_problem(api.client.get(path, headers=api.headers), 404, "not_found")


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_a_method_that_is_not_allowed_is_a_problem(api: Api, method: str) -> None:
    response = getattr(api.client, method)("/api/v1/runs", headers=api.headers)
    assert_problem(response, 405, "method_not_allowed")
    assert "GET" in response["Allow"]


def test_the_digest_of_a_body_tells_apart_what_differs() -> None:
    bodies: list[Any] = [
        1,
        1.5,
        1.25,
        "1.5",
        None,
        [1.5, None],
        [None, 1.5],
        {"a": 1.5},
        {"b": 1.5},
    ]
    assert len({body_sha256(body) for body in bodies}) == len(bodies)
    assert body_sha256({"a": 1, "b": 0.5}) == body_sha256({"b": 0.5, "a": 1})
