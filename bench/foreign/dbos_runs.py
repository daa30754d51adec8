"""DBOS: a workflow whose model and tool calls are steps, started directly, 16 at a time."""

from __future__ import annotations

import os
import sys
from typing import Any

from dbos import DBOS

from bench.foreign.serving import serve
from bench.stub.texts import decision, result

LANES = 16


def main(url: str, index: str, turns: int) -> None:
    """Serve until the input ends; `index` tells the processes of one measurement apart."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url.replace("postgres://", "postgresql+psycopg://"),
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": f"bench-{index}",
        }
    )

    @DBOS.step()
    def ask(run: str, turn: int) -> dict[str, Any]:
        return decision(run=run, turn=turn, turns=turns)

    @DBOS.step()
    def act(decided: dict[str, Any]) -> dict[str, Any]:
        return result(decided)

    @DBOS.workflow()
    def agent(run: str) -> str:
        for turn in range(turns):
            decided = ask(run, turn)
            if decided["tool"] is None:
                break
            act(decided)
        return str(decided["text"])

    DBOS.launch()
    serve(agent, lanes=LANES)
    sys.stdout.flush()
    os._exit(0)  # its threads would keep the process for a while


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
