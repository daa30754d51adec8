"""The tools that the recorded bodies call, under the very names that they use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tools import Approval, Effect, Key, ToolContext, registry, tool
from tools.spec import Tool

ORDERS = ("ord_1001", "ord_2002")
MADE: list[dict[str, Any]] = []
"""What refund_order has done in this test: the world outside."""
READ: list[str] = []
"""Every read that was really made, by its tool."""


def offer(*tools: Tool[Any, Any], names: dict[str, str] | None = None) -> list[str]:
    """Register tools under their bare names on the wire; the names of the registry."""
    found = []
    for item in tools:
        name = item.spec.name.rpartition(".")[2]
        wire = (names or {}).get(name, name)
        registry.register(replace(item.spec, wire_name=wire))
        found.append(item.spec.name)
    return found


@contextmanager
def desk_tools() -> Iterator[dict[str, Tool[Any, Any]]]:
    """All tools by function name, in a registry of their own."""
    MADE.clear()
    READ.clear()
    with registry.isolated():
        yield _declare()


def _reader(name: str, function: Any) -> Tool[Any, Any]:
    names = [n for n in function.__annotations__ if n not in ("ctx", "return")]
    about = "\n".join(f"    {n}: what to read." for n in names)
    function.__doc__ = f"Read by {name}.\n\nArgs:\n{about}\n" if names else f"Read by {name}."
    made: Tool[Any, Any] = tool(effect=Effect.READ, app_label="desk")(function)
    return made


def _declare() -> dict[str, Tool[Any, Any]]:
    found = _simple()

    @tool(effect=Effect.READ, app_label="desk")
    def get_order(ctx: ToolContext, order_id: str) -> dict[str, Any]:
        """Read an order.

        Args:
            order_id: its number.
        """
        READ.append("get_order")
        return {"order_id": order_id, "total_cents": 9900, "version": 7}

    @tool(
        effect=Effect.WRITE,
        contract=Key(retention=timedelta(days=30)),
        identity=("order_id",),
        approval=Approval.when(lambda _, p: p.amount_cents > 1000, role="agent_approver"),
        app_label="desk",
    )
    def refund_order(
        ctx: ToolContext, order_id: str, amount_cents: int, reason: str | None
    ) -> dict[str, Any]:
        """Refund an order.

        Args:
            order_id: its number.
            amount_cents: how much.
            reason: why.
        """
        MADE.append({"order_id": order_id, "amount_cents": amount_cents})
        return {"refund_id": f"re_{len(MADE)}"}

    @refund_order.postcondition
    def _(ctx: ToolContext, p: Any, _result: Any) -> bool:
        return any(row["order_id"] == p.order_id for row in MADE)

    return {**found, "get_order": get_order, "refund_order": refund_order}


def _simple() -> dict[str, Tool[Any, Any]]:
    def weather(ctx: ToolContext, location: str) -> str:
        READ.append("weather")
        return f"sunny in {location}"

    def weather_at(ctx: ToolContext, latitude: str, longitude: str) -> str:
        READ.append("weather_at")
        return f"rain at {latitude} {longitude}"

    def best_language_to_learn(ctx: ToolContext) -> str:
        READ.append("best_language_to_learn")
        return "Ruby"

    def get_capital(ctx: ToolContext, country: str) -> str:
        READ.append("get_capital")
        return f"the capital of {country}"

    def db_lookup(ctx: ToolContext, key: str) -> str:
        READ.append("db_lookup")
        return f"value of {key}"

    def first_tool(ctx: ToolContext) -> str:
        READ.append("first_tool")
        return "one"

    def second_tool(ctx: ToolContext) -> str:
        READ.append("second_tool")
        return "two"

    def multiply(ctx: ToolContext, a: int, b: int) -> int:
        READ.append("multiply")
        return a * b

    def get_current_weather(ctx: ToolContext, location: str, unit: str) -> str:
        READ.append("get_current_weather")
        return f"{unit} in {location}"

    functions = (
        weather,
        weather_at,
        best_language_to_learn,
        get_capital,
        db_lookup,
        first_tool,
        second_tool,
        multiply,
        get_current_weather,
    )
    return {function.__name__: _reader(function.__name__, function) for function in functions}
