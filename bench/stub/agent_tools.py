"""The tool of the workload: a write under a key, done at once."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from bench.stub.texts import TEXTS
from tools import Effect, Key, ToolContext, tool

Account = Annotated[str, Field(pattern=r"^[0-9a-z]{1,40}$")]


class Transferred(BaseModel):
    """What the tool gives back: about half a kilobyte."""

    ok: bool
    output: str


@tool(
    effect=Effect.WRITE,
    contract=Key(retention=timedelta(days=1)),
    identity=("account", "number"),
)
def transfer(
    ctx: ToolContext, account: Account, number: int, memo: str, wait: int = 0
) -> Transferred:
    """Move an amount.

    Args:
        account: the account.
        number: the number of the transfer.
        memo: what is said about it.
        wait: milliseconds that it takes.
    """
    assert ctx.idempotency_key
    assert account
    if wait:
        time.sleep(wait / 1000)
    return Transferred(ok=True, output=TEXTS[number % len(TEXTS)] + memo)
