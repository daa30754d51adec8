"""Servers that only know chat completions: the same runs, rows and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from agentcore.decisions import parse_reply
from agentcore.lifecycle import RunState
from agentcore.llm.chat_completions import chat_request, reply_of
from tests.agentcore.bodies import call, message, recorded
from tests.replies.desk import Desk, answer
from tests.replies.streams import chat, chat_stream
from tests.replies.tools_of_the_desk import READ

pytestmark = pytest.mark.django_db(transaction=True)

ORDER = '{"order_id":"ord_1001"}'


@pytest.fixture
def chatting(desk: Desk) -> Desk:
    changed = {"model_api": "chat_completions"}
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(update=changed)
    return desk


def test_a_run_over_chat_completions(chatting: Desk) -> None:
    chatting.script(
        answer(chat("Let me look.", ("a", "get_order", ORDER), ("b", "get_order", "{"))),
        answer(chat("That is all.")),
    )
    run = chatting.start(settings={"reasoning": {"effort": "low"}, "temperature": 0.5})
    chatting.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert READ == ["get_order"]
    assert [path for path, _, _ in chatting.server.received] == ["/v1/chat/completions"] * 2
    first, second = chatting.requests()
    assert first["reasoning_effort"] == "low"
    assert [tool["function"]["name"] for tool in first["tools"]] == ["get_order", "refund_order"]
    roles = [item["role"] for item in second["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "system"]
    assistant = second["messages"][2]
    assert assistant["content"] == "Let me look."
    assert [c["id"] for c in assistant["tool_calls"]] == ["a", "b"]
    assert [m["tool_call_id"] for m in second["messages"][3:5]] == ["a", "b"]
    assert run.tokens_used == 2 * 37
    chatting.check_account(run)


@pytest.mark.parametrize(
    ("body", "decision", "code"),
    [
        (chat("half", finish="length"), "INVALID", "incomplete: max_output_tokens"),
        (chat("half", finish="content_filter"), "INVALID", "incomplete: content_filter"),
        (chat(None), "INVALID", "empty_output"),
        (chat(None, (None, "get_order", ORDER)), "INVALID", "malformed_call"),
        (chat(None, ("a", "get_order", {"order_id": "x"})), "INVALID", "malformed_call"),
        (chat(None, ("a", "get_order", ORDER), ("a", "get_order", ORDER)), "INVALID", "duplicate"),
        (chat(None, function_call={"name": "get_order"}), "INVALID", "malformed_call"),
        (chat(None, refusal="I will not."), "REFUSAL", ""),
    ],
)
def test_a_kind_of_chat_reply(chatting: Desk, body: str, decision: str, code: str) -> None:
    chatting.script(answer(body), answer(chat("That is all.")))
    run = chatting.start()
    chatting.drive(run)
    first = chatting.turns(run)[0]
    assert (first.decision, first.problem[: len(code)]) == (decision, code)
    assert chatting.actions(run) == []


@pytest.mark.parametrize("body", ["<html>", "{}", "[]", '{"choices":[]}', '{"choices":[{}]}', "x"])
def test_what_is_no_chat_reply_is_a_failed_attempt(chatting: Desk, body: str) -> None:
    chatting.script(answer(body), answer(chat("That is all.")))
    run = chatting.start()
    chatting.drive(run)
    assert run.state == RunState.COMPLETED
    assert chatting.attempts(run)[0].outcome == "AMBIGUOUS"


@pytest.mark.requirement("R14")
def test_a_streamed_chat_reply_is_whole_or_nothing(chatting: Desk) -> None:
    changed = {"stream": True}
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(update=changed)

    def part(**fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, **fields}]}

    fragments = [
        part(id="a", type="function", function={"name": "get_order", "arguments": ""}),
        part(function={"arguments": ORDER[:9]}),
        part(function={"arguments": ORDER[9:]}),
    ]
    cut = chat_stream(*fragments, finish=None)
    whole = chat_stream(*fragments, finish="tool_calls")
    chatting.script(cut, whole, chat_stream({"content": "That "}, {"content": "is all."}))
    run = chatting.start()
    chatting.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert [a.error_class for a in chatting.attempts(run)] == ["stream_cut", "", ""]
    assert READ == ["get_order"]
    assert run.output == {"text": "That is all."}


def test_what_chat_has_no_words_for_is_left_out() -> None:
    items = recorded("fc-reasoning-encrypted")["body"]["output"]
    items += [{"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "x"}]
    request = {"model": "m", "input": [*items, message("Done."), call("b")], "max_output_tokens": 9}
    changed = chat_request(request)
    assert [m["role"] for m in changed["messages"]] == ["assistant", "tool", "assistant"]
    assert changed["max_tokens"] == 9
    assert "encrypted" not in json.dumps(changed)


_NAMES = (
    "choices message content tool_calls function id type usage finish_reason refusal arguments "
    "name prompt_tokens_details"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES.split()), inner)
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_gets_a_verdict(value: Any) -> None:
    parse_reply(reply_of(json.dumps(value)))
    parse_reply(reply_of(json.dumps({"choices": [{"message": value, "finish_reason": "stop"}]})))
