"""What a declaration becomes, which mistakes refuse it, and who finds it in the registry."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import Field

from agentcore.canonical import canonical_json
from tools import (
    Absent,
    Ambiguous,
    Approval,
    Effect,
    Key,
    Natural,
    NoContract,
    NotSent,
    Preview,
    Query,
    Retry,
    Tool,
    ToolContext,
    registry,
    tool,
)
from tools.rules import is_ambiguous
from tools.spec import app_label_of
from tools.testing import call, make_context
from tools.types import Money, Secret

OrderId = Annotated[str, Field(pattern="^O-[0-9]+$")]
KEY = Key(retention=timedelta(days=30))


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def declare(name: str = "refund", **options: Any) -> Tool[Any, Any]:
    """A sound write, changed by `options`."""

    def function(
        ctx: ToolContext, order_id: OrderId, amount: Money, note: str = ""
    ) -> dict[str, str]:
        """Refund an order.

        Args:
            order_id: The order.
            amount: How much.
            note: Why.
        """
        return {"refund": str(amount), "for": ctx.principal}

    function.__name__ = function.__qualname__ = name
    sound: dict[str, Any] = {
        "effect": Effect.WRITE,
        "contract": KEY,
        "identity": ("order_id",),
        "app_label": "shop",
    }
    return tool(**{**sound, **options})(function)


def codes(declared: Tool[Any, Any]) -> set[str]:
    return {problem.code for problem in declared.spec.problems}


@pytest.mark.requirement("R28")
def test_the_registry_knows_version_schema_effect_timeout_retry_probe_and_owner() -> None:
    declared = declare(
        version="2",
        timeout=7.5,
        retry=Retry(max_attempts=2, on=(ConnectionRefusedError,)),
        owner="payments team",
        compensates="shop.charge",
        scopes=("billing.refund",),
    )
    declared.probe(after=[1, 2])(lambda ctx, p: Absent())
    spec = registry.get("shop.refund")
    assert spec is not None
    assert spec is registry.by_wire("shop__refund")
    assert registry.all_tools() == (spec,)
    assert (spec.version, spec.effect, spec.timeout) == ("2", Effect.WRITE, 7.5)
    assert (spec.retry.max_attempts, spec.probe_after) == (2, (1.0, 2.0))
    assert spec.probe_fn is not None
    manifest = spec.manifest()
    assert manifest["owner"] == "payments team"
    assert manifest["compensates"] == "shop.charge"
    assert manifest["contract"] == {"name": "KEY", "retention": 30 * 86400}
    assert manifest["function"]["parameters"]["required"] == ["order_id", "amount", "note"]
    assert manifest["function"]["strict"] is True
    assert canonical_json(manifest)
    assert registry.get("shop.unknown") is None
    assert registry.by_wire("shop.refund") is None


def test_a_declared_tool_is_still_the_function() -> None:
    declared = declare()
    assert declared(make_context(), "O-1", Money("1.00 EUR")) == {
        "refund": "1.00 EUR",
        "for": "tester",
    }
    assert declared.__name__ == "refund"
    assert call(declared, order_id="O-1", amount="1.00 EUR").result["refund"] == "1.00 EUR"


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("E001", {"contract": None}),
        ("E001", {"identity": ()}),
        ("E001", {"identity": ("order",)}),
        ("E001", {"key": lambda ctx, p: p.order_id}),
        ("E001", {"effect": Effect.READ}),
        ("E002", {"contract": Query(settle=timedelta(minutes=1))}),
        ("E002", {"contract": NoContract()}),
        ("E005", {"retry": Retry(on=(TimeoutError,))}),
        ("E006", {"effect": Effect.WRITE_IRREVERSIBLE}),
        ("E006", {"approval": Approval.always(role="")}),
        ("E007", {"name": "Refund"}),
        ("E007", {"name": "do"}),
        ("E007", {"app_label": "shop.eu"}),
        ("E007", {"app_label": "s" * 60}),
    ],
)
def test_a_mistake_keeps_the_tool_from_being_used(code: str, options: dict[str, Any]) -> None:
    declared = declare(**options)
    assert code in codes(declared)
    assert declared.spec.rejected
    assert registry.get(declared.spec.name) is None
    assert registry.by_wire(declared.spec.wire_name) is None
    assert registry.all_tools() == ()
    assert registry.rejected() == (declared.spec,)
    assert code in {finding.code for finding in registry.findings()}
    with pytest.raises(ValueError, match=r"\S"):
        call(declared, order_id="O-1", amount="1.00 EUR")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"identity": (), "key": lambda ctx, p: p.order_id},
        {"contract": Natural(), "scope": "tenant", "horizon": timedelta(days=1)},
        {"contract": NoContract(), "approval": Approval.always(role="approver")},
        {"effect": Effect.READ, "contract": None, "identity": ()},
        {"retry": Retry(on=(NotSent, ConnectionRefusedError))},
    ],
)
def test_sound_declarations_are_used(options: dict[str, Any]) -> None:
    assert not declare(**options).spec.rejected


def test_a_later_probe_makes_a_query_contract_sound() -> None:
    declared = declare(contract=Query(settle=timedelta(minutes=1)))
    assert registry.get("shop.refund") is None
    declared.probe(lambda ctx, p: Absent())
    assert registry.get("shop.refund") is declared.spec


@pytest.mark.parametrize(
    "kind",
    [OSError, ConnectionError, ConnectionResetError, BrokenPipeError, Exception, BaseException,
     http.client.RemoteDisconnected, Ambiguous, EOFError,
     *(type(name, (Exception,), {}) for name in
       ("ReadTimeout", "Timeout", "HTTPError", "ServerError", "Http503", "RemoteProtocolError"))],
)  # fmt: skip
def test_errors_that_may_follow_the_effect_are_ambiguous(kind: type[BaseException]) -> None:
    assert is_ambiguous(kind)


@pytest.mark.parametrize(
    "kind",
    [ConnectionRefusedError, NotSent, type("ConnectTimeout", (Exception,), {}),
     type("ConnectError", (Exception,), {})],
)  # fmt: skip
def test_errors_before_the_first_byte_are_not(kind: type[BaseException]) -> None:
    assert not is_ambiguous(kind)


def test_one_wire_name_belongs_to_one_tool() -> None:
    first, second = declare("b__refund", app_label="a"), declare("refund", app_label="a__b")
    assert first.spec.wire_name == second.spec.wire_name
    assert registry.by_wire("a__b__refund") is None
    assert registry.get("a.b__refund") is registry.get("a__b.refund") is None
    assert [finding.code for finding in registry.findings()] == ["E007", "E007"]


def test_warnings_tell_but_do_not_refuse() -> None:
    def secret_id(ctx: ToolContext, card: Secret[str], name: str) -> None: ...

    declared = tool(
        effect=Effect.WRITE,
        contract=KEY,
        identity=("card", "name"),
        approval=Approval.always(role="approver"),
        app_label="shop",
    )(secret_id)
    assert codes(declared) == {"W101", "W102", "W103"}
    assert len([p for p in declared.spec.problems if p.code == "W102"]) == 2  # secret, free text
    assert registry.get("shop.secret_id") is not None
    assert "W102" in codes(declare(redact=("order_id",)))
    asked = declare(approval=Approval.always(role="approver"))
    assert codes(asked) == {"W101"}
    asked.preview(lambda ctx, p: Preview("x"))
    assert codes(asked) == set()


def test_the_label_is_the_package_that_holds_the_tools() -> None:
    assert app_label_of("a.b.refund_desk.agent_tools") == "refund_desk"
    assert app_label_of("a.refund_desk.agent_tools.orders") == "refund_desk"
    assert app_label_of("billing.agent_tools") == "billing"
    assert app_label_of("agent_tools") == "agent_tools"
    with pytest.raises(ValueError, match="timeout"):
        declare(timeout=0)
    with pytest.raises(ValueError, match="attempt"):
        Retry(max_attempts=0)
