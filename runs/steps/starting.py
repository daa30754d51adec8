"""The start of an action: everything is checked again at the moment of effect, then one attempt.

What cannot be checked before the transaction is a guard inside it: the approval is consumed and
the intent taken by conditional statements, and an older answer rolls the start back.
"""

from __future__ import annotations

from agentcore import canonical
from agentcore.lifecycle import ActionState
from agentcore.policy import Verdict
from agentcore.values import AttemptKind
from runs import caps, children, journal, keys
from runs.controls import TOOL
from runs.models import ActionJournal, Incident
from runs.steps import asking, bound, order
from runs.steps.base import ToolRequest, context_for
from runs.steps.bound import Breach
from runs.steps.judging import judge_again
from runs.transitions import Draft
from runs.view import View, is_write, spec_of
from tools.spec import ToolSpec

A = ActionState


def start(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """Draft READY -> RUNNING and describe the call; None when the action was refused instead, or
    is a run of another agent, for which nothing is called.
    """
    spec = spec_of(action)
    if spec is None:
        detail = "the tool is not registered in this version any more"
        _refuse(view, draft, action, Breach("TOOL_CHANGED", detail))
        return None
    changed = bound.content_breach(view, action, spec)
    if changed is not None and changed.reason != "ARGUMENTS_CHANGED":
        _refuse(view, draft, action, changed)
        return None
    if changed is not None or not is_unchanged(action):
        _refuse_changed(view, draft, action)
        return None
    verdict = judge_again(view, draft, action, spec)
    if verdict is None:
        bound.end(view, draft, action, Breach(action.reason, action.detail))
        return None
    if view.run.dry_run and is_write(action):
        _rehearse(view, draft, action, spec, verdict)
        return None
    if not _holds(view, draft, action, spec, verdict):
        return None
    if limit := caps.reached(view, draft, action, spec):
        _refuse(view, draft, action, Breach("CALL_LIMIT", limit))
        return None
    if is_write(action) and not _may_write(view, draft, action, spec, verdict):
        return None
    if spec.agent and (refused := children.begin(view, draft, action, spec)) is not None:
        _refuse(view, draft, action, Breach(refused.reason, refused.detail))
        return None
    bound.use(view, draft, action)
    draft.move_action(
        action, A.RUNNING, fence=view.run.fence, first_sent_at=action.first_sent_at or draft.now
    )
    return None if spec.agent else _attempt(view, draft, action, spec)


def _holds(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, verdict: Verdict
) -> bool:
    """Whether preview and answer still hold; refuses, or asks a person, where they do not."""
    if is_write(action) and spec.preview_fn is not None:
        moved = asking.refusal_of(action) or asking.snapshot_refusal(view, action)
        if moved is not None:
            _refuse(view, draft, action, Breach(*moved))
            return False
    breach = bound.answer_breach(view, draft, action, verdict)
    if breach is not None:
        return asking.renew(view, draft, action, verdict, breach)
    if verdict.kind == "ASK" and action.approval_id is None:
        return asking.ask_late(view, draft, action, verdict)
    return True


def _rehearse(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, verdict: Verdict
) -> None:
    """A write of a dry run: refused as it would be, else VOIDED. Nothing is taken and nobody asked.

    The rules of the database refuse its start as well.
    """
    if spec.preview_fn is not None:
        moved = asking.refusal_of(action) or asking.snapshot_refusal(view, action)
        if moved is not None:
            _refuse(view, draft, action, Breach(*moved))
            return
    if limit := caps.reached(view, draft, action, spec):
        _refuse(view, draft, action, Breach("CALL_LIMIT", limit))
        return
    standing = keys.standing_of(view, action, spec, draft.now)
    if isinstance(standing, keys.Taken):
        keys.yield_to(draft, action, standing.owner)
        return
    order.void_for_dry_run(draft, action, asks=verdict.kind == "ASK")


def _refuse(view: View, draft: Draft, action: ActionJournal, breach: Breach) -> None:
    """READY -> DENIED; what it was about is stored on the approval, which is of no use any more."""
    deny(draft, action, breach.reason, breach.detail)
    bound.end(view, draft, action, breach)


def is_unchanged(action: ActionJournal) -> bool:
    """Whether what would be sent now is what was judged, stored and, where asked, approved."""
    try:
        now = canonical.params_hash(
            tool=action.tool,
            tool_version=action.tool_version,
            tenant=action.tenant,
            params=action.arguments or {},
        )
    except canonical.NotCanonical:
        return False
    return now == action.params_hash


def _refuse_changed(view: View, draft: Draft, action: ActionJournal) -> None:
    """The arguments are not those of the hash any more: an incident, and nothing is sent."""
    detail = "the arguments are not those that were judged and approved"
    _refuse(view, draft, action, Breach("ARGUMENTS_CHANGED", detail))
    draft.add(
        Incident(
            run_id=action.run_id,
            action=action,
            kind="ARGUMENTS_CHANGED",
            detail=detail,
            created_at=draft.now,
        )
    )


def _may_write(
    view: View, draft: Draft, action: ActionJournal, spec: ToolSpec, verdict: Verdict
) -> bool:
    """Takes the intent; refuses, or asks a person, where it has an owner."""
    standing = keys.standing_of(view, action, spec, draft.now, guess=True)
    match standing:
        case keys.Taken(owner=owner):
            order.void_approval(view, draft, action, cause="refused at execution")
            keys.yield_to(draft, action, owner)
            return False
        case keys.Repeat(owner=owner):
            order.void_approval(view, draft, action, cause="it does not name the repeat")
            asking.request_repeat(view, draft, action, spec=spec, owner=owner, verdict=verdict)
            return False
        case keys.Free():
            keys.take(view, draft, action=action, free=standing)
    asking.bind_version(draft, action)
    return True


def try_again(view: View, draft: Draft, action: ActionJournal) -> ToolRequest | None:
    """The next attempt of a RUNNING action: the earlier ones had no effect, or a person said so.

    The tries are counted only while nothing can have happened: a write with an ambiguous attempt
    is never FAILED by their number. A lost attempt is none: a call that kills its process ends
    the run as poison.
    """
    spec = spec_of(action)
    attempts = view.attempts_of(action)
    ambiguous = journal.joined_state(action, attempts) != A.FAILED
    off = view.controls.off_reason(TOOL, action.tool)
    if (spec is None or off) and ambiguous:
        word = "switched_off" if off else "tool_changed"
        journal.to_unknown(draft, action, error_class=word, detail=off, sends=len(attempts))
        return None
    if off:
        journal.fail_action(draft, action, error_class="switched_off", detail=off)
        return None
    tries = sum(a.lost_at is None for a in attempts)  # dead processes are counted by the run
    if spec is None or (not ambiguous and tries >= journal.max_attempts(action)):
        last = attempts[-1]
        journal.fail_action(
            draft,
            action,
            error_class=last.error_class or "attempts_used",
            detail=last.detail or f"{len(attempts)} attempts without a result",
        )
        return None
    draft.set_action(action, fence=view.run.fence)
    return _attempt(view, draft, action, spec)


def resend(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    """To RUNNING: the same key and bytes once more, as its contract or two people allow."""
    draft.move_action(action, A.RUNNING, reason="", fence=view.run.fence, next_probe_at=None)
    return _attempt(view, draft, action, spec)


def _attempt(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> ToolRequest:
    if not is_unchanged(action):  # a start was refused; a resend waits for a person
        raise ValueError(f"action {action.id}: its arguments are not those of its first attempt")
    attempt = journal.add_attempt(
        view, draft, kind=AttemptKind.TOOL, action=action, timeout=spec.timeout
    )
    context = context_for(view, action, attempt_id=attempt.id, timeout=spec.timeout)
    return ToolRequest(attempt.id, AttemptKind.TOOL, spec, context, action.arguments or {})


def deny(draft: Draft, action: ActionJournal, reason: str, detail: str) -> None:
    """READY -> DENIED, refused at execution."""
    draft.move_action(action, A.DENIED, reason=reason, detail=detail[:2000])
