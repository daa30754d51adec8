"""`manage.py check` shows what the registry refused."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import ERROR, WARNING
from django.test import override_settings

from agentcore.throttle import Limit
from runs.checks import check_agents, check_limits, check_tools
from tools import Approval, Effect, NoContract, ToolContext, registry, tool


def test_findings_become_errors_and_warnings() -> None:
    def pay(ctx: ToolContext, amount: float) -> Any: ...

    def wipe(ctx: ToolContext, name: str) -> Any: ...

    with registry.isolated():
        tool(effect=Effect.WRITE, app_label="shop")(pay)
        tool(
            effect=Effect.WRITE,
            contract=NoContract(),
            identity=("name",),
            approval=Approval.always(role="owner"),
            app_label="shop",
        )(wipe)
        found = {(item.obj, item.id): item.level for item in check_tools()}
    assert found[("shop.pay", "agentcore.E001")] == ERROR
    assert found[("shop.pay", "agentcore.E004")] == ERROR
    assert found[("shop.wipe", "agentcore.W101")] == WARNING
    assert found[("shop.wipe", "agentcore.W103")] == WARNING


def test_an_agent_that_names_a_missing_tool_is_an_error() -> None:
    with registry.isolated():  # the agents of the example keep their names, not their tools
        found = {item.msg for item in check_agents()}
    assert (
        "agent 'refund_desk' names a tool 'refund_desk.get_order' that is not registered" in found
    )
    assert check_agents() == []


def test_a_limit_that_bounds_nothing_is_told() -> None:
    def look(ctx: ToolContext) -> Any: ...

    limits = [
        Limit(downstream=name, concurrent=1) for name in ("orders", "odrers", "*", "model:none")
    ]
    options = settings.AGENTCORE_OPTIONS.model_copy(
        update={"limits": (*limits, Limit("acme", per_minute=1))}
    )
    with registry.isolated(), override_settings(AGENTCORE_OPTIONS=options):
        tool(effect=Effect.READ, downstream="orders", app_label="shop")(look)
        found = [item.msg for item in check_limits()]
    assert [text.split("'")[1] for text in found] == ["odrers", "model:none"]
