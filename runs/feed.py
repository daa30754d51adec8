"""The feed of all events of a tenant, in the order of time, without a gap.

Transactions commit in another order than they began. So the feed stops before the oldest one that
is still open: an event that is not there yet can only appear behind the end of a page, never
inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from runs.models import Event
from runs.starting import Caller

KEPT = timedelta(days=30)
"""How far back the feed reaches."""

_HORIZON = """
    SELECT clock_timestamp(), coalesce(min(xact_start), clock_timestamp()) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend' AND xact_start IS NOT NULL
      AND (backend_xid IS NOT NULL OR xact_start > clock_timestamp() - interval '2 minutes')
"""
_WINDOWS = (timedelta(minutes=1), timedelta(minutes=30), timedelta(hours=6), KEPT)
"""Searched one after the other: near the end of the feed the first holds a page."""


class CursorTooOld(Exception):  # noqa: N818  (an answer, not a fault)
    """The event that a page should follow is not in the feed any more, or never was."""


def feed_page(
    *, caller: Caller, after: tuple[UUID, int] | None, types: Sequence[str], limit: int
) -> tuple[list[Event], bool]:
    """Up to `limit` events that follow the event `after` = (run, seq), oldest first; and whether
    more follow.

    Without `after` the feed begins 30 days back. Raises `CursorTooOld`.
    """
    clock, horizon = _clocks()
    start: tuple[datetime, int] = (clock - KEPT, 0)
    if after is not None:
        start = _position(caller, after)
        if start[0] < clock - KEPT:
            raise CursorTooOld
    found: list[Event] = []
    for window in _WINDOWS:
        until = min(start[0] + window, horizon)
        found = _between(caller, start, until, types, limit + 1)
        if len(found) > limit or until >= horizon:
            break
    return found[:limit], len(found) > limit


def _clocks() -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute(_HORIZON)
        clock, horizon = cursor.fetchone()
    return clock, horizon


def _position(caller: Caller, after: tuple[UUID, int]) -> tuple[datetime, int]:
    run_id, seq = after
    rows = Event.objects.filter(run_id=run_id, seq=seq, run__tenant=caller.tenant)
    found = rows.values_list("created_at", "id").first()
    if found is None:
        raise CursorTooOld
    return found


def _between(
    caller: Caller,
    start: tuple[datetime, int],
    until: datetime,
    types: Sequence[str],
    limit: int,
) -> list[Event]:
    rows = Event.objects.filter(
        run__tenant=caller.tenant, created_at__gte=start[0], created_at__lt=until
    )
    if caller.agents:
        rows = rows.filter(run__agent_version__name__in=caller.agents)
    if types:
        rows = rows.filter(type__in=types)
    return list(
        rows.extra(  # a row comparison, which the ORM cannot say; the values are bound
            where=["(runs_event.created_at, runs_event.id) > (%s, %s)"], params=list(start)
        ).order_by("created_at", "id")[:limit]
    )
