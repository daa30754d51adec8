"""The attempts of a write as the facts that the rules of reconciliation ask for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from agentcore.reconciling import Send, Verdict, resend_refusal
from agentcore.values import AttemptKind, OutcomeKind
from runs.models import ActionJournal, Attempt, Run
from runs.reconcile_models import Reconciliation
from runs.view import View, spec_of
from tools.spec import ToolSpec


def sends_of(attempts: Iterable[Attempt]) -> list[Send]:
    """The tool calls among `attempts`, as facts."""
    return [
        Send(
            started_at=attempt.started_at,
            send_by=attempt.send_by,
            outcome=OutcomeKind(attempt.outcome) if attempt.outcome else None,
            ended_at=attempt.ended_at,
            lost=attempt.lost_at is not None,
        )
        for attempt in attempts
        if attempt.kind == AttemptKind.TOOL
    ]


def stored_sends(action: ActionJournal) -> list[Send]:
    """The sends of an action, read from the database."""
    return sends_of(Attempt.objects.filter(action=action, kind=AttemptKind.TOOL).order_by("n"))


def why_not_resend(
    *, action: ActionJournal, run: Run, sends: list[Send], spec: ToolSpec | None, now: datetime
) -> str:
    """Why the same key may not be sent again now; "" when it may."""
    return resend_refusal(
        contract=spec.contract if spec else None,
        first_sent_at=action.first_sent_at,
        sends=sends,
        stopping=run.stop_reason is not None,
        now=now,
    )


def resend_is_granted(view: View, action: ActionJournal) -> bool:
    """Whether two people have asked that this NEEDS_HUMAN action be sent once more, and it may be.

    The grant is the newest verdict and names how many attempts there were: the attempt it allows
    uses it up. Asked again at the moment of effect: the key's retention, the contract, the stop.
    """
    newest = Reconciliation.objects.filter(action=action).order_by("-created_at", "-id").first()
    attempts = view.attempts_of(action)
    if newest is None or newest.verdict != Verdict.RESEND_SAME_KEY:
        return False
    if newest.agrees_with_id is None or newest.sends != len(attempts):
        return False
    facts: dict[str, Any] = {"action": action, "run": view.run, "now": view.now}
    return not why_not_resend(sends=sends_of(attempts), spec=spec_of(action), **facts)
