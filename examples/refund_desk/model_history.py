"""The model server's check of a request: the rules of the real API for history and tools.

Each reply of this server has ids that share one stem (`resp_S…`, `rs_S…`, `fc_S…`, `msg_S…`) and
its reasoning item carries a sealed digest of the items that follow it. So a request that leaves
out, reorders or changes an item is refused, although the server remembers nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from examples.refund_desk.json_http import Reply

STEM = 18  # characters of an id after its prefix that all items of one reply share
_SEAL_KEY = b"scripted model server"
_SEAL_PREFIX = "gAAAAAB"
_FOLLOWS_REASONING = ("function_call", "message")

Item = dict[str, Any]


class BadRequestError(Exception):
    """A request the real API refuses. `reply()` is its answer."""

    def __init__(
        self, message: str, *, param: str | None = "input", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    def reply(self) -> Reply:
        return error_reply(
            status=400,
            message=str(self),
            kind="invalid_request_error",
            param=self.param,
            code=self.code,
        )


def error_reply(
    *, status: int, message: str, kind: str, param: str | None = None, code: str | None = None
) -> Reply:
    """An error body in the API's shape."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Reply(status=status, body={"error": error})


def stem_of(item: Item) -> str:
    """What the ids of one reply have in common; empty for an item without an id."""
    return str(item.get("id") or "").partition("_")[2][:STEM]


def seal(*, stem: str, following: list[Item]) -> str:
    """The `encrypted_content` of a reasoning item: opaque, bound to the items after it."""
    payload = json.dumps({"stem": stem, "next": _digest(following), "pad": stem * 12}).encode()
    mac = hmac.new(_SEAL_KEY, payload, hashlib.sha256).digest()
    return _SEAL_PREFIX + base64.urlsafe_b64encode(mac + payload).decode()


def _digest(items: list[Item]) -> str:
    keys = ("type", "call_id", "name", "arguments", "content", "role")
    bare = [{key: item[key] for key in keys if key in item} for item in items]
    return hashlib.sha256(json.dumps(bare, sort_keys=True).encode()).hexdigest()


def check_request(body: Any) -> list[Item]:
    """The input of a request as checked items. Raises BadRequestError in the API's own words."""
    if not isinstance(body, dict):
        raise BadRequestError("We could not parse the JSON body of your request.", param=None)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise BadRequestError(
            "Missing required parameter: 'model'.", param="model", code="missing_required_parameter"
        )
    if body.get("stream"):
        raise BadRequestError(
            "This server does not stream.", param="stream", code="unsupported_value"
        )
    if body.get("previous_response_id"):
        raise BadRequestError(
            f"Previous response with id '{body['previous_response_id']}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    for index, tool in enumerate(body.get("tools") or []):
        _check_tool(index, tool)
    items = _input_items(body.get("input"))
    _check_pairs(items)
    _check_reasoning(items)
    return items


def _input_items(value: Any) -> list[Item]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise BadRequestError(
            "Missing required parameter: 'input'.", code="missing_required_parameter"
        )
    items = []
    for index, item in enumerate(value):
        if not isinstance(item, dict) or not (item.get("type") or item.get("role")):
            raise BadRequestError(
                f"Invalid value for 'input[{index}]'.",
                param=f"input[{index}]",
                code="invalid_value",
            )
        items.append({"type": "message", **item})
    return items


def _check_tool(index: int, tool: Any) -> None:
    where = f"tools[{index}]"
    if not isinstance(tool, dict) or tool.get("type") != "function" or not tool.get("name"):
        raise BadRequestError(f"Invalid value for '{where}'.", param=where, code="invalid_value")
    if tool.get("strict") is False:
        return
    for schema in _objects(tool.get("parameters")):
        missing = set(schema.get("properties") or {}) - set(schema.get("required") or [])
        if schema.get("additionalProperties") is not False:
            problem = "'additionalProperties' is required to be supplied and to be false."
        elif missing:
            problem = (
                "'required' is required to be supplied and to be an array including every key in"
                f" properties. Missing '{min(missing)}'."
            )
        else:
            continue
        raise BadRequestError(
            f"Invalid schema for function '{tool['name']}': In context=(), {problem}",
            param=f"{where}.parameters",
            code="invalid_function_parameters",
        )


def _objects(schema: Any) -> list[dict[str, Any]]:
    """Every object schema inside `schema`, itself included."""
    if isinstance(schema, list):
        return [found for part in schema for found in _objects(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for part in schema.values() for found in _objects(part)]


def _check_pairs(items: list[Item]) -> None:
    """Each call has exactly one output after it, each output a call before it."""
    open_calls: list[str] = []
    answered: set[str] = set()
    for item in items:
        call_id = item.get("call_id")
        if item["type"] == "function_call":
            open_calls.append(str(call_id))
        elif item["type"] == "function_call_output":
            if not isinstance(item.get("output"), (str, list)):
                raise BadRequestError("Missing required parameter: 'input.output'.")
            if call_id in open_calls:
                open_calls.remove(str(call_id))
                answered.add(str(call_id))
            elif call_id in answered:
                raise BadRequestError(f"Duplicate function call output for call_id {call_id}.")
            else:
                raise BadRequestError(
                    f"No tool call found for function call output with call_id {call_id}."
                )
    if open_calls:
        raise BadRequestError(f"No tool output found for function call {open_calls[0]}.")


def _check_reasoning(items: list[Item]) -> None:
    """Reasoning is re-sent unchanged and followed by exactly the items of its reply."""
    stems = {stem_of(item) for item in items if item["type"] == "reasoning"}
    for index, item in enumerate(items):
        if item["type"] == "reasoning":
            _check_sealed(item, items[index + 1 :])
        elif item["type"] == "function_call" and item.get("id") and stem_of(item) not in stems:
            raise BadRequestError(
                f"Item '{item['id']}' of type 'function_call' was provided without its required"
                f" 'reasoning' item: 'rs_{stem_of(item)}'."
            )


def _check_sealed(reasoning: Item, rest: list[Item]) -> None:
    name = reasoning.get("id") or "rs_"
    following = []
    for item in rest:
        if item["type"] not in _FOLLOWS_REASONING or item.get("role") in ("user", "developer"):
            break
        following.append(item)
    if not following:
        raise BadRequestError(
            f"Item '{name}' of type 'reasoning' was provided without its required following item."
        )
    sealed = reasoning.get("encrypted_content")
    if not sealed:
        raise BadRequestError(
            f"Item with id '{name}' not found. Items are not persisted when `store` is set to"
            " false. Try again with `store` set to true, or remove this item from your input."
        )
    payload = _unseal(str(sealed))
    is_same = payload is not None and payload["next"] == _digest(following)
    is_own = payload is not None and stem_of(reasoning) in ("", payload["stem"])
    if not (is_same and is_own):
        raise BadRequestError(
            f"The encrypted content {str(sealed)[:12]}... could not be verified.",
            code="invalid_encrypted_content",
        )


def _unseal(text: str) -> dict[str, Any] | None:
    try:
        raw = base64.urlsafe_b64decode(text.removeprefix(_SEAL_PREFIX))
    except ValueError:
        return None
    mac, payload = raw[:32], raw[32:]
    if not hmac.compare_digest(mac, hmac.new(_SEAL_KEY, payload, hashlib.sha256).digest()):
        return None
    decoded: dict[str, Any] = json.loads(payload)
    return decoded
