"""Which call has to wait for a limit: seen before the transaction, decided in it (`runs/slots.py`).

Model and tool calls wait for room. Looks (prechecks, probes, post-conditions) and what settles an
open write are counted, but never held back: they find out the truth. Without configured limits
nothing here touches the database.
"""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.db import models

from agentcore.lifecycle import RunState
from agentcore.throttle import Bucket, Held, buckets, held
from agentcore.values import AttemptKind
from runs import slots
from runs.agents import all_agents
from runs.models import ActionJournal, Attempt
from runs.slots import Counted
from runs.steps.base import Call, ModelRequest, ToolRequest
from runs.transitions import Draft
from runs.view import View, spec_of
from tools import registry

STARTS = (AttemptKind.MODEL, AttemptKind.TOOL)
"""Kinds of calls that begin something; the others look."""


def downstream_of(action: ActionJournal) -> str:
    """What a call of this action uses: the declared downstream of its tool, else the tool."""
    spec = spec_of(action)
    return (spec.downstream if spec is not None else "") or action.tool


def model_downstream(view: View) -> str:
    return f"model:{view.agent.spec['model']}"


def known_downstreams() -> set[str]:
    """What the declared tools and agents call."""
    usual = settings.AGENTCORE_OPTIONS.model
    models_used = {f"model:{agent.model or usual}" for agent in all_agents()}
    return models_used | {spec.downstream or spec.name for spec in registry.all_tools()}


def held_action(view: View, draft: Draft, action: ActionJournal) -> bool:
    """Whether the next call of `action` has to wait; why is then in `view.held`."""
    found = _held(view, draft, downstream_of(action)) if slots.is_limited() else None
    if found is None:
        view.held.pop(action.id, None)
        return False
    view.held[action.id] = found
    return True


def held_model_call(view: View, draft: Draft) -> Held | None:
    """Why the next model call has to wait, or None."""
    return _held(view, draft, model_downstream(view)) if slots.is_limited() else None


def _held(view: View, draft: Draft, downstream: str) -> Held | None:
    """The longest wait of all buckets, as far as can be seen before the lock."""
    found = []
    # What this process knows to be over and writes in the transaction that it plans.
    over = {attempt.id for attempt in view.attempts if attempt.outcome is not None}
    planned = [name for row in draft.new_rows for name in _counted_in(view, row)]
    mine = _buckets(view, downstream)
    for bucket, use in slots.use_of(mine, draft.now, run_id=view.run.id, over=over):
        waits = held(bucket=bucket, use=use, calls=1 + planned.count(bucket.name), now=draft.now)
        found += [waits] if waits is not None else []
    return max(found, key=lambda item: item.until, default=None)


def _buckets(view: View, downstream: str) -> tuple[Bucket, ...]:
    limits = settings.AGENTCORE_OPTIONS.limits
    return buckets(limits=limits, tenant=view.run.tenant, downstream=downstream)


def _counted_in(view: View, row: models.Model) -> list[str]:
    """The buckets of a call that this draft starts already."""
    if not isinstance(row, Attempt):
        return []
    if row.action_id is None:
        downstream = model_downstream(view)
    else:
        downstream = downstream_of(view.action(row.action_id))
    return [bucket.name for bucket in _buckets(view, downstream)]


def wait(draft: Draft, found: Held) -> None:
    """Queue the run for its bucket, in the transaction that lets it wait."""
    draft.note(waits_for=found.bucket)
    draft.also(partial(slots.enqueue, draft.run.id, found.bucket, draft.now))


def count(view: View, draft: Draft, call: Call) -> None:
    """Have the calls of a set counted by the transaction that starts them."""
    if not slots.is_limited():
        return
    settles = view.run.state not in (RunState.CALLING_MODEL, RunState.DISPATCHING_TOOLS)
    counted = [
        Counted(
            bucket,
            request.attempt_id,
            request.timeout + settings.AGENTCORE_OPTIONS.call_margin,
            waits=not settles and _kind(request) in STARTS,
        )
        for request in call.requests
        for bucket in _buckets(view, _downstream(view, request))
    ]
    if counted:
        draft.also(partial(slots.take, counted, draft.run.id))


def _kind(request: ToolRequest | ModelRequest) -> AttemptKind:
    return AttemptKind.MODEL if isinstance(request, ModelRequest) else request.kind


def _downstream(view: View, request: ToolRequest | ModelRequest) -> str:
    if isinstance(request, ModelRequest):
        return model_downstream(view)
    return request.spec.downstream or request.spec.name
