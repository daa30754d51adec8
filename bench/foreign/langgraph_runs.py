"""LangGraph with its PostgreSQL saver: a graph of two nodes over messages, durability "sync"."""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from bench.foreign.serving import serve
from bench.stub.texts import decision, result

LANES = 8


class State(MessagesState):
    """The messages, and where the run stands."""

    run: str
    turn: int


def main(url: str, index: str, turns: int) -> None:
    """Serve until the input ends; `index` tells the processes of one measurement apart."""
    kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = ConnectionPool(url, min_size=LANES, max_size=LANES, open=True, kwargs=kwargs)
    pool.wait()
    saver = PostgresSaver(pool)
    if index == "0":
        saver.setup()

    def ask(state: State) -> dict[str, Any]:
        decided = decision(run=state["run"], turn=state["turn"], turns=turns)
        calls = []
        if decided["tool"]:
            arguments = decided["arguments"]
            calls = [{"id": decided["call_id"], "name": decided["tool"], "args": arguments}]
        message = AIMessage(decided["text"], tool_calls=calls)
        return {"messages": [message], "turn": state["turn"] + 1}

    def act(state: State) -> dict[str, Any]:
        asked = state["messages"][-1]
        done = result({"call_id": asked.tool_calls[0]["id"], "text": asked.content})
        return {"messages": [ToolMessage(done["output"], tool_call_id=done["call_id"])]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("act", act)
    graph.add_edge(START, "ask")
    graph.add_edge("act", "ask")
    graph.add_conditional_edges(
        "ask", lambda state: "act" if state["messages"][-1].tool_calls else END
    )
    made = graph.compile(checkpointer=saver)

    def one_run(run: str) -> None:
        begin = {"messages": [HumanMessage("go")], "run": run, "turn": 0}
        thread = f"{index}-{run}"
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 3 * turns + 10}
        made.invoke(begin, config, durability="sync")

    serve(one_run, lanes=LANES)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
