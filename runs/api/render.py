"""Rows to the JSON of the API."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from uuid import UUID

from agentcore.budgets import dollars
from agentcore.lifecycle import ActionState, RunState, StopReason
from agentcore.termination import MaxHandoffs
from agentcore.values import Priority
from runs import spending
from runs.api import schemas
from runs.api.ids import event_id, public_id
from runs.api.status import (
    FAILED_LAYER,
    ActionFact,
    RequiredAction,
    incomplete_reason,
    public_status,
)
from runs.models import Event, Run
from runs.selectors import Kin, RunFacts

BASE = "/api/v1"
ID_PREFIX = {"approval": "appr", "reconciliation": "act", "operator": "run"}
"""Type of a required action -> the prefix of its ids."""
OBJECT_PREFIX = {
    "run": "run",
    "action": "act",
    "policy": "act",
    "approval": "appr",
    "attempt": "att",
    "child": "run",
}
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def run_shape(run: Run, facts: RunFacts) -> schemas.Run:
    """A run as its JSON says it; `run.agent_version` should be loaded."""
    state = RunState(run.state)
    stop = StopReason(run.stop_reason) if run.stop_reason else None
    public = public_status(run_id=run.id, state=state, stop_reason=stop, actions=_facts(facts))
    return schemas.Run(
        id=public_id("run", run.id),
        object="run",
        status=public.status,
        status_reason=run.reason or None,
        agent=run.agent_version.name,
        agent_version=run.agent_version.version,
        input=run.input,
        output=run.output,
        business_outcome=run.business_outcome or None,
        required_action=_required(public.required_action),
        incomplete_details=_incomplete(run, state, stop),
        error=_error(run, state, stop),
        usage=_usage(facts.usage),
        budget=_budget(run),
        turns=run.turn,
        actions_summary=dict(Counter(row.state.lower() for row in facts.actions)),
        requester=run.principal,
        on_behalf_of=run.on_behalf_of or None,
        priority=Priority(run.priority).value,
        dry_run=run.dry_run,
        session=public_id("sess", run.session_id) if run.session_id else None,
        retry_of=public_id("run", run.retry_of_id) if run.retry_of_id else None,
        parent=public_id("run", run.parent_id) if run.parent_id else None,
        children=[public_id("run", child) for child in facts.children],
        dedupe_key=run.dedupe_key or None,
        metadata=run.metadata,
        revision=run.revision,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        deadline_at=run.deadline_at,
        trace_id=run.trace_id or None,
        links=_links(run),
    )


def run_json(run: Run, facts: RunFacts) -> dict[str, Any]:
    return run_shape(run, facts).model_dump(mode="json")


def _facts(facts: RunFacts) -> list[ActionFact]:
    return [
        ActionFact(
            id=row.id,
            state=ActionState(row.state),
            approval_id=row.approval_id,
            expires_at=row.approval_expires_at,
        )
        for row in facts.actions
    ]


def _required(required: RequiredAction | None) -> schemas.RequiredAction | None:
    if required is None:
        return None
    prefix = ID_PREFIX[required.type]
    return schemas.RequiredAction(
        type=required.type,
        ids=[public_id(prefix, item) for item in required.ids],
        expires_at=required.expires_at,
    )


def _incomplete(
    run: Run, state: RunState, stop: StopReason | None
) -> schemas.IncompleteDetails | None:
    if state is not RunState.INCOMPLETE or stop is None:
        return None
    turns = run.turn + run.turns_lent
    spent = "max_handoffs" if MaxHandoffs.what in run.reason else _spent(run)
    reason = incomplete_reason(stop_reason=stop, turns=turns, max_turns=run.max_turns, spent=spent)
    return schemas.IncompleteDetails(reason=reason)


def _spent(run: Run) -> str:
    """Which of tokens and money is nearer to its limit; "" for a run without these limits, or one
    that proposed too many actions."""
    limits = spending.limits_of(run, run.agent_version.spec)
    shares = [
        (used / limit, word)
        for used, limit, word in (
            (run.tokens_used, limits.tokens, "budget_tokens"),
            (run.cost_used, limits.cost, "budget_cost"),
        )
        if limit
    ]
    return max(shares)[1] if shares and run.actions_used <= run.max_actions else ""


def _error(run: Run, state: RunState, stop: StopReason | None) -> schemas.RunError | None:
    if state is not RunState.FAILED or stop is None:
        return None
    return schemas.RunError(
        code=stop.lower(), layer=FAILED_LAYER.get(stop, "runtime"), message=run.reason
    )


def _usage(usage: dict[str, int]) -> schemas.Usage:
    names = schemas.Usage.model_fields
    return schemas.Usage(**{name: usage.get(name, 0) for name in names})


def _budget(run: Run) -> schemas.Budget:
    limits = spending.limits_of(run, run.agent_version.spec)
    return schemas.Budget(
        limits=schemas.BudgetLimits(
            max_turns=run.max_turns,
            max_actions=run.max_actions,
            max_tokens=limits.tokens,
            max_cost=None if limits.cost is None else dollars(limits.cost),
            deadline_at=run.deadline_at,
        ),
        used=schemas.BudgetUsed(
            turns=run.turn + run.turns_lent,
            actions=run.actions_used + run.actions_lent,
            tokens=run.tokens_used,
            cost=dollars(run.cost_used),
        ),
    )


def _links(run: Run) -> schemas.Links:
    here = f"{BASE}/runs/{public_id('run', run.id)}"
    return schemas.Links.model_validate({"self": here, "events": f"{here}/events"})


def event_shape(event: Event, kin: Kin) -> schemas.Event:
    """An event of a run as its JSON says it; `kin` is the place of the run in its tree. Ids in
    `data.transitions` become public ids.
    """
    kind, _, name = event.actor.partition(":")

    def own(move: dict[str, Any]) -> str | None:
        """A move of the run itself is stored without its id."""
        return str(event.run_id) if move.get("object") == "run" else None

    notes = {key: _public(key, value) for key, value in event.data.items()}
    transitions = [
        {**move, "id": _public(move.get("object"), move.get("id", own(move)))}
        for move in event.data.get("transitions", [])
    ]
    return schemas.Event(
        id=event_id(event.run_id, event.seq),
        object="event",
        seq=event.seq,
        type=event.type,
        created_at=event.created_at,
        actor=schemas.Actor(type=kind, id=name),
        run=public_id("run", event.run_id),
        parent=public_id("run", kin.parent) if kin.parent else None,
        root=public_id("run", kin.root) if kin.root else None,
        data={**notes, "transitions": transitions},
        revision_before=event.revision_before,
        revision_after=event.revision_after,
    )


def event_json(event: Event, kin: Kin) -> dict[str, Any]:
    return event_shape(event, kin).model_dump(mode="json")


def _public(kind: object, value: Any) -> Any:
    """The public id of an object of this kind; any other value as it is."""
    prefix = OBJECT_PREFIX.get(str(kind))
    if prefix is None or not isinstance(value, str) or not _UUID.fullmatch(value):
        return value
    return public_id(prefix, UUID(value))
