"""Kill switches: an agent or a tool is off until a person switches it on again, with a reason.

A tool that is off: what was to be sent is refused. An agent that is off: no run begins, and live
runs are suspended before their next call; they go on by themselves afterwards (`let_go`).
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction

from agentcore.canonical import clean_text
from agentcore.lifecycle import RunState
from approvals.errors import InvalidRule, ReasonRequired
from runs import controls, pausing
from runs.agents import get_agent
from runs.control_models import Switch, SwitchChange
from runs.controls import AGENT, TOOL
from runs.deciding import Decider, need
from runs.models import Run
from runs.refusals import Refused
from runs.selectors import database_clock
from runs.transitions import Draft
from runs.view import View
from tools import registry

log = logging.getLogger(__name__)

PERMISSION = "runs.pause_agent"
PAUSED = "AGENT_PAUSED: "
"""Begins the reason of a run that a switch suspended."""
LET_GO = 100
"""Runs that one pass lets go."""


def switch_off(*, kind: str, name: str, by: Decider, reason: str) -> Switch:
    """Nothing of it starts after this has returned. Raises `DecisionError`."""
    return _set(kind=kind, name=name, by=by, reason=reason, is_off=True)


def switch_on(*, kind: str, name: str, by: Decider, reason: str) -> Switch:
    """It may be used again; suspended runs of an agent go on. Raises `DecisionError`."""
    return _set(kind=kind, name=name, by=by, reason=reason, is_off=False)


def all_off() -> list[Switch]:
    """What is switched off, by kind and name."""
    return list(Switch.objects.filter(is_off=True).order_by("kind", "name"))


def _set(*, kind: str, name: str, by: Decider, reason: str, is_off: bool) -> Switch:
    need(by, PERMISSION, "switch agents and tools off and on")
    said = clean_text(reason.strip(), 500)
    if not said:
        raise ReasonRequired("Say why: operators are shown the reason.")
    _must_exist(kind, name, is_off=is_off)
    with transaction.atomic(durable=True):
        controls.change()
        row, _ = Switch.objects.update_or_create(
            kind=kind,
            name=name,
            defaults={
                "is_off": is_off,
                "held": kind == AGENT,
                "reason": said,
                "changed_by": by.name,
                "changed_at": database_clock(),
            },
        )
        SwitchChange.objects.create(
            kind=kind,
            name=name,
            is_off=is_off,
            reason=said,
            changed_by=by.name,
            created_at=row.changed_at,
        )
    log.warning("%s switched %s %s: %s", by.name, kind, "off" if is_off else "on", name)
    return row


def _must_exist(kind: str, name: str, *, is_off: bool) -> None:
    if kind not in (AGENT, TOOL):
        raise InvalidRule(f"a switch is for an {AGENT} or a {TOOL}")
    known = (get_agent(name) if kind == AGENT else registry.get(name)) is not None
    if not known and not is_off and clean_text(name) == name:
        # What is gone from the code can still be switched on.
        known = Switch.objects.filter(kind=kind, name=name).exists()
    if not known:
        raise InvalidRule(f"There is no {kind.lower()} {name[:80]!r}.")


# --- what they stop ----------------------------------------------------------------------------


def refuse_start(agent: str, *, stamp: UUID | None) -> None:
    """In the transaction that makes a run, which read `stamp`. Raises `Refused` (agent_paused)."""
    reason = controls.at(stamp).off_reason(AGENT, agent)
    if reason:
        raise Refused(
            code="agent_paused",
            detail=f"The agent {agent} is switched off: {reason}. Try again when it is on.",
        )


def holds(view: View, draft: Draft) -> bool:
    """Suspend a run whose agent is off, before its next call (drafted); whether it was."""
    run = draft.run
    reason = view.controls.off_reason(AGENT, view.agent.name)
    if not reason or run.stop_reason or run.state == RunState.SUSPENDED:
        return False
    draft.also(controls.Guard(view.controls.stamp))
    pausing.suspend(draft, reason=f"{PAUSED}{reason}")
    return True


def let_go() -> int:
    """Resume the runs of agents that were switched on again; how many."""
    done = 0
    for row in Switch.objects.filter(kind=AGENT, is_off=False, held=True):
        found = Run.objects.filter(
            ended_at=None,
            state=RunState.SUSPENDED,
            reason__startswith=PAUSED,
            agent_version__name=row.name,
        ).values_list("id", flat=True)[:LET_GO]
        ids = list(found)
        for run_id in ids:
            done += _resume(run_id, row)
        if not ids:
            same = Switch.objects.filter(pk=row.pk, is_off=False, changed_at=row.changed_at)
            same.update(held=False)
    return done


def _resume(run_id: UUID, row: Switch) -> int:
    try:
        pausing.resume_run(run_id=run_id, actor=row.changed_by, reason=row.reason)
    except Refused as refused:
        log.info("run %s is not resumed now: %s", run_id, refused.detail)
        return 0
    return 1
