"""The scripted model server speaks the real client's protocol and checks the history."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from agentcore.context import observation
from examples.refund_desk.model_script import final_answer, find_script
from tests.examples.http import call


def seen(status: str, data: object) -> str:
    """What the runtime shows the model of one call."""
    return observation(tool="refund_desk.submit_refund", status=status, data=data)


TOOL_REPLIES = {
    "refund_desk__get_order": seen("ok", {"order_id": "ORD-1001", "refundable": "120.00 EUR"}),
    "refund_desk__get_policy": seen("ok", {"window_days": 30}),
    "refund_desk__submit_refund": seen("ok", {"refund_id": "ref_0a1b", "amount": "80.00 EUR"}),
}
Items = list[dict[str, Any]]


def ask(model: str, items: Items, **more: Any) -> dict[str, Any]:
    """One turn through the official client; the body as it came."""
    client = openai.OpenAI(api_key="sk-test", base_url=f"{model}/v1", max_retries=0)
    raw = client.responses.with_raw_response.create(
        model="scripted", input=items, store=False, **more
    )
    body: dict[str, Any] = json.loads(raw.text)
    return body


def converse(model: str, message: str, turns: int) -> Items:
    """The items after `turns` turns, each call answered from TOOL_REPLIES."""
    items: Items = [{"role": "user", "content": message}]
    for _ in range(turns):
        output = ask(model, items)["output"]
        items += output
        items += [
            {
                "type": "function_call_output",
                "call_id": item["call_id"],
                "output": TOOL_REPLIES.get(item["name"], "{}"),
            }
            for item in output
            if item["type"] == "function_call"
        ]
    return items


def calls_in(items: Items) -> list[tuple[str, dict[str, Any]]]:
    calls = [item for item in items if item.get("type") == "function_call"]
    return [(item["name"], json.loads(item["arguments"])) for item in calls]


def test_the_refund_desk_in_three_turns(model: str) -> None:
    items = converse(model, "Order ORD-1001 came damaged, refund 80.00 EUR please", 3)
    names = [name for name, _ in calls_in(items)]
    assert names == [
        "refund_desk__get_order",
        "refund_desk__get_policy",
        "refund_desk__submit_refund",
    ]
    assert calls_in(items)[2][1]["order_id"] == "ORD-1001"
    assert "80.00" in json.dumps(calls_in(items)[2][1])
    answer = items[-1]
    assert "ref_0a1b" in answer["content"][0]["text"]
    assert answer["phase"] == "final_answer"


def test_the_body_has_the_real_shape(model: str) -> None:
    body = ask(model, [{"role": "user", "content": "ORD-1001"}], instructions="be brief")
    assert body["object"] == "response"
    assert body["id"].startswith("resp_")
    assert body["usage"]["total_tokens"] > 0
    kinds = [item["type"] for item in body["output"]]
    assert kinds == ["reasoning", "function_call", "function_call"]
    assert body["output"][0]["encrypted_content"].startswith("gAAAA")


def drop_reasoning(items: Items) -> None:
    items.pop(1)


def drop_output(items: Items) -> None:
    items.pop(5)


def drop_call(items: Items) -> None:
    items.pop(3)


def swap_calls(items: Items) -> None:
    items[2], items[3] = items[3], items[2]


def change_arguments(items: Items) -> None:
    items[2]["arguments"] = '{"order_id": "ORD-2"}'


def change_blob(items: Items) -> None:
    items[1]["encrypted_content"] = items[1]["encrypted_content"][:-8] + "AAAAAAA="


def drop_blob(items: Items) -> None:
    items[1]["encrypted_content"] = None


def repeat_output(items: Items) -> None:
    items.append(copy.deepcopy(items[5]))


def output_alone(items: Items) -> None:
    items.append({"type": "function_call_output", "call_id": "call_x", "output": "{}"})


def only_reasoning(items: Items) -> None:
    del items[2:]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_reasoning, "was provided without its required 'reasoning' item"),
        (drop_output, "No tool output found for function call call_"),
        (drop_call, "No tool call found for function call output with call_id call_"),
        (swap_calls, "could not be verified"),
        (change_arguments, "could not be verified"),
        (change_blob, "could not be verified"),
        (drop_blob, "Items are not persisted when `store` is set to false"),
        (repeat_output, "Duplicate function call output"),
        (output_alone, "No tool call found for function call output with call_id call_x"),
        (only_reasoning, "without its required following item"),
    ],
)
def test_a_damaged_history_is_refused(
    model: str, damage: Callable[[Items], None], words: str
) -> None:
    items = converse(model, "refund ORD-1001", 1)
    assert ask(model, items)["status"] == "completed"
    damage(items)
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(model, items)
    assert words in str(refusal.value)


def test_ids_may_be_left_out(model: str) -> None:
    items = converse(model, "refund ORD-1001", 1)
    for item in items:
        item.pop("id", None)
    assert ask(model, items)["status"] == "completed"


def test_a_schema_that_is_not_strict_is_refused(model: str) -> None:
    loose = {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}
    tool = {"type": "function", "name": "t", "strict": True, "parameters": loose}
    items: Items = [{"role": "user", "content": "ORD-1"}]
    with pytest.raises(openai.BadRequestError, match="additionalProperties"):
        ask(model, items, tools=[tool])
    tool["parameters"] = {**loose, "additionalProperties": False}
    with pytest.raises(openai.BadRequestError, match="Missing 'a'"):
        ask(model, items, tools=[tool])


def test_a_script_drives_any_conversation(model: str) -> None:
    script = {
        "script": [
            [{"tool": "app__one", "arguments": {"n": 1}, "call_id": "call_0"}],
            ["thinking", {"tool": "app__two", "arguments": "{not json"}],
            ["all done"],
        ]
    }
    first = converse(model, json.dumps({"message": json.dumps(script)}), 2)
    calls = [item for item in first if item.get("type") == "function_call"]
    assert [(item["name"], item["arguments"]) for item in calls] == [
        ("app__one", '{"n": 1}'),
        ("app__two", "{not json"),
    ]
    assert calls[0]["call_id"] == "call_0"
    last = ask(model, first)["output"][-1]
    assert last["content"][0]["text"] == "all done"


def test_a_script_is_found_inside_text_and_json_strings() -> None:
    script = {"script": [["hi"]]}
    nested = json.dumps({"order_id": "ORD-1", "message": f"x {json.dumps(script)} y"})
    assert find_script(f"Task {{1}}:\n{nested}") == [["hi"]]
    assert find_script("no such thing {}") is None


def test_a_scripted_refusal_and_a_cut_reply(model: str) -> None:
    script = {"script": [[{"refusal": "I will not"}]]}
    refused = ask(model, [{"role": "user", "content": json.dumps(script)}])
    assert refused["output"][-1]["content"][0] == {"type": "refusal", "refusal": "I will not"}
    script = {"script": [["half", {"status": "incomplete"}]]}
    cut = ask(model, [{"role": "user", "content": json.dumps(script)}])
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("error_500", openai.InternalServerError),
        ("error_429", openai.RateLimitError),
        ("error_401", openai.AuthenticationError),
        ("drop", openai.APIConnectionError),
        ("cut_200", openai.APIConnectionError),
    ],
)
def test_each_fault_breaks_one_call(model: str, mode: str, error: type[Exception]) -> None:
    call("POST", f"{model}/faults", {"mode": mode})
    items: Items = [{"role": "user", "content": "ORD-1"}]
    with pytest.raises(error):
        ask(model, items)
    assert ask(model, items)["status"] == "completed"


def test_a_reply_that_was_left_out_counts_as_a_turn(model: str) -> None:
    script = {"script": [[{"tool": "a__b", "arguments": "{not json"}], ["second"]]}
    note = {"role": "developer", "content": "Message from the runtime:\nthe reply was invalid"}
    items: Items = [{"role": "user", "content": json.dumps(script)}, note]
    assert ask(model, items)["output"][-1]["content"][0]["text"] == "second"


def test_requests_are_kept_for_tests(model: str) -> None:
    before = call("GET", f"{model}/requests").body["total"]
    ask(model, [{"role": "user", "content": "ORD-77"}])
    kept = call("GET", f"{model}/requests?bodies=1").body
    assert kept["total"] == before + 1
    assert kept["bodies"][0]["input"][0]["content"] == "ORD-77"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (seen("rejected", {"reason": "REJECTED"}), "rejected"),
        (seen("expired", {}), "expired"),
        (seen("denied", {"reason": "SCOPE_MISSING"}), "not allowed"),
        (seen("failed", {"reason": "http_409"}), "refused"),
        (seen("already_done", {"result": {"refund_id": "ref_1"}}), "already been refunded"),
        (seen("ok", {"refund_id": "ref_1", "amount": "8.00 EUR"}), "8.00 EUR of order ORD-1"),
        (seen("being_checked", {}), "do not know"),
        ("something else", "do not know"),
    ],
)
def test_the_last_answer_is_honest(output: str, words: str) -> None:
    answer = final_answer(order_id="ORD-1", output=output)
    assert words in answer
    assert ("ref_1" in answer) is ("8.00 EUR" in words)
