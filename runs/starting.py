"""What a request to start a run must satisfy. Pure checks; `services.start_run` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from agentcore.budgets import Budget, dollars, micros
from agentcore.values import Json
from runs.refusals import FieldError, Refused, invalid


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, from the trusted session or token; never from the request body.

    `scopes` are frozen into the run. `principal` is `token:NAME` or `user:NAME`. `agents` are the
    only ones it may start and see; empty means all.
    """

    tenant: str
    principal: str
    scopes: tuple[str, ...]
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """Limits that the caller wants; None keeps the agent's. They may only lower.

    `max_cost` in micros: millionths of a US dollar.
    """

    max_turns: int | None = None
    max_actions: int | None = None
    max_tokens: int | None = None
    max_cost: int | None = None
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StartRun:
    """A request to start one run."""

    agent: str
    input: Json
    version: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    dedupe_key: str = ""
    budget: BudgetRequest = BudgetRequest()
    trace_id: str = ""
    on_behalf_of: str = ""
    session: UUID | None = None
    session_conflict: str = "reject"
    start_at: datetime | None = None
    webhook_endpoint: UUID | None = None
    retry_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the run may use: turns, actions, and the absolute end of its time.

    `max_tokens` and `max_cost` (micros): None leaves the limit, if any, of the agent version.
    """

    max_turns: int
    max_actions: int
    deadline_at: datetime
    max_tokens: int | None = None
    max_cost: int | None = None


def limits_of(*, budget: Budget, asked: BudgetRequest, now: datetime) -> Limits:
    """The agent's budget lowered by the request. Raises `Refused` when a limit would rise."""
    latest = now + budget.wall
    deadline = asked.deadline_at or latest
    if deadline <= now:
        raise invalid(
            "/budget/deadline_at", "in_the_past", f"must be later than now ({now.isoformat()})."
        )
    if deadline > latest:
        raise invalid(
            "/budget/deadline_at",
            "above_limit",
            f"may only lower the agent's limit; the latest possible is {latest.isoformat()}.",
        )
    return Limits(
        max_turns=_lowered("/budget/max_turns", asked.max_turns, budget.turns),
        max_actions=_lowered("/budget/max_actions", asked.max_actions, budget.actions),
        deadline_at=deadline,
        max_tokens=_limited("/budget/max_tokens", asked.max_tokens, budget.tokens, str),
        max_cost=_limited(
            "/budget/max_cost",
            asked.max_cost,
            micros(budget.cost) if budget.cost else None,
            dollars,
        ),
    )


def _lowered(pointer: str, asked: int | None, limit: int) -> int:
    found = _limited(pointer, asked, limit, str)
    return limit if found is None else found


def _limited(
    pointer: str, asked: int | None, limit: int | None, shown: Callable[[int], str]
) -> int | None:
    """What is asked for; raises `Refused` when that is above a limit of the agent."""
    if asked is not None and limit is not None and asked > limit:
        detail = f"may only lower the agent's limit of {shown(limit)}, not raise it."
        raise invalid(pointer, "above_limit", detail)
    return asked


def validated_input(*, model: type[BaseModel] | None, value: Json) -> Json:
    """`value` as the agent's input model stores it (defaults filled in), as JSON.

    Members that the model does not name are refused unless the model itself says otherwise.
    Raises `Refused` with one error a field.
    """
    if model is None:
        return value
    extra: Any = model.model_config.get("extra") or "forbid"
    try:
        parsed = model.model_validate_json(json.dumps(value), extra=extra)
    except ValidationError as error:
        raise refused_fields(error, prefix="/input") from None
    return parsed.model_dump(mode="json")


def refused_fields(error: ValidationError, *, prefix: str = "") -> Refused:
    """A pydantic error as `invalid_input`, one pointer a fault; input values are not repeated."""
    errors = [
        FieldError(prefix + _pointer(item["loc"]), item["type"], f"{item['msg']}.")
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    summary = "; ".join(f"{e.pointer or '/'}: {e.detail.rstrip('.')}" for e in errors[:3])
    return Refused(code="invalid_input", detail=f"{summary}.", errors=errors[:20])


def _pointer(location: Iterable[int | str]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in location)
