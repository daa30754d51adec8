"""Finding out what an UNKNOWN write did. A step of the driver, under the run's lease."""

from __future__ import annotations

from datetime import datetime, timedelta

from agentcore import verdicts
from agentcore.lifecycle import ActionState, RunState
from agentcore.values import Absent, AttemptKind, Found, Inconclusive, Pending, ProbeVerdict
from runs import journal
from runs.models import ActionJournal
from runs.steps import starting
from runs.steps.base import Answer, Call, Next, ToolRequest, Wait, context_for, far
from runs.transitions import Draft
from runs.view import View, spec_of
from tools.spec import ToolSpec

A = ActionState
MAX_SENDS = 5
"""Sends of one write in all, where its contract allows more than one."""


def plan(view: View, draft: Draft) -> Answer:
    """Probe or resend what is due, else wait for the next probe; leave when nothing is open."""
    requests = [
        request
        for action in view.in_state(A.UNKNOWN, A.PENDING)
        if (request := _next(view, draft, action)) is not None
    ]
    sends = [request for request in requests if request.kind == AttemptKind.TOOL]
    if sends:
        return Call((sends[0],))
    if requests:
        return Call(tuple(requests))
    running = view.in_state(A.RUNNING)
    for action in running:
        request = starting.try_again(view, draft, action)
        if request is not None:
            return Call((request,))
    if view.open_actions:
        return Wait(_wake_at(view, draft))
    if view.run.stop_reason:
        return Next()
    draft.move_run(RunState.DISPATCHING_TOOLS)
    return Next()


def _next(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """The next call about one action; None when it waits, or went to a person (drafted)."""
    if action.next_probe_at is not None and action.next_probe_at > draft.now:
        return None
    spec = spec_of(action)
    if spec is None:
        detail = "the tool is not registered any more"
        journal.needs_human(draft, action, reason="TOOL_CHANGED", detail=detail)
        return None
    if action.state == A.PENDING and spec.probe_fn is None:
        return None  # only the downstream's own word can settle it
    probes = [a for a in view.attempts_of(action, AttemptKind.PROBE) if a.outcome is not None]
    sends = view.attempts_of(action)
    unanswered = not probes or (sends[-1].started_at > probes[-1].started_at)
    if spec.probe_fn is not None and (unanswered or action.next_probe_at is not None):
        return _probe(view, draft, action, spec)
    verdict = _verdict(probes[-1].result or {}) if spec.probe_fn is not None else None
    return _resolve(view, draft, action, spec, verdict)


def _probe(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    attempt = journal.add_attempt(
        view, draft, kind=AttemptKind.PROBE, action=action, timeout=spec.timeout
    )
    draft.set_action(action, next_probe_at=None)
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, AttemptKind.PROBE, spec, context, action.arguments or {})


def _resolve(
    view: View,
    draft: Draft,
    action: ActionJournal,
    spec: ToolSpec,
    verdict: ProbeVerdict | None,
) -> ToolRequest | None:
    """What an answered probe (or none) leads to."""
    resolution = verdicts.resolve_probe(
        contract=spec.contract,
        verdict=verdict,
        first_sent_at=action.first_sent_at,
        now=draft.now,
        attempts=len(view.attempts_of(action)),
        max_attempts=MAX_SENDS,
        stopping=view.run.stop_reason is not None,
        probes=action.probes,
    )
    match resolution:
        case verdicts.Resend() if action.state == A.UNKNOWN:
            return starting.resend(view, draft, action, spec)
        case verdicts.Wait(seconds=seconds):
            draft.set_action(action, next_probe_at=draft.now + timedelta(seconds=seconds))
        case verdicts.Escalate(reason=reason):
            detail = f"after {action.probes} probes"
            journal.needs_human(draft, action, reason=reason.upper(), detail=detail)
        case _:
            detail = "the probe contradicts the journal"
            journal.needs_human(draft, action, reason="CONFLICT", detail=detail)
    return None


def _verdict(stored: dict[str, object]) -> ProbeVerdict:
    """A probe's stored answer as its value."""
    detail = str(stored.get("detail", ""))
    match stored.get("verdict"):
        case "found":
            return Found(stored.get("result"), str(stored.get("reference", "")))
        case "absent":
            return Absent()
        case "pending":
            return Pending(detail)
        case _:
            return Inconclusive(detail)


def _wake_at(view: View, draft: Draft) -> datetime:
    times = [a.next_probe_at for a in view.open_actions if a.next_probe_at is not None]
    if not view.run.stop_reason:
        times.append(view.run.deadline_at)
    return min(times, default=far(draft.now))
