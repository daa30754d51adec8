"""Two front desks. One hands on what it is asked; the other has little to give."""

from __future__ import annotations

from typing import Any

from agentcore.budgets import Budget
from examples.refund_desk.agents import RefundRequest
from runs.agents import AgentTool, agent
from tools import Effect

POWERS: dict[str, Any] = {"scopes": ("refunds.write",), "effect": Effect.WRITE}

agent(
    name="front_desk",
    version="1",
    instructions="Let the refund desk refund what is asked for, and say what came of it.",
    input=RefundRequest,
    tools=["refund_desk.submit_refund", AgentTool(agent="refund_desk", **POWERS)],
    budget=Budget(turns=12, actions=20, tokens=400_000),
)
agent(
    name="hasty_desk",
    version="1",
    instructions="Let the refund desk refund what is asked for, in one turn.",
    input=RefundRequest,
    tools=[AgentTool(agent="refund_desk", turns=1, **POWERS)],
    budget=Budget(turns=12, actions=20, handoffs=2),
)
