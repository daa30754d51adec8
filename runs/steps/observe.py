"""Link 4: one observation for each call and its evidence, then the next turn or verification."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agentcore.canonical import clean_text, sha256_hex
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, RunState
from agentcore.observed import fold, hide
from runs import secrets, sql
from runs.account_models import Evidence
from runs.models import ActionJournal
from runs.steps import verifying
from runs.steps.base import Answer, Next
from runs.steps.observations import render
from runs.transitions import Draft
from runs.view import View, is_child, is_write

A = ActionState


def plan(view: View, draft: Draft) -> Answer:
    """Merge the results in call order, or verify."""
    if view.run.state == RunState.VERIFYING:
        return verifying.plan(view, draft)
    same = _owners(view.turn_actions)
    for action in view.turn_actions:
        if action.observation is None:
            _observe(view, draft, action, same.get(action.same_as_id))
    turn = view.turn
    decision = turn.decision if turn else ""
    if decision == "TOOL_CALLS":
        draft.move_run(RunState.COMPILING_CONTEXT)
    else:
        draft.move_run(RunState.VERIFYING)
    return Next()


def _observe(
    view: View, draft: Draft, action: ActionJournal, same_as: ActionJournal | None
) -> None:
    """What the model is told about one call, without secrets, and the fact that it found out."""
    hidden = (*secrets.of_call(action), *secrets.of_the_runtime())
    text = hide(render(action, same_as, _asked(view, action)), hidden)
    draft.set_action(action, observation=fold(text, action.result))
    if action.state == A.SUCCEEDED or (is_child(action) and action.result is not None):
        draft.add(_evidence(view, draft, action, text))


def _asked(view: View, action: ActionJournal) -> ActionJournal | None:
    """What the model had asked for, where a person changed it."""
    if not action.edit:
        return None
    place = (action.ordinal, 0)
    return next((a for a in view.turn_actions if (a.ordinal, a.edit) == place), None)


def _evidence(view: View, draft: Draft, action: ActionJournal, text: str) -> Evidence:
    """A read whose answer fits its declared type is verified; of a write only the system of
    record can say so, when it is asked. What another agent says is never verified: its own run,
    which this names, has the evidence.
    """
    return sql.new(
        Evidence,
        id=new_id(),
        run_id=view.run.id,
        turn=action.turn,
        action_id=action.id,
        source=f"{action.tool}@{action.tool_version}"[:200],
        about=_about(action),
        version=_version(action),
        sha256=sha256_hex(text),
        verified=not is_write(action) and not is_child(action) and not action.error_class,
        observed_at=action.ended_at or draft.now,
        created_at=draft.now,
    )


def _about(action: ActionJournal) -> str:
    if is_child(action):
        result: Any = action.result
        return str(result["run"])
    return action.resource_key


def _version(action: ActionJournal) -> str:
    """The version of what was read, where the answer names one; else the one a write was bound
    to.
    """
    result: Any = action.result
    named = result.get("version") if isinstance(result, dict) else None
    if isinstance(named, str | int) and not isinstance(named, bool):
        return clean_text(str(named), 200)
    return action.bound_version


def _owners(actions: list[ActionJournal]) -> dict[UUID | None, ActionJournal]:
    ids = [action.same_as_id for action in actions if action.same_as_id]
    return dict(ActionJournal.objects.in_bulk(ids)) if ids else {}
