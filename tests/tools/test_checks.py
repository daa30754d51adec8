"""`manage.py check` shows what the registry refused."""

from __future__ import annotations

from typing import Any

from django.core.checks import ERROR, WARNING

from runs.checks import check_tools
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
