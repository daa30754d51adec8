"""Writes that succeed and return what cannot be used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

from agentcore.values import Effect, Key
from tools import Tool, ToolContext, tool

KEPT = Key(retention=timedelta(days=1))


class Receipt(BaseModel):
    id: str


def big_write() -> Tool[Any, Any]:
    @tool(effect=Effect.WRITE, contract=KEPT, identity=("what",), app_label="shop")
    def big(ctx: ToolContext, what: Literal["a"]) -> str:
        """Write."""
        return "x" * 3_000_000

    return big


def wrong_write() -> Tool[Any, Any]:
    @tool(effect=Effect.WRITE, contract=KEPT, identity=("what",), app_label="shop")
    def wrong(ctx: ToolContext, what: Literal["a"]) -> Receipt:
        """Write."""
        return {"ident": 1}  # type: ignore[return-value]

    return wrong
