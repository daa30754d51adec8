"""What the model is told about each of its calls: one text per call, never more than is known."""

from __future__ import annotations

from typing import Any

from agentcore.lifecycle import ActionState
from agentcore.observed import observation
from runs.models import ActionJournal
from runs.steps.order import DRY_RUN
from runs.view import is_child
from tools import registry
from tools.invocation import redacted

A = ActionState


def render(
    action: ActionJournal, same_as: ActionJournal | None, asked: ActionJournal | None = None
) -> str:
    """The observation of a terminal action; `same_as` is the action it duplicates, `asked` what
    the model had asked for where a person changed it.
    """
    status, data = _content(action, same_as)
    spec = registry.get(action.tool)
    compensates = spec.compensates if spec else ""
    return observation(
        tool=action.tool,
        status=status,
        data=data,
        compensates=compensates,
        person=_changed(action, asked) if asked is not None else None,
    )


def _changed(action: ActionJournal, asked: ActionJournal) -> dict[str, Any]:
    """The arguments that a person changed, as they are now; secrets stay hidden."""
    spec, before, now = registry.get(action.tool), asked.arguments or {}, action.arguments or {}
    shown = redacted(spec=spec, arguments=now) if spec is not None else dict.fromkeys(now)
    return {"changed": {name: shown.get(name) for name in now if now[name] != before.get(name)}}


def _content(action: ActionJournal, same_as: ActionJournal | None) -> tuple[str, Any]:
    match action.state:
        case A.FAILED if is_child(action) and action.result is not None:
            return str(action.result["status"]), action.result
        case A.SUCCEEDED if action.error_class:
            return "ok_but_unreadable", _why(action)
        case A.SUCCEEDED:
            return "ok", action.result
        case A.VOIDED if same_as is not None:
            return _duplicate(same_as)
        case A.VOIDED if action.reason == DRY_RUN:
            return "not_executed_dry_run", _why(action)
        case A.ABANDONED:
            return "outcome_unknown", _why(action)
        case A.REJECTED if action.reason == "RESPONDED":
            return "answered_by_person", {"answer": action.detail}
        case _:
            return action.state.lower(), _why(action)


def _duplicate(owner: ActionJournal) -> tuple[str, Any]:
    """What is known of the earlier action; never something that looks like a fresh execution."""
    at = owner.ended_at.isoformat() if owner.ended_at else None
    match owner.state:
        case A.SUCCEEDED:
            return "already_done", {"at": at, "result": owner.result}
        case A.VOIDED if owner.reason == "BY_HAND":
            return "already_done", {"at": at, "message": owner.detail}
        case A.FAILED:
            message = "the earlier attempt proved to have no effect; this call was not made"
        case A.ABANDONED:
            message = "the outcome of the earlier attempt is unknown and will stay so"
            return "outcome_unknown", {"at": at, "message": message}
        case _:
            message = "the outcome of the earlier attempt is being checked"
            return "being_checked", {"message": message}
    return "not_done", {"at": at, "message": message}


def _why(action: ActionJournal) -> dict[str, str]:
    why = {"reason": action.reason or action.error_class, "detail": action.detail}
    return {name: text for name, text in why.items() if text}
