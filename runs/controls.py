"""What operators have set (switches, thresholds), read so that no call starts on older settings.

A snapshot is named by a stamp; each change makes a new one. Deciding reads a snapshot, and the
transaction that starts a call compares the stamp under a shared advisory lock that a change takes
alone: after the commit of a change nothing starts that was decided before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import connection

from agentcore.thresholds import Threshold
from runs import sql
from runs.at_once import Joining
from runs.control_models import PolicyThreshold, Switch
from runs.transitions import StaleDraft

LOCK_KEY = 0x6167_6374
AGENT, TOOL = "AGENT", "TOOL"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The settings of one moment. `off`: (kind, name) -> the operator's reason."""

    stamp: UUID | None = None
    off: dict[tuple[str, str], str] = field(default_factory=dict)
    thresholds: dict[str, tuple[tuple[str, Threshold], ...]] = field(default_factory=dict)

    def off_reason(self, kind: str, name: str) -> str:
        """Why it is switched off; "" while it is on."""
        return self.off.get((kind, name), "")

    def thresholds_of(self, *, tenant: str, tool: str) -> tuple[Threshold, ...]:
        """The thresholds for one tool of one tenant."""
        return tuple(rule for of, rule in self.thresholds.get(tool, ()) if of in ("", tenant))


_newest = Snapshot()


def read() -> Snapshot:
    """The settings now: one query while they have not changed."""
    return at(_stamp())


def at(stamp: UUID | None) -> Snapshot:
    """The settings with this stamp, just read: no query while they have not changed."""
    global _newest  # noqa: PLW0603  (a cache; whoever is late only reads once more)
    known = _newest
    if known.stamp != stamp:
        known = _newest = Snapshot(stamp, _off(), _thresholds())
    return known


def _stamp() -> UUID | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT stamp FROM runs_controls WHERE id = 1")
        row = cursor.fetchone()
    return row[0] if row else None


def _off() -> dict[tuple[str, str], str]:
    rows = Switch.objects.filter(is_off=True)
    return {(row.kind, row.name): row.reason for row in rows}


def _thresholds() -> dict[str, tuple[tuple[str, Threshold], ...]]:
    found: dict[str, tuple[tuple[str, Threshold], ...]] = {}
    for row in PolicyThreshold.objects.filter(retired_at=None).order_by("id"):
        found[row.tool] = (*found.get(row.tool, ()), (row.tenant, threshold_of(row)))
    return found


def threshold_of(row: PolicyThreshold) -> Threshold:
    """A row as the rule that the policy evaluates."""
    return Threshold(
        ref=str(row.pk),
        argument=row.argument,
        op=row.op,
        value=row.value,
        verdict="DENY" if row.verdict == "DENY" else "ASK",
        role=row.role,
        quorum=row.quorum,
        ttl=None if row.ttl_seconds is None else timedelta(seconds=row.ttl_seconds),
        reason=row.reason,
    )


class Guard(Joining):
    """In the transaction that starts something: the settings are those it was decided with."""

    def __init__(self, stamp: UUID | None) -> None:
        self.stamp = stamp

    def join(self, writes: sql.Together) -> None:
        # A statement of its own: the one after it sees what was committed before the lock.
        writes.before("SELECT pg_advisory_xact_lock_shared(%s)", [LOCK_KEY])
        query = (
            "SELECT 1 WHERE (SELECT stamp FROM runs_controls WHERE id = 1)"
            " IS NOT DISTINCT FROM %s::uuid"
        )
        writes.check(query, [self.stamp])

    def __call__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [LOCK_KEY])
        if _stamp() != self.stamp:
            raise StaleDraft("a switch or a threshold has changed")


def change() -> None:
    """Announce a change, in its transaction and before its writes; waits for starts under way."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_KEY])
        cursor.execute(
            "INSERT INTO runs_controls (id, stamp) VALUES (1, gen_random_uuid())"
            " ON CONFLICT (id) DO UPDATE SET stamp = EXCLUDED.stamp"
        )
