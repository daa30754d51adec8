"""What a request to start a run must satisfy. Pure checks; `services.start_run` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from agentcore.budgets import Budget, dollars, micros
from agentcore.values import Json, Priority
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
    """A request to start one run.

    `ttl`: from the request to the deadline; the earlier one of it and `budget.deadline_at` counts.
    `clamped`: a limit above the agent's is that of the agent, instead of refused. In a `dry_run`
    no write is executed.
    """

    agent: str
    input: Json
    version: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    dedupe_key: str = ""
    budget: BudgetRequest = BudgetRequest()
    ttl: timedelta | None = None
    clamped: bool = False
    priority: Priority = Priority.NORMAL
    dry_run: bool = False
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


def limits_of(*, budget: Budget, request: StartRun, now: datetime) -> Limits:
    """The agent's budget lowered by the request. Raises `Refused` when a limit would rise."""
    asked = _clamped(request.budget, budget) if request.clamped else request.budget
    deadline = _deadline(asked.deadline_at, request.ttl, budget, now, clamped=request.clamped)
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


def _clamped(asked: BudgetRequest, budget: Budget) -> BudgetRequest:
    """What is asked for, nothing of it above the agent's budget."""
    return replace(
        asked,
        max_turns=_lower(asked.max_turns, budget.turns),
        max_actions=_lower(asked.max_actions, budget.actions),
        max_tokens=_lower(asked.max_tokens, budget.tokens),
        max_cost=_lower(asked.max_cost, micros(budget.cost) if budget.cost else None),
    )


def _lower(asked: int | None, limit: int | None) -> int | None:
    return asked if asked is None or limit is None else min(asked, limit)


def _deadline(
    at: datetime | None, ttl: timedelta | None, budget: Budget, now: datetime, *, clamped: bool
) -> datetime:
    """The end of the run's time: the earliest of the agent's, `at` and `ttl` from now.

    Raises `Refused` for one that is over, or (unless `clamped`) later than the agent's.
    """
    latest = now + budget.wall
    if at is not None and at <= now:
        raise invalid(
            "/budget/deadline_at", "in_the_past", f"must be later than now ({now.isoformat()})."
        )
    if at is not None and at > latest and not clamped:
        raise invalid(
            "/budget/deadline_at",
            "above_limit",
            f"may only lower the agent's limit; the latest possible is {latest.isoformat()}.",
        )
    if ttl is not None and ttl > budget.wall and not clamped:
        most = int(budget.wall.total_seconds())
        raise invalid("/ttl_seconds", "above_limit", f"may only lower the agent's limit of {most}.")
    return min(latest, at or latest, now + ttl if ttl is not None else latest)


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
