"""The JSON of a run that was made just now: most of it is the same for every run of its agent.

`render.run_json` goes through nine models for what was read from the database. Here all members but
those of the request are taken from the first run of the agent version: a tenth of a start less.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from agentcore.budgets import dollars
from agentcore.values import Priority
from runs import spending
from runs.api import render
from runs.api.ids import public_id
from runs.models import Run
from runs.selectors import RunFacts

_first: dict[UUID, dict[str, Any]] = {}
"""Agent version -> the JSON of a new run of it. There are as many as the process has declared."""


def started_json(run: Run) -> dict[str, Any]:
    """The same as `render.run_json`, for a run that nothing has happened to."""
    first = _first.get(run.agent_version_id)
    if first is None:
        first = _first[run.agent_version_id] = render.run_json(run, RunFacts())
    run_id = public_id("run", run.id)
    here = f"{render.BASE}/runs/{run_id}"
    return {
        **first,
        "id": run_id,
        "input": run.input,
        "budget": _budget(run, first),
        "requester": run.principal,
        "on_behalf_of": run.on_behalf_of or None,
        "priority": Priority(run.priority).value,
        "dry_run": run.dry_run,
        "session": public_id("sess", run.session_id) if run.session_id else None,
        "retry_of": public_id("run", run.retry_of_id) if run.retry_of_id else None,
        "dedupe_key": run.dedupe_key or None,
        "metadata": run.metadata,
        "created_at": _text(run.created_at),
        "deadline_at": _text(run.deadline_at),
        "trace_id": run.trace_id or None,
        "links": {"self": here, "events": f"{here}/events"},
    }


def _budget(run: Run, first: dict[str, Any]) -> dict[str, Any]:
    limits = spending.limits_of(run, run.agent_version.spec)
    return {
        "limits": {
            "max_turns": run.max_turns,
            "max_actions": run.max_actions,
            "max_tokens": limits.tokens,
            "max_cost": None if limits.cost is None else dollars(limits.cost),
            "deadline_at": _text(run.deadline_at),
        },
        "used": first["budget"]["used"],
    }


def _text(moment: datetime) -> str:
    """As the models write a time in UTC, which all times of a run are."""
    return moment.isoformat().replace("+00:00", "Z")
