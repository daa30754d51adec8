"""Finding out what an open write did. A step of the driver, under the run's lease.

First the downstream is asked, about all open writes at once; then what its answers mean is decided
(`verdicts.resolve_probe`): done, not done, sent again, asked again later, or for a person. It goes
on while the run is suspended or stopping, and then it only asks.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from agentcore import verdicts
from agentcore.lifecycle import ActionState, RunState
from agentcore.values import (
    Absent,
    AttemptKind,
    Conflict,
    Found,
    Inconclusive,
    NotDone,
    OutcomeKind,
    Pending,
    ProbeVerdict,
)
from runs import journal, sends
from runs.controls import TOOL
from runs.models import ActionJournal, Attempt
from runs.steps import order, starting
from runs.steps.base import Answer, Call, Next, ToolRequest, Wait, context_for, far
from runs.transitions import Draft
from runs.view import View, is_child, spec_of
from tools.spec import ToolSpec

A = ActionState
MAX_SENDS = 5
"""Sends of one write that may have left, where its contract allows more than one."""


def plan(view: View, draft: Draft) -> Answer:
    """Ask, resend or retry what is due, else wait; leave when nothing is open any more."""
    open_writes = view.in_state(A.UNKNOWN, A.PENDING)
    due = [action for action in open_writes if _is_due(action, draft)]
    probes = [(action, spec) for action in due if (spec := _to_probe(view, draft, action))]
    if probes:  # those beyond the cap are asked next
        now = probes[: settings.AGENTCORE_OPTIONS.read_cap]
        return Call(tuple(_probe(view, draft, action, spec) for action, spec in now))
    for action in due:
        if action.state in (A.UNKNOWN, A.PENDING):
            request = _resolve(view, draft, action)
            if request is not None:
                return Call((request,))
    if view.run.state == RunState.SUSPENDED:
        return Wait(_wake_at(view, draft))
    for action in view.in_state(A.NEEDS_HUMAN):
        spec = spec_of(action)
        off = view.controls.off_reason(TOOL, action.tool)
        if spec is not None and not off and sends.resend_is_granted(view, action):
            return Call((starting.resend(view, draft, action, spec),))
    for action in _running(view):
        if order.retry_at(view, action, draft.now) <= draft.now:
            request = starting.try_again(view, draft, action)
            if request is not None:
                return Call((request,))
    return _rest(view, draft)


def _rest(view: View, draft: Draft) -> Answer:
    unsettled = [action for action in view.open_actions if not is_child(action)]
    if unsettled and not _others_may_go(view, draft):
        return Wait(_wake_at(view, draft))
    if view.run.stop_reason:
        return Wait(_wake_at(view, draft)) if view.open_actions else Next()
    draft.move_run(RunState.DISPATCHING_TOOLS)
    return Next()


def _others_may_go(view: View, draft: Draft) -> bool:
    """Only accepted, not yet final writes are open: a call that was approved meanwhile may go,
    unless a limit lets it wait.
    """
    if view.run.stop_reason or order.is_uncertain(view):
        return False
    held = {key for key, found in view.held.items() if found.until > draft.now}
    ready = [action for action in view.in_state(A.READY) if action.id not in held]
    return any(order.may_start(view, action) for action in ready)


def _running(view: View) -> list[ActionJournal]:
    """Calls that may have to be made again; the runs of other agents make their own."""
    return [action for action in view.in_state(A.RUNNING) if not is_child(action)]


def _is_due(action: ActionJournal, draft: Draft) -> bool:
    return action.next_probe_at is None or action.next_probe_at <= draft.now


def _to_probe(view: View, draft: Draft, action: ActionJournal) -> ToolSpec | None:
    """The tool to ask about `action`; None when it was asked, or cannot be."""
    spec = spec_of(action)
    if spec is None:
        detail = "the tool is not registered in this version any more"
        journal.needs_human(draft, action, reason="TOOL_CHANGED", detail=detail)
        return None
    if spec.probe_fn is None:
        return None
    asked_for = action.next_probe_at is not None
    return spec if asked_for or _newest_answer(view, action) is None else None


def _newest_answer(view: View, action: ActionJournal) -> Attempt | None:
    """The last answered probe, unless the write was sent again after it."""
    answers = _answers(view, action)
    sent = view.attempts_of(action)
    if not answers or (sent and sent[-1].started_at > answers[-1].started_at):
        return None
    return answers[-1]


def _answers(view: View, action: ActionJournal) -> list[Attempt]:
    return [a for a in view.attempts_of(action, AttemptKind.PROBE) if a.outcome is not None]


def _probe(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    attempt = journal.add_attempt(
        view, draft, kind=AttemptKind.PROBE, action=action, timeout=spec.timeout
    )
    draft.set_action(action, next_probe_at=None)
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, AttemptKind.PROBE, spec, context, action.arguments or {})


def _resolve(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """What is known by now leads to: a drafted move or a time to look again, or a resend."""
    spec = spec_of(action)
    if spec is None:
        return None
    newest = _newest_answer(view, action)
    verdict = _verdict(newest.result or {}) if newest else None
    match verdicts.resolve_probe(_known(view, draft, action, spec, verdict)):
        case verdicts.Resend():
            return starting.resend(view, draft, action, spec)
        case verdicts.Wait(seconds=seconds):
            draft.set_action(action, next_probe_at=draft.now + timedelta(seconds=seconds))
        case verdicts.Fail(reason=reason, detail=detail):
            journal.fail_action(draft, action, error_class=reason, detail=detail)
        case verdicts.Escalate(reason=reason):
            detail = f"after {action.probes} probes and {len(view.attempts_of(action))} attempts"
            journal.needs_human(draft, action, reason=reason.upper(), detail=detail)
        case verdicts.Succeed():  # the truth of a probe is written before this step
            detail = "the probe contradicts the journal"
            journal.needs_human(draft, action, reason=journal.CONFLICT, detail=detail)
    return None


def _known(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, verdict: ProbeVerdict | None
) -> verdicts.OpenWrite:
    """The rows of one open write as the facts that decide about it."""
    sent = view.attempts_of(action)
    left = [a for a in sent if a.outcome != OutcomeKind.NO_EFFECT] or sent
    absent = [
        a.started_at for a in _answers(view, action) if (a.result or {}).get("verdict") == "absent"
    ]
    return verdicts.OpenWrite(
        contract=spec.contract,
        verdict=verdict,
        now=draft.now,
        state=ActionState(action.state),
        first_sent_at=action.first_sent_at,
        idle_at=max(a.ended_at or a.send_by + timedelta(seconds=spec.timeout) for a in left),
        unsettled_since=min((a.ended_at or a.lost_at or draft.now) for a in left),
        max_age=settings.AGENTCORE_OPTIONS.reconcile_max_age,
        sends=len(left),
        max_sends=MAX_SENDS,
        probes=action.probes,
        absent_at=absent,
        last_refused=sent[-1].outcome == OutcomeKind.REFUSED,
        fenced=spec.fenced_sends,
        stopping=view.run.stop_reason is not None,
        suspended=view.run.state == RunState.SUSPENDED
        or bool(view.controls.off_reason(TOOL, action.tool)),
        waits=spec.probe_after,
    )


def _verdict(stored: dict[str, object]) -> ProbeVerdict:
    """A probe's stored answer as its value."""
    detail = str(stored.get("detail", ""))
    match stored.get("verdict"):
        case "found":
            matches = bool(stored.get("fingerprint_matches", True))
            return Found(stored.get("result"), str(stored.get("reference", "")), matches)
        case "absent":
            return Absent()
        case "pending":
            return Pending(detail)
        case "conflict":
            return Conflict(detail)
        case "not_done":
            return NotDone(detail)
        case _:
            return Inconclusive(detail)


def _wake_at(view: View, draft: Draft) -> datetime:
    """The next look, the next try, the end of an approval or of the run: what comes first."""
    open_writes = view.in_state(A.UNKNOWN, A.PENDING)
    times = [a.next_probe_at for a in open_writes if a.next_probe_at is not None]
    if view.run.state != RunState.SUSPENDED and not view.run.stop_reason:
        times.append(view.run.deadline_at)
        times += [order.retry_at(view, a, draft.now) for a in _running(view)]
        waiting = view.in_state(A.AWAITING_APPROVAL)
        times += [approval.expires_at for a in waiting if (approval := view.approval_of(a))]
        ready = view.in_state(A.READY)
        times += [found.until for a in ready if (found := view.held.get(a.id))]
    return min(times, default=far(draft.now))
