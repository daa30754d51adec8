"""Where a history is cut, and what a summary keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.canonical import sha256_hex
from agentcore.compaction import ContextPolicy, boundary, summary, tokens_of
from agentcore.context import ContextError, Frame, compile_context, request_bytes
from agentcore.knowledge import Fact, Hypothesis, PlannedAction
from agentcore.observed import digest_of, fold, hide, observation, place_in, said_in, unfold
from agentcore.replay import Exchange
from tests.agentcore.bodies import call
from tests.replies.history import problems


def exchange(turn: int, size: int = 400, **fields: Any) -> Exchange:
    calls = json.dumps([call(f"c{turn}")])
    action = PlannedAction(turn, "desk.read", "{}", "succeeded", "head", "ab")
    fact = Fact(f"ev_{turn}", turn, "desk.read@1", "order:1", "7", "2026-01-01", True, "ab")
    values: dict[str, Any] = {"actions": (action,), "facts": (fact,), "said": f"maybe {turn}"}
    return Exchange(turn, calls, ((f"c{turn}", "x" * size),), **{**values, **fields})


def size_of(policy: ContextPolicy, exchanges: list[Exchange], before: int) -> int:
    return sum(tokens_of(e.size) for e in exchanges if e.turn >= before)


@pytest.mark.requirement("R25")
@given(
    sizes=st.lists(st.integers(1, 4000), max_size=30),
    before=st.integers(0, 10),
    keep=st.integers(1, 8),
    force=st.booleans(),
)
def test_the_boundary_only_moves_on_and_leaves_what_fits(
    sizes: list[int], before: int, keep: int, force: bool
) -> None:
    policy = ContextPolicy(window=4000, keep_last=keep)
    exchanges = [exchange(n, size) for n, size in enumerate(sizes, 1)]
    found = boundary(policy=policy, exchanges=exchanges, fixed=400, before=before, force=force)
    assert found >= before
    left = [e for e in exchanges if e.turn >= found]
    whole = [e for e in exchanges if e.turn >= before]
    assert len(left) >= min(1, len(whole)), "the last exchange always stays"
    if not force and len(left) > 1:
        assert 100 + size_of(policy, exchanges, found) <= policy.limit
    if len(left) < min(keep, len(whole)):
        more = 100 + size_of(policy, exchanges, left[0].turn - 1)
        limit = min(policy.limit, (100 + size_of(policy, exchanges, before)) // 2)
        assert more > (limit if force else policy.limit), "not one more than needed"


def test_nothing_is_cut_as_long_as_it_fits() -> None:
    exchanges = [exchange(n) for n in range(1, 9)]
    assert boundary(policy=ContextPolicy(), exchanges=exchanges, fixed=0) == 0


def test_after_a_cut_there_is_room_for_many_turns() -> None:
    policy = ContextPolicy(window=10_000, keep_last=2)
    exchanges, cuts, before = [], 0, 0
    for turn in range(1, 200):
        exchanges.append(exchange(turn, 1000))
        found = boundary(policy=policy, exchanges=exchanges, fixed=400, before=before)
        cuts += found != before
        before = found
    assert 0 < cuts < 25, "every cut changes what the provider has cached"


@pytest.mark.requirement("R25")
def test_a_summary_keeps_actions_longest_and_says_what_it_left_out() -> None:
    policy = ContextPolicy(window=2000)
    exchanges = [exchange(n, said="s" * 200) for n in range(1, 9)]
    text = summary(exchanges=exchanges, policy=policy)["content"][0]["text"]
    assert len(text) < 2000 * 4 // 5 + 500
    body = json.loads(text.partition("\n")[2])
    assert body["omitted"]["said"] == 8
    assert body["actions"][-1]["turn"] == 8
    left_out = body["omitted"].get("actions", 0)
    assert len(body["actions"]) + left_out == 8


@pytest.mark.requirement("R25")
def test_an_effect_that_nobody_could_find_out_stays_uncertain() -> None:
    lost = PlannedAction(1, "desk.pay", "{}", "abandoned", "", "ab", effect_known=False)
    text = summary(exchanges=[exchange(1, actions=(lost,))], policy=ContextPolicy())
    body = json.loads(text["content"][0]["text"].partition("\n")[2])
    assert body["actions"][0]["effect_known"] is False


@pytest.mark.requirement("R25")
@given(st.integers(1, 12), st.lists(st.integers(1, 3), min_size=1, max_size=10))
def test_a_cut_anywhere_leaves_a_history_the_api_accepts(before: int, calls: list[int]) -> None:
    exchanges = []
    for turn, count in enumerate(calls, 1):
        items = [call(f"c{n}") for n in range(count)]
        seen = tuple((f"c{n}", "seen") for n in range(count))
        exchanges.append(Exchange(turn, json.dumps(items), seen))
    pack = compile_context(
        instructions="You help.",
        model="m",
        settings={},
        tools=[],
        run_input="hi",
        exchanges=exchanges,
        frame=Frame({}, compacted_before=before),
    )
    assert problems(pack.request) == []


@pytest.mark.requirement("R24")
def test_facts_hypotheses_and_plans_cannot_be_taken_for_each_other() -> None:
    fact = Fact("ev_1", 1, "desk.read@1", "order:1", "7", "2026-01-01", True, "ab")
    kinds = [fact, Hypothesis(1, "maybe"), PlannedAction(1, "desk.pay", "{}", "denied", "", "ab")]
    assert len({type(kind) for kind in kinds}) == 3
    assert "verified" in fact.shown()
    assert all("verified" not in kind.shown() for kind in kinds[1:])


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("handle", [object(), {1, 2}, b"bytes", Exchange(1, "")])
def test_nothing_but_json_gets_into_a_request(handle: object) -> None:
    with pytest.raises(ContextError, match="not JSON"):
        request_bytes({"input": [handle]})


@pytest.mark.requirement("R27")
@given(st.text(min_size=4, max_size=20), st.integers(0, 1))
def test_a_secret_is_hidden_in_every_spelling(secret: str, depth: int) -> None:
    value: Any = {"a": f"<{secret}>", "b": 1}
    for _ in range(depth):
        value = {"nested": json.dumps(value)}
    text = hide(observation(tool="t", status="ok", data=value), [secret])
    found = json.loads(text)
    assert (found["status"], found["tool"], found["untrusted"]) == ("ok", "t", True)
    storable = all(char != "\x00" and not "\ud800" <= char <= "\udfff" for char in secret)
    if storable:
        shown = json.dumps(found["data"], ensure_ascii=False)
        assert "[redacted]" in shown
        assert f"<{secret}>" not in shown


def test_a_secret_that_is_a_number_and_one_that_is_a_word_of_the_envelope() -> None:
    text = observation(tool="t", status="ok", data={"pin": 4711, "said": "data: tool"})
    found = json.loads(hide(text, ["4711", "data", "tool"]))
    assert found["data"] == {"pin": "[redacted]", "said": "[redacted]: [redacted]"}
    assert found["tool"] == "t"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=700) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(VALUES)
def test_a_folded_observation_unfolds_to_itself(result: Any) -> None:
    text = observation(tool="desk.read", status="ok", data=result)
    stored = fold(text, result)
    assert unfold(stored, json.loads(json.dumps(result))) == text
    assert len(stored) <= len(text)


def test_another_result_does_not_unfold() -> None:
    result = {"text": "word " * 200}
    stored = fold(observation(tool="desk.read", status="ok", data=result), result)
    assert len(stored) < 300
    with pytest.raises(ValueError, match="not the one that was shown"):
        unfold(stored, {"text": "word " * 199})


def test_the_digest_of_an_observation_is_the_same_however_it_is_stored() -> None:
    result = {"text": "word " * 200}
    text = observation(tool="desk.read", status="ok", data=result)
    stored = fold(text, result)
    assert stored != text
    assert digest_of(stored) == digest_of(text) == sha256_hex(text)


@given(st.text(max_size=300), st.booleans())
def test_a_text_is_found_again_where_it_stands_in_the_reply(text: str, there: bool) -> None:
    output = json.dumps([{"type": "message", "content": text if there else "none"}])
    assert said_in(output, place_in(output, text)) == text


@pytest.mark.parametrize("text", ["@output 1 5", "@output @output 1 5", "@output ", "@output x"])
def test_a_text_that_looks_like_a_place_is_none(text: str) -> None:
    assert said_in("[]", place_in("[]", text)) == text


def test_a_long_text_is_not_stored_a_second_time() -> None:
    text = 'She said "yes", über\n' * 20
    output = json.dumps([{"type": "message", "content": text}])
    stored = place_in(output, text)
    assert len(stored) < 20
    assert said_in(output, stored) == text
