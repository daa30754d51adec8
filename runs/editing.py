"""A person changes the arguments of a waiting action: a new action takes its place.

The old action and its question are VOIDED. The new one has the next edit number, its own hash and
intent, and a question of its own with a fresh preview; who edited it does not decide it. The model
is told what was changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from agentcore import canonical
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.values import Json
from approvals import records, selectors
from approvals.errors import (
    ApprovalNotFound,
    DecisionError,
    InvalidEdit,
    NothingChanged,
    ReasonRequired,
)
from approvals.models import Approval
from runs.approving import MAX_REASON, content_refusal, question_refusal, run_refusal
from runs.deciding import EDIT, Decider, need, not_own
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal
from runs.once import Within
from runs.selectors import database_clock
from runs.steps.base import context_for
from runs.steps.judging import scope_of
from runs.transitions import Draft, locked_run
from runs.view import load_view, spec_of
from tools.invocation import InvalidArguments, Judgement, PolicyError, judge, parse_arguments
from tools.spec import ToolSpec

EDITED = "EDITED"
"""Reason of an action whose place an edited one has taken."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit came to. The new question follows when its preview has been read."""

    old_approval_id: UUID
    old_action_id: UUID
    action_id: UUID
    run_id: UUID
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _New:
    """The new action's content, made before the transaction: it asks the tool's own functions."""

    spec: ToolSpec
    arguments: dict[str, Json]
    judgement: Judgement
    intent_key: str
    changed: tuple[str, ...]


def edit_action(
    *,
    approval_id: UUID,
    params_hash: str,
    arguments: dict[str, Json],
    editor: Decider,
    reason: str,
    within: Within | None = None,
) -> Edited:
    """Put an action with other arguments in the place of a waiting one.

    `arguments` are those to change; the others stay. `params_hash` is the hash the person was
    shown. Opens its own transaction. Raises a `DecisionError`, and then nothing was written.
    """
    said = canonical.clean_text(reason.strip(), MAX_REASON)
    if not said:
        raise ReasonRequired("Say why you change it: the next reviewer is shown your reason.")
    known = selectors.find(approval_id=approval_id)
    if known is None:
        raise ApprovalNotFound("There is no approval with this id.")
    need(editor, EDIT, "change arguments")
    new = _prepare(known, arguments)
    with locked_run(known.run_id, actor=editor.name, event="action.edited") as draft:
        if within:
            within.begin()
        outcome = _edit(draft, known, new, editor=editor, params_hash=params_hash, reason=said)
        if within:
            draft.finally_(lambda: within.end(outcome, run_id=known.run_id))
    hint_on_commit(draft.run)  # here, with the revision that was committed
    return outcome


def _prepare(known: Approval, changes: dict[str, Json]) -> _New:
    view = load_view(known.run_id)
    action = next(row for row in view.actions if row.id == known.action_id)
    spec = spec_of(action)
    if spec is None:
        raise InvalidEdit("The tool is not registered in this version any more.")
    before = action.arguments or {}
    try:
        arguments = parse_arguments(spec=spec, raw=json.dumps({**before, **changes}))
        judgement = judge(spec=spec, context=context_for(view, action), arguments=arguments)
    except InvalidArguments as error:
        raise InvalidEdit(error.detail, _errors(error.detail, spec)) from None
    except PolicyError as error:
        raise InvalidEdit(str(error)) from None
    changed = tuple(name for name in arguments if arguments[name] != before.get(name))
    if not changed:
        raise NothingChanged("These are the arguments that were there before. Approve or reject.")
    intent = ""
    if judgement.identity is not None:
        intent = canonical.intent_key(
            tenant=view.run.tenant,
            tool=spec.name,
            contract_version=spec.version,
            scope=scope_of(view, spec),
            identity=judgement.identity,
        )
    return _New(spec, arguments, judgement, intent, changed)


def _errors(detail: str, spec: ToolSpec) -> list[tuple[str, str]]:
    """The text of `InvalidArguments` by argument."""
    found = []
    for part in detail.split("; "):
        name, _, message = part.partition(": ")
        known = name.split(".")[0] in spec.params_model.model_fields
        found.append((name, message) if known else ("", part))
    return found


def _edit(
    draft: Draft, known: Approval, new: _New, *, editor: Decider, params_hash: str, reason: str
) -> Edited:
    rows = ActionJournal.objects.select_for_update(no_key=True)
    action = rows.get(pk=known.action_id, run_id=draft.run.pk)
    approval = selectors.locked(approval_id=known.pk)
    now = database_clock()
    refused: DecisionError | None = (
        not_own(approval=approval, run=draft.run, decider=editor)
        or question_refusal(approval=approval, now=now)
        or content_refusal(approval=approval, action=action, params_hash=params_hash)
        or run_refusal(run=draft.run)
    )
    if refused is not None:
        raise refused
    edited = _action(action, new, editor, draft)
    draft.also(partial(records.void, (approval.pk,)))
    draft.log(object="approval", id=str(approval.pk), to="VOIDED", cause="edited")
    detail = f"{editor.name} changed {', '.join(new.changed)}: {reason}"[:2000]
    draft.move_action(action, ActionState.VOIDED, reason=EDITED, detail=detail)
    draft.add_action(edited)
    draft.note(edited=str(action.pk), action=str(edited.pk), changed=new.changed, reason=reason)
    draft.set_run(wake_at=draft.now)
    return Edited(approval.pk, action.pk, edited.pk, draft.run.pk, new.changed)


def _action(action: ActionJournal, new: _New, editor: Decider, draft: Draft) -> ActionJournal:
    """The same call, once more, with other arguments."""
    same = ("run_id", "tenant", "turn", "ordinal", "call_id", "tool", "tool_version", "effect")
    facts: dict[str, Any] = {
        "tool": new.spec.name,
        "tenant": action.tenant,
        "params": new.arguments,
    }
    return ActionJournal(
        id=new_id(),
        **{name: getattr(action, name) for name in (*same, "contract")},
        edit=action.edit + 1,
        edited_by=editor.name,
        arguments=new.arguments,
        params_hash=canonical.params_hash(tool_version=new.spec.version, **facts),
        fingerprint=canonical.fingerprint(contract_version=new.spec.version, **facts),
        intent_key=new.intent_key,
        resource_key=new.judgement.resource_key[:200],
        fence=draft.run.fence,
        created_at=draft.now,
    )
