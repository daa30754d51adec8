"""The kinds of replies that no recorded file shows: one row each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.replies.desk import Desk, answer
from tests.replies.rows import CALLED, ENDED, INVALID, NOTE, OUT, Row, play

pytestmark = pytest.mark.django_db(transaction=True)

BAD = (("get_order", "DENIED", "INVALID_ARGUMENTS"),)
READ = (("get_order", "SUCCEEDED", ""),)
WITH_TEXT = ("assistant", "function_call", OUT)
RS = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}


def order(call_id: str = "call_1", **fields: Any) -> dict[str, Any]:
    arguments = fields.pop("arguments", '{"order_id":"ord_1001"}')
    return call(call_id, **{"name": "get_order", "arguments": arguments, **fields})


def failed(code: str, *, transient: bool = True, **more: Any) -> dict[str, Any]:
    outcome = "AMBIGUOUS" if transient else "REFUSED"
    if transient:
        return {"first": "FINAL", "attempts": ((outcome, code), ("SUCCESS", ""))}
    ended = {"state": "FAILED", "stop": "MODEL_ERROR", "requests": 1, "layer": "model"}
    return {"first": "", "attempts": ((outcome, code),), **ended, **more}


def body(*items: Any, **fields: Any) -> Answer:
    return answer(reply(*items, **fields))


def http(status: int, code: str | None = None, kind: str = "invalid_request_error") -> Answer:
    error = {"message": "no", "type": kind, "param": None, "code": code}
    return answer(json.dumps({"error": error}), status=status, content_type="application/json")


ARGUMENTS = {
    "": "no JSON at all",
    "{": "cut",
    "[]": "a list",
    "null": "null",
    '"ord_1"': "a text",
    '{"order_id":"a","order_id":"b"}': "a key twice",
    '{"order_id":NaN}': "NaN",
    '{"order_id":Infinity}': "Infinity",
    '{"order_id":1e999}': "a number out of range",
    '{"order_id":"\\u0000"}': "NUL",
    '{"order_id":"\\ud800"}': "half a surrogate pair",
    '{"order_id":"x"} extra': "something behind it",
    '{"order_id":7}': "another type",
    '{"order":"ord_1001"}': "another name",
    '{"order_id":"ord_1001","also":1}': "a name too many",
    '{"order_id":"' + "x" * 70_000 + '"}': "huge",
    "[" * 5000 + "]" * 5000: "nested deeply",
}


@pytest.mark.requirement("R13", "R14")
@pytest.mark.parametrize("raw", ARGUMENTS, ids=ARGUMENTS.values())
def test_bad_arguments_are_answered_with_an_error_and_run_nothing(desk: Desk, raw: str) -> None:
    play(desk, Row(**CALLED, actions=BAD), body(order(arguments=raw)))
    output = json.loads(desk.requests()[-1]["input"][2]["output"])
    assert output["status"] == "denied"
    assert output["data"]["reason"] == "INVALID_ARGUMENTS"


KINDS: dict[str, tuple[Row, Answer]] = {
    # --- text and calls ------------------------------------------------------------------------
    "text before a call": (
        Row(first="TOOL_CALLS", history=WITH_TEXT, actions=READ),
        body(message("Let me look."), order()),
    ),
    "text after a call": (
        Row(first="TOOL_CALLS", history=("function_call", "assistant", OUT), actions=READ),
        body(order(), message("Looking.")),
    ),
    "reasoning after a call": (Row(**CALLED, actions=READ), body(order(), RS)),
    "five calls of one tool": (
        Row(first="TOOL_CALLS", history=("function_call",) * 5 + (OUT,) * 5, actions=READ * 5),
        body(*(order(f"call_{n}") for n in range(5))),
    ),
    "a call of a tool in a namespace": (
        Row(**CALLED, actions=(("other.get_order", "DENIED", "UNKNOWN_TOOL"),)),
        body(order(namespace="other")),
    ),
    "a good and a bad call": (
        Row(first="TOOL_CALLS", history=("function_call",) * 2 + (OUT,) * 2, actions=READ + BAD),
        body(order("a"), order("b", arguments="{")),
    ),
    "an empty text": (Row(**INVALID, code="empty_output"), body(message(""))),
    "only commentary": (
        Row(first="INVALID", code="commentary_only", history=("assistant", NOTE)),
        body(message("I will look.", phase="commentary")),
    ),
    "only reasoning": (Row(**INVALID, code="empty_output"), body(RS)),
    "a refusal beside a call": (
        Row(**INVALID, code="refusal_with_calls"),
        body(
            {"type": "message", "role": "assistant", "content": [{"type": "refusal"}]},
            order(),
        ),
    ),
    "an empty refusal": (
        Row(first="REFUSAL", state="INCOMPLETE", stop="REFUSED", **ENDED),
        body({"type": "message", "role": "assistant", "content": [{"type": "refusal"}]}),
    ),
    "a text with half a surrogate pair": (
        Row(first="FINAL", **ENDED),
        answer(reply(message("ok \ud800 \u0000 done"))),
    ),
    # --- items that are not calls of ours ------------------------------------------------------
    "a provider's own tool beside a call": (
        Row(
            first="TOOL_CALLS", history=("code_interpreter_call",) + CALLED["history"], actions=READ
        ),
        body({"type": "code_interpreter_call", "id": "ci_1", "code": "1"}, order()),
    ),
    "a computer call": (
        Row(**INVALID, code="unsupported_item: computer_call"),
        body({"type": "computer_call", "call_id": "c"}),
    ),
    "a shell call beside a call": (
        Row(**INVALID, code="unsupported_item: shell_call"),
        body({"type": "shell_call", "call_id": "c"}, order()),
    ),
    "a tool search for the client": (
        Row(**INVALID, code="unsupported_item: tool_search_call"),
        body({"type": "tool_search_call", "call_id": "c", "execution": "client"}),
    ),
    "an unknown item that asks": (
        Row(**INVALID, code="unsupported_item: teleport_call"),
        body({"type": "teleport_call", "call_id": "c"}, message("Going.")),
    ),
    "an unknown item that asks nothing": (
        Row(first="FINAL", **ENDED),
        body({"type": "x_search_call", "id": "xs"}, message("Found nothing.")),
    ),
    "an item without a type": (Row(**INVALID, code="malformed_item"), body({"id": "x"}, order())),
    "an item that is no object": (Row(**INVALID, code="malformed_item"), body("call", order())),
    # --- calls that are not whole --------------------------------------------------------------
    "a call without call_id": (Row(**INVALID, code="malformed_call"), body(order(call_id=None))),
    "a call with a huge call_id": (Row(**INVALID, code="malformed_call"), body(order("x" * 300))),
    "a call without a name": (Row(**INVALID, code="malformed_call"), body(order(name=""))),
    "arguments that are an object": (
        Row(**INVALID, code="malformed_call"),
        body(order(arguments={"order_id": "ord_1001"})),
    ),
    "arguments beyond any size": (
        Row(**INVALID, code="arguments_too_large"),
        body(order(arguments="x" * 300_000)),
    ),
    "a call in progress beside a whole one": (
        Row(**INVALID, code="unfinished_item"),
        body(order("a"), order("b", status="in_progress")),
    ),
    "too many calls": (
        Row(**INVALID, code="too_many_calls"),
        body(*(order(f"c{n}") for n in range(65))),
    ),
    "a whole call in a reply that was filtered": (
        Row(**INVALID, code="incomplete: content_filter"),
        body(order(), status="incomplete", incomplete_details={"reason": "content_filter"}),
    ),
    "an incomplete reply without a reason": (
        Row(**INVALID, code="incomplete"),
        body(message("Half"), status="incomplete"),
    ),
    # --- replies that failed -------------------------------------------------------------------
    "failed for want of quota": (
        Row(**failed("insufficient_quota", transient=False, reason="no quota left")),
        body(status="failed", error={"code": "insufficient_quota", "message": "pay"}),
    ),
    "failed for its content": (
        Row(**failed("invalid_prompt", transient=False)),
        body(status="failed", error={"code": "invalid_prompt", "message": "no"}),
    ),
    "cancelled": (Row(**failed("reply_cancelled", transient=False)), body(status="cancelled")),
    "queued": (Row(**failed("reply_not_finished")), body(status="queued")),
    "in progress": (Row(**failed("reply_not_finished")), body(order(), status="in_progress")),
    "an error object with status 200": (
        Row(**failed("server_error")),
        answer('{"error":{"message":"m","type":"server_error","code":null}}'),
    ),
    "output that is no list": (Row(**failed("reply_not_a_response")), body(output={"a": 1})),
    "a list": (Row(**failed("reply_not_a_response")), answer("[]")),
    "null": (Row(**failed("reply_not_a_response")), answer("null")),
    "an empty body": (Row(**failed("reply_not_json")), answer("")),
    "a body with NaN": (Row(**failed("reply_not_json")), answer('{"output":[],"x":NaN}')),
    "a body nested without end": (Row(**failed("reply_not_json")), answer("[" * 100_000)),
    "a body that is not UTF-8": (Row(**failed("reply_not_utf8")), answer(b'{"id":"\xff"}')),
    "a body that breaks off": (
        Row(**failed("connection_error")),
        answer(reply(message("x")), mode="cut"),
    ),
    "a reset": (Row(**failed("connection_error")), answer("", mode="reset")),
    # --- HTTP errors ---------------------------------------------------------------------------
    "500 with a page": (Row(**failed("http_500")), answer("<html>", status=500)),
    "502 without a body": (Row(**failed("http_502")), answer("", status=502)),
    "408": (Row(**failed("http_408")), answer("", status=408)),
    "409": (Row(**failed("http_409")), answer("", status=409)),
    "a model that is not there": (
        Row(**failed("model_not_found", transient=False, reason="does not know the model")),
        http(404, "model_not_found"),
    ),
    "a malformed request": (
        Row(**failed("unknown_parameter", transient=False, reason="defect of the runtime")),
        http(400, "unknown_parameter"),
    ),
    "an unverifiable blob": (
        Row(**failed("invalid_encrypted_content", transient=False)),
        http(400, "invalid_encrypted_content"),
    ),
    "forbidden": (
        Row(**failed("permission_denied", transient=False)),
        http(403, "permission_denied"),
    ),
    "a redirect": (
        Row(**failed("http_302", transient=False)),
        answer("", status=302, location="/"),
    ),
    # --- usage ---------------------------------------------------------------------------------
    "usage of zeros": (
        Row(first="FINAL", **ENDED),
        body(message("ok"), usage={"input_tokens": 0, "output_tokens": 0}),
    ),
    "usage of nonsense": (
        Row(first="FINAL", **ENDED),
        body(message("ok"), usage={"input_tokens": -3, "output_tokens": "many"}),
    ),
}


@pytest.mark.requirement("R13", "R14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_reply_leads_where_it_should(desk: Desk, kind: str) -> None:
    row, first = KINDS[kind]
    play(desk, row, first)
