"""Storage and compile time grow with the conversation, not with its square."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore.budgets import Budget
from agentcore.compaction import ContextPolicy
from bench.context import Grown, measure, told, words
from tests.agentcore.bodies import call, reply
from tests.replies.desk import Desk, answer, said
from tools import Effect, ToolContext, tool

pytestmark = pytest.mark.django_db(transaction=True)

CHARACTERS = 8000  # of one output: 100 of them are 200,000 tokens


def conversation(desk: Desk, calls: int) -> Grown:
    asks = [
        answer(
            reply(
                {
                    "type": "reasoning",
                    "id": f"rs_{n}",
                    "summary": [],
                    "encrypted_content": words(n, 600),
                },
                call(f"c{n}", "read_page", arguments=json.dumps({"number": n})),
                usage={"input_tokens": 100, "output_tokens": 10},
            )
        )
        for n in range(calls)
    ]
    desk.script(*asks, said())
    run = desk.start(
        tools=["read_page"],
        budget=Budget(turns=calls + 1, actions=calls),
        context=ContextPolicy(window=1_000_000),
    )
    desk.drive(run)
    assert run.state == "COMPLETED", run.reason
    return measure(run)


@pytest.mark.requirement("R25")
def test_a_hundred_calls_cost_twice_what_fifty_cost(desk: Desk) -> None:
    @tool(effect=Effect.READ, app_label="desk")
    def read_page(ctx: ToolContext, number: int) -> dict[str, Any]:
        """Read a page.

        Args:
            number: which.
        """
        return {"page": number, "text": words(number, CHARACTERS)}

    desk.tools["read_page"] = read_page
    small, large = conversation(desk, 50), conversation(desk, 100)
    figures = told(small, large)
    print(figures)
    assert large.request_bytes > 800_000, "about 200,000 tokens"
    assert large.stored <= 2 * large.raw, figures
    assert large.stored <= 2.4 * small.stored, figures
    assert large.request_bytes <= 2.4 * small.request_bytes, figures  # its time: bench/context.py
