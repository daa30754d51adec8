"""The committed OpenAPI document is the one the code makes, and the answers keep to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from jsonschema import Draft202012Validator

from tests.runs.api_support import Api, declare_agent, make_token

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
REGENERATE = "manage.py spectacular --format openapi-json --file docs/openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    return found


def schema_errors(document: dict[str, Any], name: str, body: Any) -> list[str]:
    """Where `body` differs from the component `name` of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(body)]


def test_the_document_is_current(tmp_path: Path) -> None:
    made = tmp_path / "openapi.json"
    call_command(
        "spectacular", format="openapi-json", file=str(made), fail_on_warn=True, validate=True
    )
    assert json.loads(made.read_text()) == json.loads(DOCUMENT.read_text()), REGENERATE


def test_it_says_what_a_client_must_know(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    post = document["paths"]["/api/v1/runs"]["post"]
    (key,) = [p for p in post["parameters"] if p["name"] == "Idempotency-Key"]
    assert (key["in"], key["required"]) == ("header", True)
    assert set(post["responses"]) == {
        "201",
        "400",
        "401",
        "403",
        "409",
        "413",
        "415",
        "422",
        "429",
        "503",
    }
    for status, response in post["responses"].items():
        media = "application/json" if status == "201" else "application/problem+json"
        assert list(response["content"]) == [media]
    assert {"Location", "Idempotency-Replayed"} <= set(post["responses"]["201"]["headers"])
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


@pytest.mark.django_db
def test_the_answers_have_the_documented_shape(document: dict[str, Any]) -> None:
    declare_agent()
    api = Api(make_token())
    run = api.post_run().json()
    shapes = {
        "Run": run,
        "RunList": api.get("/runs").json(),
        "EventList": api.get(f"/runs/{run['id']}/events").json(),
        "Problem": api.get("/runs", limit="0").json(),
    }
    for name, body in shapes.items():
        assert schema_errors(document, name, body) == []
    assert schema_errors(document, "Run", {**run, "status": "QUEUED"})
    assert schema_errors(document, "Run", {k: v for k, v in run.items() if k != "links"})


@pytest.mark.django_db
def test_the_document_and_its_reader_are_served_by_ourselves() -> None:
    api = Api("")
    assert api.get("/openapi.json").json()["info"]["title"] == "agentcore"
    page = api.get("/docs")
    assert page.status_code == 200
    assert b"drf_spectacular_sidecar" in page.content
    assert b"cdn" not in page.content
    assert "script-src 'self';" in page["Content-Security-Policy"]
