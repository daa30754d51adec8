from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.policy import POLICY_VERSION, Verdict, evaluate
from agentcore.thresholds import (
    OPS,
    NotAThreshold,
    Threshold,
    applies,
    check,
    tighten,
    version_of,
    within,
)
from agentcore.values import Effect, Key, NoContract

ALLOW = Verdict("ALLOW", "default", POLICY_VERSION, "no rule objects")
ASK = Verdict("ASK", "tool_rule", POLICY_VERSION, "the tool asks", "payer", 1, timedelta(hours=4))
DENY = Verdict("DENY", "missing_scopes", POLICY_VERSION, "no")
ORDER = {"ALLOW": 0, "ASK": 1, "DENY": 2}


def rule(**fields: Any) -> Threshold:
    return Threshold(**{"ref": "t1", "reason": "audit week", **fields})


def tightened(verdict: Verdict, *rules: Threshold, **arguments: Any) -> Verdict:
    return tighten(verdict, effect=Effect.WRITE, thresholds=rules, arguments=arguments)


@pytest.mark.parametrize(
    ("op", "value", "given", "met"),
    [
        (">", "50.00 EUR", "50.01 EUR", True),
        (">", "50.00 EUR", "50.00 EUR", False),
        (">=", "50.00 EUR", "50 EUR", True),
        ("<", 10, 9, True),
        ("<=", 10, 11, False),
        (">", "50.00 EUR", "1.00 USD", True),  # cannot be compared: met
        (">", 50, "a lot", True),
        (">", 50, True, True),
        (">", 50, None, True),
        ("=", "DE", "DE", True),
        ("=", "DE", "FR", False),
        ("!=", "DE", "FR", True),
        ("=", 1, True, False),
        ("=", "5.0 EUR", "5.00 EUR", True),
        ("in", ["DE", "FR"], "FR", True),
        ("in", ["DE"], "FR", False),
        ("not in", ["DE"], "FR", True),
        ("always", None, "x", True),
    ],
)
def test_a_comparison(op: str, value: Any, given: Any, met: bool) -> None:
    assert applies(rule(argument="what", op=op, value=value), {"what": given}) is met


def test_a_dotted_name_leads_into_objects_and_what_is_missing_counts_as_met() -> None:
    deep = rule(argument="to.country", op="=", value="DE")
    assert applies(deep, {"to": {"country": "DE"}})
    assert not applies(deep, {"to": {"country": "FR"}})
    assert applies(deep, {"to": "DE"})
    assert applies(deep, {})


@pytest.mark.requirement("R39")
def test_it_asks_where_the_code_allows() -> None:
    found = tightened(ALLOW, rule(role="agent_approver", quorum=2, ttl=timedelta(minutes=5)))
    assert (found.kind, found.rule, found.role, found.count) == (
        "ASK",
        "threshold:t1",
        "agent_approver",
        2,
    )
    assert found.ttl == timedelta(minutes=5)
    assert found.high_risk
    assert "audit week" in found.reason


def test_it_makes_a_question_stricter_and_never_milder() -> None:
    found = tightened(ASK, rule(role="agent_approver", quorum=3, ttl=timedelta(hours=9)))
    assert (found.kind, found.rule, found.role) == ("ASK", "tool_rule", "payer,agent_approver")
    assert (found.count, found.ttl) == (3, timedelta(hours=4))
    assert tightened(found, rule(quorum=1)).count == 3


def test_of_two_steps_of_the_ladder_the_higher_one_is_asked() -> None:
    found = tightened(
        ALLOW, rule(role="agent_senior_approver"), rule(ref="t2", role="agent_approver")
    )
    assert found.role == "agent_senior_approver"
    assert found.high_risk


def test_it_can_refuse_and_nothing_takes_that_back() -> None:
    assert tightened(ASK, rule(verdict="DENY")).kind == "DENY"
    assert tightened(DENY, rule(), rule(ref="t2")).rule == "missing_scopes"
    assert tightened(ALLOW, rule(verdict="DENY"), rule(ref="t2")).kind == "DENY"


@pytest.mark.requirement("R39")
@pytest.mark.parametrize("verdict", ["ASK", "DENY"])
def test_a_read_never_asks(verdict: Any) -> None:
    found = tighten(ALLOW, effect=Effect.READ, thresholds=[rule(verdict=verdict)], arguments={})
    assert found.kind == "ALLOW"


def test_the_version_names_the_rules() -> None:
    assert version_of([]) == POLICY_VERSION
    one, other = version_of([rule()]), version_of([rule(quorum=2)])
    assert one != other
    assert all(v.startswith(f"{POLICY_VERSION}+") and len(v) <= 80 for v in (one, other))
    assert tightened(ALLOW, rule(argument="a", op="=", value=1), a=2).version != POLICY_VERSION


rules = st.builds(
    Threshold,
    ref=st.sampled_from(["t1", "t2", "t3"]),
    argument=st.just("n"),
    op=st.sampled_from(OPS),
    value=st.one_of(st.integers(-3, 3), st.lists(st.integers(-3, 3))),
    verdict=st.sampled_from(["ASK", "DENY"]),
    role=st.sampled_from(["", "payer", "agent_approver", "agent_admin"]),
    quorum=st.integers(1, 3),
    ttl=st.one_of(st.none(), st.timedeltas(timedelta(seconds=1), timedelta(days=1))),
    reason=st.just("because"),
).filter(lambda t: (t.op in ("in", "not in")) == isinstance(t.value, list))


@given(st.sampled_from([ALLOW, ASK, DENY]), st.lists(rules, max_size=4), st.integers(-4, 4))
def test_no_set_of_thresholds_makes_anything_milder(
    verdict: Verdict, thresholds: list[Threshold], n: int
) -> None:
    found = tightened(verdict, *thresholds, n=n)
    assert ORDER[found.kind] >= ORDER[verdict.kind]
    if found.kind == verdict.kind == "ASK":
        assert found.count >= verdict.count
        assert found.ttl is not None
        assert found.ttl <= (verdict.ttl or found.ttl)
        assert set(verdict.role.split(",")) <= set(found.role.split(","))


@pytest.mark.parametrize(
    "bad",
    [
        {"op": "~"},
        {"op": ">", "value": 1},
        {"argument": "a", "op": "in", "value": "DE"},
        {"argument": "a", "op": ">", "value": "much"},
        {"quorum": 0},
        {"ttl": timedelta(0)},
        {"reason": ""},
    ],
)
def test_what_cannot_mean_anything_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(NotAThreshold):
        check(rule(**bad))
    check(rule())


def test_bounds_of_a_standing_approval_hold_only_for_certain() -> None:
    bounds = [["amount", "<=", "50.00 EUR"], ["country", "in", ["DE"]]]
    assert within(bounds, {"amount": "50.00 EUR", "country": "DE"})
    assert not within(bounds, {"amount": "50.01 EUR", "country": "DE"})
    assert not within(bounds, {"amount": "1.00 USD", "country": "DE"})
    assert not within(bounds, {"country": "DE"})
    assert within([], {})


# --- what the policy of the code says about edits, strangers and switches --------------------


def verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "tool": "desk.refund",
        "effect": Effect.WRITE,
        "contract": Key(timedelta(days=1)),
        "offered": True,
        "missing_scopes": (),
        "asks": False,
        "rule": "",
        "role": "",
        "count": 1,
        "ttl": None,
    }
    return evaluate(**{**values, **changes})


def test_a_write_after_text_of_strangers_asks_and_is_high_risk() -> None:
    found = verdict(untrusted=True)
    assert (found.kind, found.rule, found.high_risk) == ("ASK", "untrusted_content", True)
    assert verdict(asks=True, rule="over", untrusted=True).high_risk
    assert not verdict(asks=True, rule="over").high_risk
    assert verdict(effect=Effect.READ, untrusted=True).kind == "ALLOW"


def test_an_edited_action_always_asks_and_a_switched_off_tool_never_runs() -> None:
    assert (verdict(edited=True).kind, verdict(edited=True).rule) == ("ASK", "edited")
    off = verdict(effect=Effect.READ, switched_off="wrong orders")
    assert (off.kind, off.rule) == ("DENY", "switched_off")
    assert "wrong orders" in off.reason


def test_what_can_neither_be_undone_nor_found_out_is_high_risk() -> None:
    case = {"effect": Effect.WRITE_IRREVERSIBLE, "contract": NoContract()}
    assert verdict(**case).high_risk
    assert verdict(asks=True, rule="x", role="agent_senior_approver").high_risk
