"""What the model is told about each of its calls: one text per call, never more than is known."""

from __future__ import annotations

from typing import Any

from agentcore.context import observation
from agentcore.lifecycle import ActionState
from runs.models import ActionJournal

A = ActionState


def render(action: ActionJournal, same_as: ActionJournal | None) -> str:
    """The observation of a terminal action; `same_as` is the action it duplicates."""
    status, data = _content(action, same_as)
    return observation(tool=action.tool, status=status, data=data)


def _content(action: ActionJournal, same_as: ActionJournal | None) -> tuple[str, Any]:
    match action.state:
        case A.SUCCEEDED if action.error_class:
            return "ok_but_unreadable", _why(action)
        case A.SUCCEEDED:
            return "ok", action.result
        case A.VOIDED if same_as is not None:
            return _duplicate(same_as)
        case A.ABANDONED:
            return "outcome_unknown", _why(action)
        case _:
            return action.state.lower(), _why(action)


def _duplicate(owner: ActionJournal) -> tuple[str, Any]:
    """Never something that looks like a fresh execution."""
    if owner.state == A.SUCCEEDED:
        at = owner.ended_at.isoformat() if owner.ended_at else None
        return "already_done", {"at": at, "result": owner.result}
    return "being_checked", {"message": "the outcome of the earlier attempt is being checked"}


def _why(action: ActionJournal) -> dict[str, str]:
    why = {"reason": action.reason or action.error_class, "detail": action.detail}
    return {name: text for name, text in why.items() if text}
