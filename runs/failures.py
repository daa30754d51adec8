"""Setting a run's stop reason, with the layer it broke in and the rows that show it."""

from __future__ import annotations

from typing import Any

from agentcore.canonical import clean_text
from agentcore.failures import layer_of
from agentcore.lifecycle import ActionState, StopReason
from runs.models import Attempt
from runs.transitions import Draft
from runs.view import View

_LAST = 3
"""Rows of each kind that a failure points to."""


def stop(view: View, draft: Draft, reason: StopReason, detail: str, *, code: str = "") -> None:
    """Draft the stop reason; for a failure also its layer, code and evidence."""
    layer = layer_of(reason)
    draft.set_run(stop_reason=reason, reason=clean_text(detail)[:2000])
    if layer is None:
        return
    draft.set_run(
        failure={
            "layer": str(layer),
            "code": clean_text(code or str(reason).lower(), 80),
            "evidence": evidence(view),
        }
    )


def evidence(view: View) -> list[dict[str, Any]]:
    """The rows of the current turn that did not go well, newest last."""
    turn = view.run.turn
    attempts = [
        _attempt(attempt)
        for attempt in view.attempts
        if attempt.turn == turn and (attempt.error_class or attempt.lost_at)
    ]
    actions = [
        {"action": str(action.id), "tool": action.tool, "reason": action.reason, "turn": turn}
        for action in view.actions
        if action.turn == turn and action.state in (ActionState.DENIED, ActionState.FAILED)
    ]
    problems = [
        {"turn": row.number, "problem": row.problem[:300]}
        for row in view.turns
        if row.problem and row.number >= turn - _LAST
    ]
    return [*problems[-_LAST:], *actions[-_LAST:], *attempts[-_LAST:]]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": str(attempt.id),
        "kind": attempt.kind,
        "n": attempt.n,
        "error_class": attempt.error_class or "lost",
        "turn": attempt.turn,
    }
