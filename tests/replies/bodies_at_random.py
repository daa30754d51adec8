"""Random and mutated reply bodies for the property test."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.agentcore.bodies import NAMES, recorded
from tests.agentcore.loopback import Answer

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "call_0", "get_order", "completed", "incomplete", "\x00", "\ud800", "{}"]),
    st.text(max_size=12),
)
_ITEM_TYPES = (
    "message function_call function_call_output reasoning custom_tool_call computer_call "
    "mcp_approval_request web_search_call compaction x_new_call item_reference tool_search_call"
)
ARGUMENTS = st.one_of(
    st.sampled_from(
        [
            '{"order_id":"ord_1001"}',
            '{"order_id":"ord_2002"}',
            '{"order_id":"ord_1001","amount_cents":500,"reason":null}',
            '{"order_id":"ord_1001","amount_cents":2500,"reason":"damaged"}',
            "{}",
            "",
            "[1]",
            '{"order_id":NaN}',
            '{"order_id":"a","order_id":"b"}',
            '{"order_id":"\\u0000"}',
        ]
    ),
    st.text(max_size=20),
    SCALARS,
)


def _parts() -> st.SearchStrategy[Any]:
    part = st.fixed_dictionaries(
        {"type": st.sampled_from(["output_text", "text", "refusal", "input_image"])},
        optional={"text": SCALARS, "refusal": SCALARS},
    )
    return st.one_of(st.lists(part | SCALARS, max_size=2), SCALARS)


ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(_ITEM_TYPES.split())},
    optional={
        "id": SCALARS,
        "status": st.sampled_from(["completed", "in_progress", "incomplete", None]),
        "call_id": st.sampled_from(["call_0", "call_1", "call_2", None, "", 7]),
        "name": st.sampled_from(["get_order", "refund_order", "weather", "", None]),
        "arguments": ARGUMENTS,
        "content": _parts(),
        "role": st.sampled_from(["assistant", "user", None]),
        "phase": st.sampled_from(["commentary", "final_answer", None]),
        "output": SCALARS,
        "summary": st.just([]),
        "encrypted_content": st.text(max_size=8),
    },
)
CALLS = st.builds(
    lambda call_id, name, arguments: {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    },
    st.sampled_from(["call_0", "call_1", "call_2", "call_3"]),
    st.sampled_from(["get_order", "get_order", "refund_order", "parallel"]),
    ARGUMENTS,
)
REPLIES = st.builds(
    lambda output, status, more: {"id": "resp_r", "status": status, "output": output, **more},
    st.lists(CALLS | ITEMS | SCALARS, max_size=5) | SCALARS,
    st.sampled_from(["completed"] * 6 + ["incomplete", "failed", "queued", None, "new_word"]),
    st.dictionaries(st.sampled_from(["usage", "error", "incomplete_details", "model"]), SCALARS),
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A recorded body with one to three small changes, as broken servers and proxies make them."""
    body = copy.deepcopy(recorded(draw(st.sampled_from(NAMES)))["body"])
    for _ in range(draw(st.integers(1, 3))):
        if not isinstance(body, dict | list):
            return body
        path = _walk(draw, body)
        if path is None:
            continue
        where, key = path
        change = draw(st.sampled_from(["remove", "replace", "twice", "shuffle"]))
        if change == "remove":
            del where[key]
        elif change == "replace":
            where[key] = draw(SCALARS)
        elif change == "twice" and isinstance(where, list):
            where.append(copy.deepcopy(where[key]))
        elif isinstance(where, list):
            where.reverse()
    return body


def _walk(draw: st.DrawFn, value: Any) -> tuple[Any, Any] | None:
    """A random place in a JSON value, rather in the items than elsewhere."""
    if isinstance(value, dict) and isinstance(value.get("output"), list) and draw(st.booleans()):
        value = value["output"]
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return None
        key = draw(st.sampled_from(keys))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 2)) == 0:
            return value, key
        value = inner


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """One answer of the server: mostly a 200 with a body that is more or less a reply."""
    value = draw(REPLIES | mutated())
    text = value if isinstance(value, str) else json.dumps(value)
    if draw(st.integers(0, 9)) == 0:
        text = text[: draw(st.integers(0, len(text)))]
    data = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 19)) == 0:
        data = draw(st.binary(max_size=60))
    status = draw(st.sampled_from([200] * 12 + [400, 429, 500]))
    kind = draw(st.sampled_from(["application/json"] * 6 + ["text/event-stream", "text/html"]))
    return Answer(status=status, body=data, headers={"content-type": kind})
