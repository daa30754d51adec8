from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentcore import canonical
from agentcore.canonical import NotCanonical

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=8)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
# Keys without combining marks: two keys with one normal form are refused (tested below).
KEYS = st.text("abcdeé", min_size=1, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
PLACE = {"tool": "desk.refund", "tenant": "acme"}


def params_hash(params: Any) -> str:
    return canonical.params_hash(**PLACE, tool_version="1", params=params)


def respelt(value: Any, form: Any) -> Any:
    """The same meaning: keys in reverse order, text in another unicode form."""
    if isinstance(value, str):
        return unicodedata.normalize(form, value)
    if isinstance(value, list):
        return [respelt(item, form) for item in value]
    if isinstance(value, dict):
        return {respelt(k, form): respelt(v, form) for k, v in reversed(value.items())}
    return value


@given(OBJECTS, st.sampled_from(["NFC", "NFD"]))
def test_key_order_and_unicode_form_do_not_change_the_hash(params: Any, form: str) -> None:
    assert params_hash(params) == params_hash(respelt(params, form))


@given(OBJECTS, OBJECTS)
def test_any_other_value_has_another_hash(one: Any, other: Any) -> None:
    assume(
        canonical.canonical_json(canonical.normalize_params(one))
        != canonical.canonical_json(canonical.normalize_params(other))
    )
    assert params_hash(one) != params_hash(other)


@given(OBJECTS, KEYS, JSON, JSON)
def test_a_change_of_one_value_changes_the_hash(params: Any, key: str, a: Any, b: Any) -> None:
    assume(repr(canonical.normalize_params(a)) != repr(canonical.normalize_params(b)))
    assume(canonical.canonical_json(a) != canonical.canonical_json(b))
    assert params_hash({**params, key: a}) != params_hash({**params, key: b})


@pytest.mark.parametrize(("one", "other"), [(True, 1), (False, 0), (None, ""), ("1", 1), ([], {})])
def test_values_of_different_types_differ(one: Any, other: Any) -> None:
    assert params_hash({"a": one}) != params_hash({"a": other})


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        math.nan,
        {"amount": 12.5},
        [[0.1]],
        "a\x00b",
        {"a\x00": 1},
        "\ud800",
        {"\udfff": 1},
        2**53,
        {1: "a"},
        b"bytes",
        {"é": 1, "e\u0301": 2},
        object(),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical.normalize_params(value)
    with pytest.raises(NotCanonical):
        params_hash({"x": value})


def test_endless_nesting_is_refused() -> None:
    value: Any = []
    for _ in range(2000):
        value = [value]
    with pytest.raises(NotCanonical, match="nested"):
        canonical.canonical_json(value)


def test_canonical_json_is_rfc_8785() -> None:
    value = {"\u20ac": "e", "\r": 1, "a": [True, None, "\u00f6\n"], "\U0001f600": -5}
    expected = '{"\\r":1,"a":[true,null,"ö\\n"],"€":"e","😀":-5}'
    assert canonical.canonical_json(value).decode() == expected
    assert canonical.canonical_json("e\u0301") != canonical.canonical_json("é")


INTENT = {
    **PLACE,
    "contract_version": "1",
    "scope": "root-run",
    "identity": {"order_id": "ord_1"},
}


@pytest.mark.requirement("R50")
def test_the_key_is_the_intents_own() -> None:
    """Nothing of the protocol (call id, turn, attempt, time) goes in, so the same intent proposed
    again under a new call_id has the same key; the spelling of the identity does not matter."""
    first = canonical.intent_key(**INTENT)
    again = canonical.intent_key(**{**INTENT, "identity": {"order_id": "ord_1"}})
    assert first == again
    assert canonical.idempotency_key(intent_key=first, generation=0) == (
        canonical.idempotency_key(intent_key=again, generation=0)
    )


@pytest.mark.requirement("R50")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", "other"),
        ("tool", "desk.cancel"),
        ("contract_version", "2"),
        ("scope", "other-run"),
        ("identity", {"order_id": "ord_2"}),
        ("identity", {"order": "ord_1"}),
    ],
)
def test_another_tenant_tool_contract_scope_or_identity_has_another_key(
    field: str, value: Any
) -> None:
    assert canonical.intent_key(**INTENT) != canonical.intent_key(**{**INTENT, field: value})


@pytest.mark.requirement("R50")
@given(st.text(max_size=80), st.integers(0, 10**6), st.integers(0, 10**6))
def test_idempotency_keys_are_short_safe_and_differ_by_generation(
    intent: str, one: int, other: int
) -> None:
    assume(canonical.storable(intent))
    key = canonical.idempotency_key(intent_key=intent, generation=one)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key)
    assert key == key.lower()  # a downstream that ignores case keeps them apart
    assert (key == canonical.idempotency_key(intent_key=intent, generation=other)) == (one == other)


@pytest.mark.parametrize("generation", [-1, True])
def test_a_generation_is_a_count(generation: int) -> None:
    with pytest.raises(ValueError, match="count"):
        canonical.idempotency_key(intent_key="a", generation=generation)


def test_an_intent_needs_a_scope() -> None:
    with pytest.raises(NotCanonical):
        canonical.intent_key(**{**INTENT, "scope": ""})


def test_digests_for_different_purposes_differ() -> None:
    params = {"a": "b"}
    one = canonical.params_hash(**PLACE, tool_version="1", params=params)
    assert one != canonical.fingerprint(**PLACE, contract_version="1", params=params)
    assert one != canonical.params_hash(**PLACE, tool_version="2", params=params)
    assert one != canonical.params_hash(**{**PLACE, "tenant": "b"}, tool_version="1", params=params)


def test_the_event_chain_depends_on_key_predecessor_and_body() -> None:
    def chained(key: bytes = b"k", previous: str = "", body: Any = None) -> str:
        return canonical.event_hash(key=key, previous=previous, body=body or {"a": 1})

    hashes = {chained(), chained(key=b"l"), chained(previous="0"), chained(body={"a": 2})}
    assert len(hashes) == 4


@given(st.text(max_size=20))
def test_clean_text_can_be_stored_and_keeps_what_could(text: str) -> None:
    cleaned = canonical.clean_text(text)
    assert canonical.storable(cleaned)
    assert len(cleaned) == len(text)
    assert canonical.storable(text) == (cleaned == text)
    assert len(canonical.clean_text(text, 5)) <= 5
