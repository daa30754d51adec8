"""OpenAI Agents SDK with its SQLAlchemy session on PostgreSQL, 16 runs at a time.

The session keeps the items of the conversation. Nothing says that a tool call has begun, and no run
goes on by itself after a crash: it is here for what the plain SDK costs.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.extensions.memory import SQLAlchemySession
from agents.items import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from agents.models.interface import Model
from sqlalchemy.ext.asyncio import create_async_engine

from bench.foreign.serving import Order, in_tasks, order, serve_async
from bench.stub.texts import TEXTS, decision

LANES = 16
CONNECTIONS = 20


class StubModel(Model):
    """The model of one run: it answers at once."""

    def __init__(self, run: str, turns: int) -> None:
        self._run, self._turns, self._turn = run, turns, 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """The next decision."""
        decided = decision(run=self._run, turn=self._turn, turns=self._turns)
        self._turn += 1
        text = ResponseOutputText(text=decided["text"], type="output_text", annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(
                id=f"message-{self._turn}",
                role="assistant",
                status="completed",
                type="message",
                content=[text],
            )
        ]
        if decided["tool"] is not None:
            call = ResponseFunctionToolCall(
                id=f"call-{self._turn}",
                call_id=decided["call_id"],
                name=decided["tool"],
                type="function_call",
                arguments=json.dumps(decided["arguments"]),
            )
            output.append(call)
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Nobody asks for it."""
        raise NotImplementedError


@function_tool
async def transfer(account: str, amount: int, memo: str) -> str:  # noqa: ARG001  (its signature)
    """Move an amount."""
    return TEXTS[amount // 100 % len(TEXTS)]


async def main(asked: Order) -> None:
    """Serve until the input ends."""
    set_tracing_disabled(True)
    engine = create_async_engine(asked.sqlalchemy_url, pool_size=CONNECTIONS)
    if asked.index == 0:
        await SQLAlchemySession("tables", engine=engine, create_tables=True).get_items()

    async def one_run(run: str) -> None:
        agent = Agent(name="bench", model=StubModel(run, asked.turns), tools=[transfer])
        session = SQLAlchemySession(run, engine=engine)
        await Runner.run(agent, "go", session=session, max_turns=asked.turns + 5)

    await serve_async(in_tasks(one_run, lanes=LANES), index=asked.index)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(order()))
