"""The tool of the workload: a write under a key, done at once; and a read with a long answer."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from bench.stub.texts import TEXTS, words
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


class Page(BaseModel):
    """A text of some length."""

    text: str


@tool(effect=Effect.READ)
def read_page(ctx: ToolContext, number: int, size: int) -> Page:
    """Read a page.

    Args:
        number: which.
        size: how many characters it has, about.
    """
    assert ctx.tenant
    return Page(text=words(number, size))
