"""What the scripted model says next, decided from the request's input alone.

Two ways to drive it:

1. **The refund desk.** The user's message names an order (`ORD-1001`), and may name an amount
   (`"amount": "80.00"` or `80.00 EUR`); without one the order's refundable amount is taken.
   Turn 1 proposes get_order and get_policy together, turn 2 submit_refund, turn 3 says honestly
   how it ended.
2. **A script.** The message holds, anywhere in its text, a JSON object
   `{"script": [[entry, ...], ...]}`: one list of entries for each turn. An entry is

       {"tool": "app__function", "arguments": {...}}   a call; arguments may also be raw text,
                                                       and "call_id" may be given
       "some text"                                     text (the final answer when alone)
       {"refusal": "text"}                             the model refuses
       {"status": "incomplete"}                        the reply was cut by max_output_tokens

   The number of model replies in the input tells the turn; a reply that the runtime left out
   counts by the developer message that says why. After the last one it says "done".
   An empty list makes a reply with no output items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from examples.refund_desk.model_bodies import Call, Proposal
from examples.refund_desk.model_history import Item

NOTE = "Message from the runtime"
"""How the runtime's notes begin; its other developer messages stand for no reply."""
ORDER = re.compile(r"ORD-\d+")
AMOUNT = re.compile(r'"amount"\s*:\s*"(\d+\.\d\d)|(\d+\.\d\d)\s*EUR')
GET_ORDER, GET_POLICY = "refund_desk__get_order", "refund_desk__get_policy"
SUBMIT_REFUND = "refund_desk__submit_refund"


def next_proposal(*, items: list[Item]) -> Proposal:
    """The next turn for these checked input items."""
    user_text = "\n".join(_texts(items, role="user"))
    script = find_script(user_text)
    if script is not None:
        return _scripted(script=script, turn=replies_so_far(items))
    return _refund_desk(items=items, user_text=user_text)


def replies_so_far(items: list[Item]) -> int:
    """How many replies the model has given, from the input alone.

    A reply is an unbroken run of its items. A note of the runtime that follows none of them stands
    for a reply that was left out, because it could not be sent again.
    """
    replies = 0
    before_is_ours = False
    for item in items:
        is_ours = _is_ours(item)
        starts_reply = is_ours and (item["type"] == "reasoning" or not before_is_ours)
        is_note = item.get("role") == "developer" and NOTE in str(item.get("content"))
        replies += starts_reply or (is_note and not before_is_ours)
        before_is_ours = is_ours
    return replies


def _is_ours(item: Item) -> bool:
    is_answer = item["type"] == "message" and item.get("role") == "assistant"
    return item["type"] in ("reasoning", "function_call") or is_answer


def _texts(items: list[Item], *, role: str) -> Iterator[str]:
    for item in items:
        if item["type"] != "message" or item.get("role") != role:
            continue
        content = item.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from (str(part.get("text", "")) for part in content or [])


# --- scripts ------------------------------------------------------------------------------


def find_script(text: str) -> list[list[Any]] | None:
    """The first `{"script": [...]}` in the text, also inside JSON strings in it; else None."""
    decoder = json.JSONDecoder()
    if "script" not in text:
        return None
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            end = start + 1
        else:
            found = _script_in(value)
            if found is not None:
                return found
        start = text.find("{", end)
    return None


def _script_in(value: Any) -> list[list[Any]] | None:
    if isinstance(value, str):
        return find_script(value)
    if isinstance(value, dict):
        if isinstance(value.get("script"), list):
            turns: list[list[Any]] = value["script"]
            return turns
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            found = _script_in(part)
            if found is not None:
                return found
    return None


def _scripted(*, script: list[list[Any]], turn: int) -> Proposal:
    if turn >= len(script):
        return Proposal(text="done")
    calls: list[Call] = []
    texts: list[str] = []
    refusal, status = "", "completed"
    for entry in script[turn]:
        if isinstance(entry, str):
            texts.append(entry)
            continue
        if "tool" in entry:
            arguments = entry.get("arguments", {})
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(Call(entry["tool"], raw, str(entry.get("call_id", ""))))
        refusal = entry.get("refusal", refusal)
        status = entry.get("status", status)
    return Proposal(tuple(calls), " ".join(texts), refusal, status)


# --- the refund desk ----------------------------------------------------------------------


def _refund_desk(*, items: list[Item], user_text: str) -> Proposal:
    order = ORDER.search(user_text)
    if order is None:
        return Proposal(text="Which order is it about? Please give its number, such as ORD-1001.")
    outputs = outputs_by_tool(items)
    if SUBMIT_REFUND in outputs:
        return Proposal(text=final_answer(order_id=order[0], output=outputs[SUBMIT_REFUND]))
    if GET_ORDER in outputs:
        return _propose_refund(order_id=order[0], user_text=user_text, seen=outputs[GET_ORDER])
    order_call = Call(GET_ORDER, json.dumps({"order_id": order[0]}))
    return Proposal(calls=(order_call, Call(GET_POLICY, "{}")))


def outputs_by_tool(items: list[Item]) -> dict[str, str]:
    """The latest output text of each tool that was called."""
    names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
    outputs = {}
    for item in items:
        if item["type"] == "function_call_output" and item["call_id"] in names:
            value = item["output"]
            text = value if isinstance(value, str) else json.dumps(value)
            outputs[names[item["call_id"]]] = text
    return outputs


def _propose_refund(*, order_id: str, user_text: str, seen: str) -> Proposal:
    refundable = re.search(r'"refundable"\s*:\s*"(\d+\.\d\d)', seen.replace('\\"', '"'))
    asked = AMOUNT.search(user_text.replace('\\"', '"'))
    amount = (asked[1] or asked[2]) if asked else (refundable[1] if refundable else "")
    if refundable is None or not amount:
        return Proposal(text=f"I could not read order {order_id}, so I have refunded nothing.")
    arguments = {
        "order_id": order_id,
        "amount": f"{amount} EUR",
        "reason": "late" if "late" in user_text.lower() else "damaged",
    }
    return Proposal(calls=(Call(SUBMIT_REFUND, json.dumps(arguments)),))


def final_answer(*, order_id: str, output: str) -> str:
    """An honest last sentence for the observation of submit_refund."""
    try:
        envelope = json.loads(output)
    except ValueError:
        envelope = None
    status = envelope.get("status") if isinstance(envelope, dict) else None
    data = envelope.get("data") if isinstance(envelope, dict) else None
    if status == "ok" and isinstance(data, dict) and data.get("refund_id"):
        return f"{data['amount']} of order {order_id} was refunded. Refund id: {data['refund_id']}."
    ending = _ENDINGS.get(str(status), _UNSURE)
    return ending.format(order_id=order_id)


_UNSURE = "I do not know whether order {order_id} was refunded; somebody has to check it."
_ENDINGS = {
    "already_done": "Order {order_id} had already been refunded; I did not refund it again.",
    "rejected": "A reviewer rejected the refund of order {order_id}; nothing was refunded.",
    "expired": "The approval for order {order_id} expired; nothing was refunded.",
    "not_executed_dry_run": "This is a dry run: nothing was refunded for order {order_id}.",
    "denied": "The refund of order {order_id} was not allowed; nothing was refunded.",
    "failed": "The refund of order {order_id} was refused; nothing was refunded.",
    "ok_but_unreadable": "Order {order_id} was refunded; the receipt could not be read.",
}
