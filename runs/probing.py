"""Asking now what a write became, instead of at its next time: a mailbox fact for the driver.

Reached as `runs.services.ask_probe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from agentcore.lifecycle import ActionState
from runs.approving import Decider
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal
from runs.once import Within
from runs.reconciliations import PERMISSION
from runs.transitions import locked_run
from runs.verdict_errors import VerdictError
from runs.view import spec_of

PROBED = frozenset({ActionState.UNKNOWN, ActionState.PENDING})
"""States in which the driver asks the downstream."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The probe is due now; the driver makes it under the run's lease."""

    action_id: UUID
    run_id: UUID
    due_at: datetime


def ask_probe(*, action_id: UUID, person: Decider, within: Within | None = None) -> Asked:
    """Make the next probe of an UNKNOWN or PENDING write due now. Opens its own transaction.

    Anybody who may give a verdict may ask, also who asked for the run: a probe only reads. Raises
    `VerdictError` (not_found, not_permitted, action_not_unknown, no_probe), and nothing is written.
    """
    known = ActionJournal.objects.filter(pk=action_id).first()
    if known is None:
        raise VerdictError("not_found", "There is no action with this id.", status=404)
    if PERMISSION not in person.permissions and not person.is_superuser:
        message = f"You need the permission {PERMISSION} to ask for a probe."
        raise VerdictError("not_permitted", message, status=403)
    with locked_run(
        known.run_id, actor=person.name, event="action.probe_asked", point="ask_probe"
    ) as draft:
        if within:
            within.begin()
        action = ActionJournal.objects.select_for_update(no_key=True).get(pk=action_id)
        _may_be_probed(action)
        draft.set_action(action, next_probe_at=draft.now)
        draft.set_run(wake_at=draft.now)
        draft.note(action=str(action.pk), person=person.name)
        asked = Asked(action_id=action.pk, run_id=action.run_id, due_at=draft.now)
        if within:
            within.end(asked, run_id=action.run_id)
    hint_on_commit(draft.run)
    return asked


def _may_be_probed(action: ActionJournal) -> None:
    if action.state not in PROBED:
        words = action.state.replace("_", " ").lower()
        message = f"The action is {words}; only an unknown or pending one is asked about."
        if action.state == ActionState.NEEDS_HUMAN:
            message += " Say that it is still unknown, and when to ask again."
        raise VerdictError("action_not_unknown", message)
    spec = spec_of(action)
    if spec is None or spec.probe_fn is None:
        raise VerdictError("no_probe", "This tool declares no probe: the downstream is not asked.")
