"""Reads behind the lists of REST: every one is bounded to what its caller may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from agentcore.lifecycle import RUN_TERMINAL, ActionState, RunState, StopReason
from approvals.models import Approval
from runs.models import ActionJournal, Attempt, Run
from runs.rest_models import Session
from runs.starting import Caller

Row = TypeVar("Row", bound=Model)

TERMINAL_STATUSES = {str(state).lower(): str(state) for state in RUN_TERMINAL}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a list of runs is narrowed to; empty members do not narrow. Words as REST has them."""

    statuses: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    session: UUID | None = None
    parent: UUID | None = None
    dedupe_key: str = ""
    created_from: datetime | None = None
    created_before: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def runs_seen_by(caller: Caller) -> QuerySet[Run]:
    """The runs of the caller's tenant, of its agents where it is bound to some."""
    rows = Run.objects.filter(tenant=caller.tenant)
    return rows.filter(agent_version__name__in=caller.agents) if caller.agents else rows


def run_of(*, caller: Caller, run_id: UUID) -> Run | None:
    """The run with its agent version, or None when the caller may not see such a run."""
    return runs_seen_by(caller).select_related("agent_version").filter(id=run_id).first()


def runs_page(
    *, caller: Caller, wanted: RunFilter, after: UUID | None, limit: int
) -> tuple[list[Run], bool]:
    """Up to `limit` runs, newest first, that follow `after`; and whether more follow."""
    rows = narrowed(runs_seen_by(caller), wanted).select_related("agent_version")
    return page(rows.order_by("-id"), None if after is None else Q(id__lt=after), limit)


def narrowed(rows: QuerySet[Run], wanted: RunFilter) -> QuerySet[Run]:
    """`rows` that fit the filter."""
    if wanted.statuses:
        fits = Q()
        for status in wanted.statuses:
            fits |= status_is(status)
        rows = rows.filter(fits)
    if wanted.agents:
        rows = rows.filter(agent_version__name__in=wanted.agents)
    for word in wanted.has:
        rows = rows.filter(_has(*HAS[word]))
    if wanted.session is not None:
        rows = rows.filter(session_id=wanted.session)
    if wanted.parent is not None:
        rows = rows.filter(parent_id=wanted.parent)
    if wanted.dedupe_key:
        rows = rows.filter(dedupe_key=wanted.dedupe_key)
    if wanted.created_from is not None:
        rows = rows.filter(created_at__gte=wanted.created_from)
    if wanted.created_before is not None:
        rows = rows.filter(created_at__lt=wanted.created_before)
    if wanted.metadata:
        rows = rows.filter(metadata__contains=dict(wanted.metadata))
    return rows


HAS: dict[str, tuple[ActionState, ...]] = {
    "unknown": (ActionState.UNKNOWN, ActionState.NEEDS_HUMAN),
    "pending_approval": (ActionState.AWAITING_APPROVAL,),
}
"""Word of the filter `has` -> the states of an action that make it true."""


def _has(*states: ActionState) -> Exists:
    """A run that has an action in one of `states`, none of them terminal. Asked by way of the live
    runs, of which there is an index: a run ends after its actions."""
    live = ActionJournal.objects.filter(ended_at__isnull=True, run__ended_at__isnull=True)
    return Exists(live.filter(run_id=OuterRef("pk"), state__in=states))


def status_is(status: str) -> Q:
    """The public status as a condition on runs: `api/status.py` for rows, here for queries."""
    if status in TERMINAL_STATUSES:
        return Q(state=TERMINAL_STATUSES[status])
    live = Q(ended_at__isnull=True)
    if status == "cancelling":
        return live & (Q(state=RunState.CANCELLING) | Q(stop_reason=StopReason.CANCEL))
    going = live & ~Q(state=RunState.CANCELLING) & ~Q(stop_reason=StopReason.CANCEL)
    asks = (
        Q(_has(ActionState.NEEDS_HUMAN))
        | Q(state=RunState.SUSPENDED)
        | (Q(state=RunState.WAITING_APPROVAL) & Q(_has(ActionState.AWAITING_APPROVAL)))
    )
    if status == "requires_action":
        return going & asks
    queued = Q(state=RunState.QUEUED)
    return going & ~asks & (queued if status == "queued" else ~queued)


def page(rows: QuerySet[Row], follows: Q | None, limit: int) -> tuple[list[Row], bool]:
    """Up to `limit` of `rows` that satisfy `follows`, and whether there are more."""
    found = list((rows if follows is None else rows.filter(follows))[: limit + 1])
    return found[:limit], len(found) > limit


# --- actions and approvals -----------------------------------------------------------------


def actions_seen_by(caller: Caller) -> QuerySet[ActionJournal]:
    rows = ActionJournal.objects.filter(tenant=caller.tenant)
    return rows.filter(run__agent_version__name__in=caller.agents) if caller.agents else rows


def attempts_of(*, action_ids: Iterable[UUID]) -> dict[UUID, list[Attempt]]:
    """Every attempt of these actions, in the order they were made."""
    found: dict[UUID, list[Attempt]] = {item: [] for item in action_ids}
    rows = Attempt.objects.filter(action_id__in=list(found)).order_by("started_at", "n")
    for attempt in rows:
        if attempt.action_id is not None:
            found[attempt.action_id].append(attempt)
    return found


def approvals_seen_by(caller: Caller) -> QuerySet[Approval]:
    rows = Approval.objects.filter(tenant=caller.tenant)
    if caller.agents:
        mine = runs_seen_by(caller).filter(id=OuterRef("run_id"))
        rows = rows.filter(Exists(mine))
    return rows


def actions_by_id(*, ids: Sequence[UUID]) -> dict[UUID, ActionJournal]:
    return {row.id: row for row in ActionJournal.objects.filter(id__in=ids)}


# --- sessions ------------------------------------------------------------------------------


def sessions_seen_by(caller: Caller) -> QuerySet[Session]:
    """The tenant's sessions that were not deleted."""
    rows = Session.objects.filter(tenant=caller.tenant, deleted_at__isnull=True)
    return rows.filter(Q(agent="") | Q(agent__in=caller.agents)) if caller.agents else rows


def session_of(*, caller: Caller, session_id: UUID) -> Session | None:
    return sessions_seen_by(caller).filter(id=session_id).first()
