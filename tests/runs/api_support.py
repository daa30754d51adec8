"""Callers of the API for tests: an agent, tokens, and a client that sends JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.test import Client
from pydantic import BaseModel

from agentcore.budgets import Budget
from runs.access_models import ApiToken
from runs.agents import agent
from runs.api.auth import SCOPES, token_hash
from runs.selectors import database_clock
from runs.starting import Caller, StartRun

ALL_SCOPES = (*SCOPES, "billing.refund")
AGENT = "api_desk"


class DeskInput(BaseModel):
    """What the agent of these tests is asked."""

    order_id: str
    amount: str = "0.00"
    note: str | None = None
    weight: float | None = None


def declare_agent() -> None:
    """Register the agent."""
    agent(
        name=AGENT,
        version="1",
        model="scripted",
        instructions="Answer.",
        tools=[],
        input=DeskInput,
        budget=Budget(turns=6, actions=4, wall=timedelta(minutes=10)),
    )


def make_token(
    *,
    name: str = "desk",
    tenant: str = "default",
    scopes: Sequence[str] = ALL_SCOPES,
    **fields: Any,
) -> str:
    """A stored token; its secret."""
    secret = f"agc_{uuid4().hex}"
    ApiToken.objects.create(
        name=name,
        tenant=tenant,
        prefix=secret[:12],
        sha256=token_hash(secret),
        scopes=list(scopes),
        created_at=database_clock(),
        **fields,
    )
    return secret


def caller(**fields: Any) -> Caller:
    values = {"tenant": "default", "principal": "token:desk", "scopes": ("billing.refund",)}
    return Caller(**{**values, **fields})


def request_for(**fields: Any) -> StartRun:
    return StartRun(**{"agent": AGENT, "input": {"order_id": "A-1"}, **fields})


def body_for(**fields: Any) -> dict[str, Any]:
    return {"agent": AGENT, "input": {"order_id": "A-1"}, **fields}


class Api:
    """A caller with a token. Every answer's JSON is in `.json()` of the response."""

    def __init__(self, token: str) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, **query: str) -> Any:
        return self.client.get(f"/api/v1{path}", query_params=query, headers=self.headers)

    def post_run(self, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """POST /runs; a fresh key unless one is given."""
        return self.post_raw(
            json.dumps(body_for() if body is None else body),
            **{"Idempotency-Key": key or uuid4().hex, **headers},
        )

    def send(
        self, method: str, path: str, body: Any = None, *, key: str = "", **headers: str
    ) -> Any:
        """Any other request with a JSON body; POST with a fresh key unless one is given."""
        if method == "POST":
            headers["Idempotency-Key"] = key or uuid4().hex
        return self.client.generic(
            method,
            f"/api/v1{path}",
            data=b"" if body is None else json.dumps(body),
            content_type="application/json",
            headers={**self.headers, **headers},
        )

    def post(self, path: str, body: Any = None, *, key: str = "", **headers: str) -> Any:
        return self.send("POST", path, {} if body is None else body, key=key, **headers)

    def post_raw(self, data: str | bytes, **headers: str) -> Any:
        content_type = headers.pop("Content-Type", "application/json")
        return self.client.post(
            "/api/v1/runs",
            data=data,
            content_type=content_type,
            headers={**self.headers, **headers},
        )


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The response is this problem, whole; its body."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["request_id"] == response["X-Request-Id"]
    assert body["type"] == f"urn:agentcore:problem:{code}"
    assert body["title"]
    assert body["detail"]
    return body
