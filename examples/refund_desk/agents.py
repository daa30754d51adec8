"""The agent of the refund desk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from runs.agents import agent
from tools.types import Money


class RefundRequest(BaseModel):
    """What a caller asks of the refund desk. Without an amount all that can be refunded is."""

    model_config = ConfigDict(extra="forbid")

    order_id: Annotated[str, StringConstraints(pattern=r"^ORD-[0-9]{1,12}$")]
    message: Annotated[str, StringConstraints(min_length=1, max_length=8000)] = Field(
        description="What the customer wrote."
    )
    amount: Money | None = None


refund_desk = agent(
    name="refund_desk",
    version="1",
    instructions=Path(__file__).parent / "prompts" / "refund_desk.md",
    input=RefundRequest,
    tools=["refund_desk.get_order", "refund_desk.get_policy", "refund_desk.submit_refund"],
)
