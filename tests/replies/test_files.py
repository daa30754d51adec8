"""Every recorded or hand-made body: what becomes of the run, its rows and the next request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agentcore.bodies import NAMES, recorded
from tests.replies.desk import KEY, Desk, of_record
from tests.replies.rows import CALLED, ENDED, INVALID, NOTE, OUT, Row, play

pytestmark = pytest.mark.django_db(transaction=True)

RETRIED = (("AMBIGUOUS", ""), ("SUCCESS", ""))


def _ok(tool: str) -> tuple[str, str, str]:
    return (tool, "SUCCEEDED", "")


def _failed(code: str) -> dict[str, Any]:
    """Nothing usable came; the same turn is asked again and answered."""
    return {"first": "FINAL", "attempts": (("AMBIGUOUS", code), ("SUCCESS", "")), "history": ()}


def _permanent(code: str, **more: Any) -> dict[str, Any]:
    """Asking again is of no use: one request, and a reason for the operator."""
    stop = more.pop("stop", "MODEL_ERROR")
    return {
        "first": "",
        "state": "FAILED",
        "stop": stop,
        "attempts": (("REFUSED", code),),
        "requests": 1,
        **more,
    }


TABLE: dict[str, Row] = {
    "err-400-context-length": Row(
        **_permanent("context_length_exceeded", stop="CONTEXT_ERROR", layer="context")
    ),
    "err-401-invalid-key": Row(
        **_permanent("invalid_api_key", layer="model", reason="refuses the API key")
    ),
    "err-429-insufficient-quota": Row(
        **_permanent("insufficient_quota", layer="model", reason="no quota left")
    ),
    "fc-azure-content-filters": Row(**CALLED, actions=(_ok("weather"),), tools=("weather",)),
    "fc-commentary-then-call": Row(
        first="TOOL_CALLS",
        history=("reasoning", "assistant", "function_call", OUT),
        actions=(_ok("get_capital"),),
        tools=("get_capital",),
    ),
    "fc-lmstudio-local": Row(**CALLED, actions=(_ok("weather"),), tools=("weather",)),
    "fc-parallel-2-reasoning": Row(
        first="TOOL_CALLS",
        history=("reasoning", "function_call", "function_call", OUT, OUT),
        actions=(_ok("weather_at"), _ok("best_language_to_learn")),
        tools=("weather_at", "best_language_to_learn"),
        names={"weather_at": "weather"},
    ),
    "fc-reasoning-encrypted": Row(
        first="TOOL_CALLS",
        history=("reasoning", "function_call", OUT),
        actions=(_ok("db_lookup"),),
        tools=("db_lookup",),
    ),
    "fc-reused-call-id-turn1": Row(
        **CALLED, actions=(_ok("first_tool"),), tools=("first_tool", "second_tool")
    ),
    "fc-reused-call-id-turn2": Row(
        **CALLED, actions=(_ok("second_tool"),), tools=("first_tool", "second_tool")
    ),
    "fc-single": Row(**CALLED, actions=(_ok("multiply"),), tools=("multiply",)),
    "fc-unknown-tool-parallel-wrapper": Row(
        **CALLED, actions=(("parallel", "DENIED", "UNKNOWN_TOOL"),), tools=("weather",)
    ),
    "hm-200-html": Row(**_failed("reply_not_json")),
    "hm-200-truncated-json": Row(**_failed("reply_not_json")),
    "hm-args-invalid-json": Row(
        **CALLED, actions=(("refund_order", "DENIED", "INVALID_ARGUMENTS"),)
    ),
    "hm-args-nul": Row(**CALLED, actions=(("refund_order", "DENIED", "INVALID_ARGUMENTS"),)),
    "hm-args-truncated-incomplete": Row(**INVALID, code="incomplete: max_output_tokens"),
    "hm-claims-done": Row(
        first="FINAL",
        code="the answer was not accepted: the answer says that something was done",
        history=("assistant", NOTE),
    ),
    "hm-dup-call-id-in-response": Row(**INVALID, code="duplicate_call_id"),
    "hm-empty-output": Row(**INVALID, code="empty_output"),
    "hm-err-429-retry-after": Row(**_failed("rate_limit_exceeded")),
    "hm-err-503-overloaded": Row(**_failed("server_is_overloaded")),
    "hm-failed-server-error": Row(**_failed("server_error")),
    "hm-parallel-mixed-risk": Row(
        first="TOOL_CALLS",
        state="WAITING_APPROVAL",
        actions=(_ok("get_order"), ("refund_order", "AWAITING_APPROVAL", "")),
        history=(),
        **ENDED,
    ),
    "hm-refusal": Row(
        first="REFUSAL",
        state="INCOMPLETE",
        stop="REFUSED",
        reason="I can't help with that request.",
        **ENDED,
    ),
    "hm-status-missing": Row(**INVALID, code="unfinished_item"),
    "hm-usage-null": Row(**CALLED, actions=(_ok("get_order"),)),
    "item-custom-tool-call": Row(**INVALID, code="unsupported_item: custom_tool_call"),
    "item-mcp-approval-request": Row(**INVALID, code="unsupported_item: mcp_approval_request"),
    "item-web-search": Row(first="FINAL", **ENDED),
    "sse-function-call": Row(
        **CALLED, actions=(_ok("get_current_weather"),), tools=("get_current_weather",)
    ),
    "state-incomplete-max-tokens": Row(**INVALID, code="incomplete: max_output_tokens"),
    "text-cache-usage": Row(first="FINAL", **ENDED),
    "text-phase-commentary-final": Row(first="FINAL", **ENDED),
}


def test_every_file_has_its_row() -> None:
    assert sorted(TABLE) == NAMES


@pytest.mark.requirement("R13", "R14", "R18", "R35")
@pytest.mark.parametrize("name", NAMES)
def test_a_body_leads_where_it_should(desk: Desk, name: str) -> None:
    run = play(desk, TABLE[name], of_record(name))
    assert KEY not in json.dumps([run.reason, run.failure])
    items = _items(name)
    if "function_call" in TABLE[name].history:
        start, end = 1, 1 + len(items)
        assert desk.requests()[-1]["input"][start:end] == items, "items are sent again untouched"


def _items(name: str) -> list[Any]:
    body = recorded(name)["body"]
    return body.get("output", []) if isinstance(body, dict) else _streamed(body)


def _streamed(text: str) -> list[Any]:
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    last = json.loads(lines[-1].removeprefix("data: ")) if lines else {}
    return last.get("response", {}).get("output", [])


def test_what_a_provider_adds_is_kept_in_the_record(desk: Desk) -> None:
    run = play(desk, TABLE["fc-azure-content-filters"], of_record("fc-azure-content-filters"))
    kept = desk.attempts(run)[0].result
    body = recorded("fc-azure-content-filters")["body"]
    assert kept["content_filters"] == body["content_filters"]
    assert kept["status"] == "completed"
    assert "tools" not in kept, "the echo of the request is not stored again"


@pytest.mark.requirement("R18")
def test_encrypted_content_is_sent_again_byte_for_byte(desk: Desk) -> None:
    play(desk, TABLE["fc-reasoning-encrypted"], of_record("fc-reasoning-encrypted"))
    (sealed,) = [i["encrypted_content"] for i in _items("fc-reasoning-encrypted")[:1]]
    assert sealed.encode() in desk.server.received[-1][2]


def test_only_the_answer_is_the_answer(desk: Desk) -> None:
    name = "text-phase-commentary-final"
    run = play(desk, TABLE[name], of_record(name))
    assert run.output["text"].startswith("Here are some **latest AI updates")
    assert "check reliable" not in run.output["text"]


@pytest.mark.requirement("R68")
def test_a_reply_without_usage_costs_its_reservation(desk: Desk) -> None:
    run = play(desk, TABLE["hm-usage-null"], of_record("hm-usage-null"))
    reserve, settled = desk.ledger(run)[:2]
    assert (reserve.entry, settled.entry) == ("RESERVE", "SETTLE")
    assert settled.estimated is True
    assert settled.input_tokens == reserve.input_tokens > 0


def test_cached_tokens_are_counted_apart_and_once(desk: Desk) -> None:
    run = play(desk, TABLE["text-cache-usage"], of_record("text-cache-usage"))
    settled = desk.ledger(run)[-1]
    found = (settled.input_tokens, settled.cached_tokens, settled.output_tokens)
    assert found == (6165, 6016, 5)
    assert run.tokens_used == 6170


@pytest.mark.requirement("R5")
def test_a_partial_text_is_no_answer_but_its_tokens_count(desk: Desk) -> None:
    name = "state-incomplete-max-tokens"
    run = play(desk, TABLE[name], of_record(name))
    turn = desk.turns(run)[0]
    assert turn.text == ""
    assert turn.usage["output_tokens"] == 100
    assert desk.attempts(run)[0].result["incomplete_details"] == {"reason": "max_output_tokens"}
    assert run.tokens_used >= 1320
