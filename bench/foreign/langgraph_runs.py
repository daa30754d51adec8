"""LangGraph with its PostgreSQL saver: a graph of two nodes over messages, 8 runs at a time.

The variant is LangGraph's durability: `sync` writes a checkpoint before the next step begins,
`async` while it runs (a crash may lose the last one).
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from bench.foreign.serving import Order, in_threads, order, serve
from bench.stub.texts import decision, result

LANES = 8


class State(MessagesState):
    """The messages, and where the run stands."""

    run: str
    turn: int
    turns: int


def ask(state: State) -> dict[str, Any]:
    """The model."""
    decided = decision(run=state["run"], turn=state["turn"], turns=state["turns"])
    calls = []
    if decided["tool"]:
        arguments = decided["arguments"]
        calls = [{"id": decided["call_id"], "name": decided["tool"], "args": arguments}]
    message = AIMessage(decided["text"], tool_calls=calls)
    return {"messages": [message], "turn": state["turn"] + 1}


def act(state: State) -> dict[str, Any]:
    """The tool."""
    asked = state["messages"][-1]
    done = result({"call_id": asked.tool_calls[0]["id"], "text": asked.content})
    return {"messages": [ToolMessage(done["output"], tool_call_id=done["call_id"])]}


def after_the_model(state: State) -> str:
    """Which node comes next."""
    return "act" if state["messages"][-1].tool_calls else END


def main(asked: Order) -> None:
    """Serve until the input ends."""
    kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = ConnectionPool(asked.address, min_size=LANES, max_size=LANES, open=True, kwargs=kwargs)
    pool.wait()
    saver = PostgresSaver(pool)
    if asked.index == 0:
        saver.setup()
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("act", act)
    graph.add_edge(START, "ask")
    graph.add_edge("act", "ask")
    graph.add_conditional_edges("ask", after_the_model)
    made = graph.compile(checkpointer=saver)

    def one_run(run: str) -> None:
        begin = {"messages": [HumanMessage("go")], "run": run, "turn": 0, "turns": asked.turns}
        most = 3 * asked.turns + 10
        config = {"configurable": {"thread_id": run}, "recursion_limit": most}
        made.invoke(begin, config, durability=asked.variant)

    serve(in_threads(one_run, lanes=LANES), index=asked.index)


if __name__ == "__main__":
    main(order())
