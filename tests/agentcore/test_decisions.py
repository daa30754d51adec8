from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import decisions
from agentcore.canonical import storable
from agentcore.decisions import (
    Final,
    Invalid,
    ParsedReply,
    Refusal,
    ReplyFailure,
    ToolCalls,
    parse_reply,
)
from agentcore.values import ToolCall, Usage
from tests.agentcore.bodies import NAMES, body, call, message, recorded, reply

CALLS = {
    "fc-azure-content-filters": ["weather"],
    "fc-commentary-then-call": ["get_capital"],
    "fc-lmstudio-local": ["weather"],
    "fc-parallel-2-reasoning": ["weather", "best_language_to_learn"],
    "fc-reasoning-encrypted": ["db_lookup"],
    "fc-reused-call-id-turn1": ["first_tool"],
    "fc-reused-call-id-turn2": ["second_tool"],
    "fc-single": ["multiply"],
    "fc-unknown-tool-parallel-wrapper": ["parallel"],
    "hm-args-invalid-json": ["refund_order"],
    "hm-args-nul": ["refund_order"],
    "hm-parallel-mixed-risk": ["get_order", "refund_order"],
    "hm-usage-null": ["get_order"],
}
FINAL = {
    "hm-claims-done": "Done! I have refunded",
    "item-web-search": "The latest stable Ruby",
    "text-cache-usage": "OK",
    "text-phase-commentary-final": "Here are some",
}
INVALID = {
    "hm-args-truncated-incomplete": "incomplete",
    "hm-dup-call-id-in-response": "duplicate_call_id",
    "hm-empty-output": "empty_output",
    "hm-status-missing": "unfinished_item",
    "item-custom-tool-call": "unsupported_item",
    "item-mcp-approval-request": "unsupported_item",
    "state-incomplete-max-tokens": "incomplete",
}
FAILURES = {
    "err-400-context-length": ("context_length_exceeded", False),
    "err-401-invalid-key": ("invalid_api_key", False),
    "err-429-insufficient-quota": ("insufficient_quota", False),
    "hm-200-html": ("reply_not_json", True),
    "hm-200-truncated-json": ("reply_not_json", True),
    "hm-err-429-retry-after": ("rate_limit_exceeded", True),
    "hm-err-503-overloaded": ("server_is_overloaded", True),
    "hm-failed-server-error": ("server_error", True),
    "sse-function-call": ("reply_not_json", True),
}


def parsed(text: str) -> ParsedReply:
    result = parse_reply(text)
    assert isinstance(result, ParsedReply), result
    return result


def decision(*items: dict[str, Any], **fields: Any) -> decisions.Decision:
    return parsed(reply(*items, **fields)).decision


def test_every_recorded_body_has_an_expectation() -> None:
    known = [*CALLS, *FINAL, *INVALID, *FAILURES, "hm-refusal"]
    assert sorted(known) == NAMES


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("name", CALLS)
def test_calls_are_taken_in_order_with_raw_arguments(name: str) -> None:
    found = parsed(body(name)).decision
    items = [i for i in recorded(name)["body"]["output"] if i["type"] == "function_call"]
    assert isinstance(found, ToolCalls)
    assert [one.name for one in found.calls] == CALLS[name]
    assert list(found.calls) == [ToolCall(i["call_id"], i["name"], i["arguments"]) for i in items]


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("name", FINAL)
def test_final_answers(name: str) -> None:
    found = parsed(body(name)).decision
    assert isinstance(found, Final)
    assert found.text.startswith(FINAL[name])
    assert "quickly check" not in found.text  # commentary is no part of the answer


@pytest.mark.requirement("R13", "R14")
@pytest.mark.parametrize("name", INVALID)
def test_from_an_invalid_reply_nothing_runs(name: str) -> None:
    found = parsed(body(name)).decision
    assert isinstance(found, Invalid)
    assert found.code == INVALID[name]


def test_the_reason_of_an_incomplete_reply_is_kept() -> None:
    found = parsed(body("state-incomplete-max-tokens"))
    assert found.decision == Invalid("incomplete", "max_output_tokens")
    assert found.usage == Usage(1220, 0, 100, 54)  # counted all the same


@pytest.mark.requirement("R13", "R14")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_model_call_is_no_decision(name: str) -> None:
    found = parse_reply(body(name))
    assert isinstance(found, ReplyFailure)
    assert (found.code, found.transient) == FAILURES[name]


def test_refusal() -> None:
    assert parsed(body("hm-refusal")).decision == Refusal("I can't help with that request.")


def test_usage_counts_cached_and_reasoning_apart_and_may_be_missing() -> None:
    assert parsed(body("text-cache-usage")).usage == Usage(6165, 6016, 5, 0)
    assert parsed(body("fc-parallel-2-reasoning")).usage == Usage(112, 0, 284, 192)
    assert parsed(body("hm-usage-null")).usage is None
    odd = {"input_tokens": "many", "output_tokens": -3, "input_tokens_details": None}
    assert parsed(reply(call(), usage=odd)).usage == Usage()


@pytest.mark.requirement("R18")
@pytest.mark.parametrize("name", [*CALLS, *FINAL, *INVALID, "hm-refusal"])
def test_the_items_are_kept_whole_and_in_order(name: str) -> None:
    output = parsed(body(name)).output
    assert output.isascii()
    assert json.loads(output) == recorded(name)["body"]["output"]
    kept = [list(item) for item in json.loads(output)]
    assert kept == [list(item) for item in recorded(name)["body"]["output"]]


@pytest.mark.requirement("R18")
def test_unknown_fields_and_the_field_async_survive() -> None:
    item = call(**{"async": True, "namespace": None, "x_new": {"a": [1, "\x00\ud800"]}})
    found = parsed(reply(item))
    assert json.loads(found.output) == [item]
    assert storable(found.output)


# --- R14: what is cut or doubtful never becomes a call ---------------------------------------


@pytest.mark.requirement("R14")
@pytest.mark.parametrize("status", ["in_progress", "incomplete", "queued"])
@pytest.mark.parametrize("outer", ["completed", None])
def test_a_call_that_is_not_finished_stops_its_neighbours(status: str, outer: str | None) -> None:
    found = decision(call("a"), call("b", status=status), status=outer)
    assert isinstance(found, Invalid)
    assert found.code == "unfinished_item"


@pytest.mark.requirement("R14")
def test_a_complete_call_in_an_incomplete_reply_does_not_run() -> None:
    details = {"reason": "content_filter"}
    found = decision(call(), status="incomplete", incomplete_details=details)
    assert found == Invalid("incomplete", "content_filter")


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(
    "item",
    [
        call(call_id=""),
        call(call_id="x" * 201),
        call(call_id="a\x00"),
        call(name=""),
        call(name="\ud800"),
        call(call_id=None),
        call(name=7),
        call(arguments={"a": 1}),
        call(arguments=None),
        call(arguments="x" * (decisions.MAX_ARGUMENTS + 1)),
    ],
)
def test_a_malformed_call_makes_the_reply_invalid(item: dict[str, Any]) -> None:
    assert isinstance(decision(call("good"), item), Invalid)


@pytest.mark.requirement("R14")
@given(st.integers(0, 2000))
def test_a_reply_cut_anywhere_never_becomes_a_call(length: int) -> None:
    text = body("hm-parallel-mixed-risk")
    cut = text[: length % len(text)]
    assert isinstance(parse_reply(cut), ReplyFailure)


def test_a_reply_without_status_is_judged_by_its_items() -> None:
    text = json.loads(reply(call()))
    del text["status"]
    assert isinstance(parsed(json.dumps(text)).decision, ToolCalls)
    item = call()
    del item["status"]
    assert isinstance(decision(item), ToolCalls)


def test_too_many_calls() -> None:
    many = [call(f"c{n}") for n in range(decisions.MAX_CALLS + 1)]
    assert isinstance(decision(*many[:-1]), ToolCalls)
    found = decision(*many)
    assert isinstance(found, Invalid)
    assert found.code == "too_many_calls"


# --- text, phases, refusals ------------------------------------------------------------------


@pytest.mark.parametrize("phase", [None, "commentary", "final_answer"])
def test_calls_win_over_text_before_and_after_them(phase: str | None) -> None:
    text = message("I will look it up.", phase=phase)
    for items in ([text, call()], [call(), text], [call("a"), text, call("b")]):
        found = decision(*items)
        assert isinstance(found, ToolCalls)
        assert found.text == "I will look it up."


def test_commentary_alone_is_no_answer() -> None:
    found = decision(message("Let me check.", phase="commentary"))
    assert isinstance(found, Invalid)
    assert found.code == "commentary_only"


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_message_is_no_answer(text: str) -> None:
    assert decision(message(text)) == decision()


def test_a_refusal_beside_calls_runs_nothing() -> None:
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}
    assert isinstance(decision(refusal, call()), Invalid)
    assert decision(refusal, message("Sorry.")) == Refusal("no")


def test_text_that_cannot_be_stored_is_replaced_in_the_answer_only() -> None:
    found = parsed(reply(message("a\x00b\ud800")))
    assert found.decision == Final("a\ufffdb\ufffd")
    assert json.loads(found.output)[0]["content"][0]["text"] == "a\x00b\ud800"


# --- items that are not ours -----------------------------------------------------------------


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    "item",
    [
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"},
        {"type": "computer_call", "call_id": "c", "action": {}},
        {"type": "local_shell_call", "call_id": "c", "action": {}},
        {"type": "shell_call", "call_id": "c"},
        {"type": "apply_patch_call", "call_id": "c"},
        {"type": "mcp_approval_request", "id": "m", "name": "n", "arguments": "{}"},
        {"type": "tool_search_call", "execution": "client"},
        {"type": "vendor_desktop_call", "call_id": "c"},
    ],
)
def test_an_item_that_waits_for_the_client_is_refused(item: dict[str, Any]) -> None:
    for items in ([item], [item, call()], [item, message("done")]):
        found = decision(*items)
        assert isinstance(found, Invalid)
        assert found.code == "unsupported_item"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "status": "in_progress"},
        {"type": "mcp_call", "name": "desk__refund", "arguments": "{}", "output": "paid"},
        {"type": "code_interpreter_call", "code": "1"},
        {"type": "x_search_call", "id": "x"},
        {"type": "compaction", "encrypted_content": "a"},
    ],
)
def test_what_the_provider_ran_is_recorded_and_never_dispatched(item: dict[str, Any]) -> None:
    found = parsed(reply(item, message("The answer")))
    assert found.decision == Final("The answer")
    assert json.loads(found.output)[0] == item
    both = decision(item, call("mine"))
    assert isinstance(both, ToolCalls)
    assert [one.call_id for one in both.calls] == ["mine"]


def test_a_call_in_a_foreign_namespace_is_not_ours() -> None:
    found = decision(call(name="refund", namespace="mcp"))
    assert isinstance(found, ToolCalls)
    assert found.calls[0].name == "mcp.refund"


# --- status and shape ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "transient"),
    [
        (
            {"status": "failed", "error": {"code": "rate_limit_exceeded"}},
            "rate_limit_exceeded",
            True,
        ),
        ({"status": "failed", "error": {"code": "invalid_prompt"}}, "invalid_prompt", False),
        ({"status": "failed", "error": None}, "unknown", False),
        ({"status": None, "error": {"code": "server_error"}}, "server_error", True),
        ({"status": "cancelled"}, "reply_cancelled", False),
        ({"status": "queued"}, "reply_not_finished", True),
        ({"status": "in_progress"}, "reply_not_finished", True),
        ({"status": "half"}, "reply_not_finished", True),
        ({"output": None}, "reply_not_a_response", True),
    ],
)
def test_a_reply_without_a_result(fields: dict[str, Any], code: str, transient: bool) -> None:
    found = parse_reply(reply(call(), **fields))
    assert isinstance(found, ReplyFailure)
    assert (found.code, found.transient) == (code, transient)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '"x"', '{"output": [NaN]}', '{"a": 1e999}', "[" * 100_000, "1" * 9999],
)
def test_a_body_that_is_no_response(text: str) -> None:
    found = parse_reply(text)
    assert isinstance(found, ReplyFailure)
    assert found.transient


def test_a_huge_body_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_BODY", 100)
    found = parse_reply(reply(message("x" * 100)))
    assert isinstance(found, ReplyFailure)
    assert found.code == "reply_too_large"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "call_id", "name", "arguments", "status", "content", "text"]),
            inner | st.sampled_from(["function_call", "message", "output_text", "refusal"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.mark.requirement("R13")
@given(st.lists(JUNK, max_size=4), JUNK, JUNK)
def test_any_json_gets_a_verdict_and_calls_are_whole(items: Any, status: Any, usage: Any) -> None:
    found = parse_reply(json.dumps({"output": items, "status": status, "usage": usage}))
    if isinstance(found, ReplyFailure):
        return
    assert isinstance(found.decision, Final | ToolCalls | Refusal | Invalid)
    if isinstance(found.decision, ToolCalls):
        ids = [one.call_id for one in found.decision.calls]
        assert len(set(ids)) == len(ids) > 0
