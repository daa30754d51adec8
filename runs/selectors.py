"""Reads for the interfaces. Nothing here locks or writes; every read names its tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import InterfaceError, connection

from agentcore.values import AttemptKind
from runs.models import ActionJournal, Attempt, Event, Run


def database_clock() -> datetime:
    """The time of the database: the clock of deadlines, leases and expiry."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone() or (None,)
    if not isinstance(moment, datetime):
        raise InterfaceError("the database gave no time")
    return moment


@dataclass(frozen=True, slots=True)
class Begun:
    """What a transaction sees as it begins: the database clock, and the stamp of the controls.

    `listened`: somebody may be told of what happens in it; False where the tenant has no live
    webhook endpoint.
    """

    now: datetime
    controls: UUID | None
    listened: bool = True


BEGUN = "clock_timestamp(), (SELECT stamp FROM runs_controls WHERE id = 1)"
"""The columns of a `Begun`, for the first statement of a transaction."""


def begun() -> Begun:
    """Read in a statement of its own, where no other one could read it along."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {BEGUN}")
        return Begun(*cursor.fetchone())


def find_run(*, tenant: str, run_id: UUID) -> Run | None:
    """The run with its agent version, or None when the tenant has no such run."""
    return Run.objects.select_related("agent_version").filter(tenant=tenant, id=run_id).first()


def open_run_of(*, tenant: str, dedupe_key: str) -> UUID | None:
    """The id of the tenant's open run with this dedupe_key."""
    rows = Run.objects.filter(tenant=tenant, dedupe_key=dedupe_key, ended_at__isnull=True)
    return rows.values_list("id", flat=True).first()


def runs_page(*, tenant: str, after: UUID | None, limit: int) -> tuple[list[Run], bool]:
    """Up to `limit` runs, newest first, that follow `after`; and whether more follow."""
    rows = Run.objects.select_related("agent_version").filter(tenant=tenant).order_by("-id")
    if after is not None:
        rows = rows.filter(id__lt=after)
    found = list(rows[: limit + 1])
    return found[:limit], len(found) > limit


def events_page(*, run_id: UUID, after: int, limit: int) -> tuple[list[Event], bool]:
    """Up to `limit` events with a `seq` above `after`, oldest first; and whether more follow."""
    rows = Event.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")
    found = list(rows[: limit + 1])
    return found[:limit], len(found) > limit


@dataclass(frozen=True, slots=True)
class Kin:
    """Where a run stands in its tree: the run that asked for it, and the one above them all. Both
    are None for that one itself.
    """

    parent: UUID | None = None
    root: UUID | None = None


ALONE = Kin()


def kin_of(*, run_ids: Iterable[UUID]) -> dict[UUID, Kin]:
    """The place of each of these runs that another one asked for; the others are left out."""
    rows = Run.objects.filter(id__in=set(run_ids), parent__isnull=False)
    found = rows.values_list("id", "parent_id", "root_id")
    return {run_id: Kin(parent, root) for run_id, parent, root in found}


@dataclass(frozen=True, slots=True)
class ActionRow:
    """The part of an action that the view of its run needs."""

    id: UUID
    state: str
    approval_id: UUID | None
    approval_expires_at: datetime | None


@dataclass(slots=True)
class RunFacts:
    """What stands in other tables about one run. `usage` holds sums of tokens."""

    actions: list[ActionRow] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    children: list[UUID] = field(default_factory=list)


def facts_of(*, run_ids: Sequence[UUID], parents: Sequence[UUID] = ()) -> dict[UUID, RunFacts]:
    """The facts of several runs with two queries; a run without any has empty facts. `parents`:
    those of them that have called other agents; a third query then names their children.
    """
    facts: defaultdict[UUID, RunFacts] = defaultdict(RunFacts)
    actions = ActionJournal.objects.filter(run_id__in=run_ids).order_by(
        "run_id", "turn", "ordinal", "edit"
    )
    columns = ("run_id", "id", "state", "approval_id", "approval__expires_at")
    for run_id, *row in actions.values_list(*columns):
        facts[run_id].actions.append(ActionRow(*row))
    calls = Attempt.objects.filter(run_id__in=run_ids, kind=AttemptKind.MODEL, usage__isnull=False)
    for run_id, usage in calls.values_list("run_id", "usage"):
        _add(facts[run_id].usage, usage or {})
    rows = (
        Run.objects.filter(parent_id__in=parents).order_by("id") if parents else Run.objects.none()
    )
    for parent_id, child_id in rows.values_list("parent_id", "id"):
        facts[parent_id].children.append(child_id)
    return {run_id: facts[run_id] for run_id in run_ids}


def _add(total: dict[str, int], usage: dict[str, Any]) -> None:
    for name, tokens in usage.items():
        if isinstance(tokens, int):
            total[name] = total.get(name, 0) + tokens
