from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from agentcore.authorization import missing_scopes
from agentcore.policy import POLICY_VERSION, Verdict, evaluate
from agentcore.values import Effect, Key, Natural, NoContract, Query

KEY = Key(timedelta(days=1))
CONTRACTS = [KEY, Natural(), Query(timedelta(seconds=1)), NoContract(), None]
TTL = timedelta(hours=4)


def verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "tool": "desk.refund",
        "effect": Effect.WRITE,
        "contract": KEY,
        "offered": True,
        "missing_scopes": (),
        "asks": False,
        "rule": "over_50",
        "role": "approver",
        "count": 1,
        "ttl": TTL,
    }
    return evaluate(**{**values, **changes})


def test_a_write_that_nobody_objects_to_is_allowed() -> None:
    assert verdict() == Verdict("ALLOW", "default", POLICY_VERSION, "desk.refund: no rule objects")


def test_the_tools_rule_asks_with_its_own_terms() -> None:
    found = verdict(asks=True, count=2)
    assert (found.kind, found.rule, found.role, found.count, found.ttl) == (
        "ASK",
        "over_50",
        "approver",
        2,
        TTL,
    )


@pytest.mark.parametrize(
    ("effect", "contract", "asks"), list(product(Effect, CONTRACTS, [True, False]))
)
def test_nothing_overrules_a_tool_not_offered_or_a_missing_scope(
    effect: Effect, contract: Any, asks: bool
) -> None:
    case = {"effect": effect, "contract": contract, "asks": asks}
    assert verdict(**case, offered=False).rule == "not_offered"
    denied = verdict(**case, missing_scopes=("desk.pay",))
    assert (denied.kind, denied.rule) == ("DENY", "missing_scopes")
    assert "desk.pay" in denied.reason
    assert verdict(**case, offered=False).kind == "DENY"


@pytest.mark.parametrize(("contract", "asks"), list(product(CONTRACTS, [True, False])))
def test_a_read_never_asks(contract: Any, asks: bool) -> None:
    assert verdict(effect=Effect.READ, contract=contract, asks=asks).kind == "ALLOW"


@pytest.mark.parametrize("asks", [True, False])
def test_what_cannot_be_undone_or_repeated_always_asks(asks: bool) -> None:
    for case in ({"effect": Effect.WRITE_IRREVERSIBLE}, {"contract": NoContract()}):
        found = verdict(**case, asks=asks, count=0)
        assert found.kind == "ASK"
        assert found.count == 1


def test_a_write_without_a_contract_is_denied() -> None:
    assert verdict(contract=None).kind == "DENY"
    assert verdict(contract=None, effect=Effect.WRITE_IRREVERSIBLE).kind == "DENY"


def test_scopes_are_compared_exactly() -> None:
    assert missing_scopes(required=("a", "b", "b"), granted=["b", "c"]) == ("a",)
    assert missing_scopes(required=("a.b",), granted=["a.*", "a", "A.B"]) == ("a.b",)
    assert missing_scopes(required=(), granted=[]) == ()
