"""The real client against a real HTTP server: what is on the wire, and what comes back."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.canonical import sha256_hex
from agentcore.context import Exchange, Frame, compile_context
from agentcore.decisions import ParsedReply, parse_reply
from agentcore.llm import openai_responses
from agentcore.llm.base import ModelClient, ModelFailure, ModelReply
from agentcore.llm.openai_responses import ResponsesClient
from tests.agentcore.bodies import body, call, recorded, reply
from tests.agentcore.loopback import Answer, Loopback, serving

SECRET = "sk-test-5up3r"
REQUEST: dict[str, Any] = {"model": "gpt-x", "input": "hello"}


@pytest.fixture(scope="module")
def _server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


@pytest.fixture
def server(_server: Loopback) -> Loopback:
    _server.received.clear()
    _server.script[:] = [Answer(body=body("fc-single").encode())]
    return _server


@pytest.fixture
def client(server: Loopback) -> ModelClient:
    return ResponsesClient(api_key=SECRET, base_url=server.url)


def create(client: ModelClient, timeout: float = 10, **changes: Any) -> ModelReply | ModelFailure:
    return client.create(request={**REQUEST, **changes}, timeout=timeout)


def test_the_body_comes_back_as_it_was_sent(client: ModelClient, server: Loopback) -> None:
    text = '{"output": [], "note": "é", "n": 1.10}'
    server.script[:] = [Answer(body=text.encode())]
    assert create(client) == ModelReply(text)
    ((path, headers, _),) = server.received
    assert path == "/v1/responses"
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["content-type"] == "application/json"


@pytest.mark.requirement("R18")
def test_one_strategy_of_history_is_always_asked_for(client: ModelClient, server: Loopback) -> None:
    create(client)
    create(client, store=True, include=["message.output_text.logprobs"])
    first, second = (json.loads(data) for _, _, data in server.received)
    assert first["store"] is second["store"] is False
    assert first["include"] == ["reasoning.encrypted_content"]
    assert second["include"][-1] == "reasoning.encrypted_content"


@pytest.mark.requirement("R18")
def test_the_bytes_on_the_wire_are_the_compiled_ones(client: ModelClient, server: Loopback) -> None:
    odd = call("call_odd", **{"async": True, "x_vendor": {"deep": ["\x00", "\ud800", 0.1]}})
    first, second = body("fc-parallel-2-reasoning"), reply(odd)
    outputs = []
    for text in (first, second):
        found = parse_reply(text)
        assert isinstance(found, ParsedReply)
        outputs.append(found.output)
    items = recorded("fc-parallel-2-reasoning")["body"]["output"]
    seen = tuple((i["call_id"], "ok") for i in items if i["type"] == "function_call")
    pack = compile_context(
        instructions="You help.",
        model="gpt-x",
        settings={"temperature": 0.3, "a_field_of_tomorrow": True},
        tools=[],
        run_input="hi",
        exchanges=[Exchange(1, outputs[0], seen), Exchange(2, outputs[1], (("call_odd", "ok"),))],
        frame=Frame({}),
    )
    assert isinstance(client.create(request=pack.request, timeout=10), ModelReply)
    ((_, _, data),) = server.received
    assert sha256_hex(data) == pack.sha256
    sent = json.loads(data)
    assert sent["input"][1:-1] == [
        *items,
        *({"type": "function_call_output", "call_id": c, "output": "ok"} for c, _ in seen),
        odd,
        {"type": "function_call_output", "call_id": "call_odd", "output": "ok"},
    ]
    assert sent["a_field_of_tomorrow"] is True


@pytest.mark.requirement("R21")
@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500),
        Answer(status=502, body=b"<html>bad gateway</html>"),
        Answer(status=503, headers={"x-should-retry": "true"}),
        Answer(status=429, headers={"retry-after": "0"}),
        Answer(status=408),
        Answer(status=409),
        Answer(mode="reset"),
        Answer(mode="cut"),
        Answer(mode="hang"),
        Answer(mode="drip"),
        Answer(status=307, headers={"location": "/v1/responses"}),
    ],
    ids=lambda answer: f"{answer.status}-{answer.mode}",
)
def test_one_call_is_one_request_on_the_wire(
    client: ModelClient, server: Loopback, answer: Answer
) -> None:
    server.script[:] = [answer, answer]
    found = create(client, timeout=0.4 if answer.mode in ("hang", "drip") else 10)
    assert isinstance(found, ModelFailure)
    assert len(server.received) == 1


@pytest.mark.requirement("R21")
def test_the_number_of_requests_is_the_number_the_caller_decides(
    client: ModelClient, server: Loopback
) -> None:
    server.script[:] = [Answer(status=503)] * 2 + [Answer(body=body("fc-single").encode())]
    for _ in range(3):
        found = create(client)
    assert isinstance(found, ModelReply)
    assert len(server.received) == 3
    assert not any(
        "x-stainless-retry-count" in h and h["x-stainless-retry-count"] != "0"
        for _, h, _ in server.received
    )


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(mode="hang"), "timeout"),
        (Answer(mode="drip"), "timeout"),
        (Answer(mode="reset"), "connection_error"),
        (Answer(mode="cut"), "connection_error"),
        (Answer(body=b'{"a": "\xff"}'), "reply_not_utf8"),
    ],
)
def test_a_lost_reply_is_transient(
    client: ModelClient, server: Loopback, answer: Answer, code: str
) -> None:
    server.script[:] = [answer]
    found = create(client, timeout=0.4)
    assert isinstance(found, ModelFailure)
    assert (found.code, found.transient) == (code, True)


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        found = create(ResponsesClient(api_key=SECRET, base_url=url))
    assert isinstance(found, ModelFailure)
    assert (found.code, found.transient) == ("connection_error", True)


def failure(status: int, code: str | None = None, kind: str = "x", **headers: str) -> Answer:
    error = {"message": f"key {SECRET} is bad", "type": kind, "param": None, "code": code}
    data = json.dumps({"error": error}).encode()
    return Answer(status, data, {"Content-Type": "application/json", **headers})


@pytest.mark.parametrize(
    ("name", "code", "transient", "after"),
    [
        ("err-400-context-length", "context_length_exceeded", False, None),
        ("err-401-invalid-key", "invalid_api_key", False, None),
        ("err-429-insufficient-quota", "insufficient_quota", False, None),
        ("hm-err-429-retry-after", "rate_limit_exceeded", True, 2.0),
        ("hm-err-503-overloaded", "server_is_overloaded", True, None),
    ],
)
def test_recorded_errors(
    *, client: ModelClient, server: Loopback, name: str, code: str, transient: bool, after: Any
) -> None:
    record = recorded(name)
    server.script[:] = [Answer(record["status"], body(name).encode(), record["headers"])]
    found = create(client)
    assert isinstance(found, ModelFailure)
    assert (found.code, found.transient, found.retry_after) == (code, transient, after)
    assert record["body"]["error"]["message"][:20] in found.detail


@pytest.mark.parametrize(
    ("answer", "transient"),
    [
        (failure(400, "invalid_value"), False),
        (failure(401), False),
        (failure(403), False),
        (failure(404, "model_not_found"), False),
        (failure(422), False),
        (failure(408), True),
        (failure(409, "conversation_locked"), True),
        (failure(425), True),
        (failure(429), True),
        (failure(429, None, "insufficient_quota"), False),
        (failure(500), True),
        (failure(529), True),
        (Answer(500, b"<html>"), True),
        (Answer(500, b""), True),
        (Answer(500, b'{"error": "text"}'), True),
        (Answer(404, b"[]"), False),
    ],
    ids=lambda value: f"{value.status}" if isinstance(value, Answer) else None,
)
def test_which_errors_are_worth_another_try(
    client: ModelClient, server: Loopback, answer: Answer, transient: bool
) -> None:
    server.script[:] = [answer]
    found = create(client)
    assert isinstance(found, ModelFailure)
    assert found.transient is transient
    assert found.code
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "600"}, 600.0),
        ({"retry-after": "999999999"}, 86400.0),
        (
            {
                "date": "Mon, 30 Nov 2026 10:00:00 GMT",
                "retry-after": "Mon, 30 Nov 2026 10:01:30 GMT",
            },
            90.0,
        ),
        (
            {
                "date": "Mon, 30 Nov 2026 10:00:00 GMT",
                "retry-after": "Mon, 30 Nov 2026 09:00:00 GMT",
            },
            0.0,
        ),
        ({"retry-after": "Mon, 30 Nov 2026 10:01:30 GMT"}, None),
        ({"retry-after": "soon", "date": "Mon, 30 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(
    client: ModelClient, server: Loopback, headers: dict[str, str], seconds: float | None
) -> None:
    server.script[:] = [failure(429, "rate_limit_exceeded", **headers)]
    found = create(client)
    assert isinstance(found, ModelFailure)
    assert found.retry_after == seconds


def test_a_body_without_end_is_cut_off(
    client: ModelClient, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_responses, "MAX_BODY", 1000)
    server.script[:] = [Answer(body=b"x" * 2000)]
    found = create(client)
    assert isinstance(found, ModelFailure)
    assert (found.code, found.transient) == ("reply_too_large", False)


def test_a_request_that_cannot_be_written_is_not_sent(
    client: ModelClient, server: Loopback
) -> None:
    found = create(client, temperature=float("nan"))
    assert isinstance(found, ModelFailure)
    assert (found.code, found.transient) == ("request_not_json", False)
    keyless = create(ResponsesClient(api_key="", base_url=server.url))
    assert isinstance(keyless, ModelFailure)
    assert (keyless.code, keyless.transient) == ("no_api_key", False)
    assert server.received == []


def test_threads_share_a_client(client: ModelClient, server: Loopback) -> None:
    found: list[ModelReply | ModelFailure] = []
    threads = [threading.Thread(target=lambda: found.append(create(client))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(one) for one in found] == [ModelReply] * 8
    assert len(server.received) == 8


def test_a_client_belongs_to_one_process_and_one_key(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = openai_responses._client(SECRET, server.url)
    assert openai_responses._client(SECRET, server.url) is mine
    assert openai_responses._client("other", server.url) is not mine
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert openai_responses._client(SECRET, server.url) is not mine


def test_the_key_is_never_shown(client: ModelClient) -> None:
    assert SECRET not in repr(client)
