"""The first page: what waits, what stands still, and four plots. Every query is bounded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from runs.console import plots, text
from runs.console.pages import may, page
from runs.fleet import Fleet, look
from runs.selectors import database_clock

CAP = 1000
OUTCOMES = (
    ("good", "completed"),
    ("bad", "failed"),
    ("alert", "incomplete"),
    ("off", "cancelled"),
    ("active", "still going"),
)
_KIND = {"COMPLETED": "good", "FAILED": "bad", "INCOMPLETE": "alert", "CANCELLED": "off"}


@dataclass(frozen=True, slots=True)
class Tile:
    """One number with its page. `kind` colours it, `note` says what to know about it."""

    label: str
    count: int
    note: str
    url: str
    kind: str

    @property
    def words(self) -> str:
        return f"{CAP}+" if self.count > CAP else str(self.count)


_TILES = """
    WITH unknown AS (  -- by way of the live runs, of which there is an index
      SELECT a.first_sent_at FROM runs_run r JOIN runs_actionjournal a ON a.run_id = r.id
       WHERE r.ended_at IS NULL AND a.ended_at IS NULL AND a.state IN ('UNKNOWN', 'NEEDS_HUMAN'))
    SELECT
      (SELECT count(*) FROM (SELECT 1 FROM approvals_approval WHERE state = 'PENDING'
         LIMIT %(cap)s) x),
      (SELECT min(expires_at) FROM approvals_approval WHERE state = 'PENDING'),
      (SELECT count(*) FROM (SELECT 1 FROM unknown LIMIT %(cap)s) x),
      (SELECT min(first_sent_at) FROM unknown),
      (SELECT count(*) FROM (SELECT 1 FROM runs_run WHERE ended_at IS NULL
         AND wake_at < clock_timestamp() - interval '60 seconds'
         AND (lease_worker IS NULL OR call_deadline_at < clock_timestamp())
         LIMIT %(cap)s) x),
      (SELECT count(*) FROM (SELECT 1 FROM runs_run WHERE ended_at IS NULL
         AND state = 'SUSPENDED' LIMIT %(cap)s) x),
      (SELECT count(*) FROM (SELECT 1 FROM runs_run WHERE id >= %(day)s AND state = 'FAILED'
         LIMIT %(cap)s) x),
      (SELECT count(*) FROM runs_switch WHERE is_off)
"""


def floor_id(moment: datetime) -> UUID:
    """The least id that a row made at `moment` can have: ids begin with their time."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """`/admin/`: tiles and plots for those who may see runs, else only the links they have."""
    context: dict[str, Any] = {"title": "Console"}
    if may(request, "runs.view_run"):
        now = database_clock()
        fleet = look()
        context |= {"now": now, "tiles": tiles(now), "fleet": fleet, "alarms": alarms(fleet)}
        context["plots"] = [outcomes(now), waits(now), unknowns(now)]
        context["spend"] = spend(now)
    return page(request, "console/home.html", context)


def tiles(now: datetime) -> list[Tile]:
    """What waits for somebody, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_TILES, {"cap": CAP + 1, "day": floor_id(now - timedelta(days=1))})
        asked, first, unknown, oldest, stuck, paused, failed, off = cursor.fetchone()
    soon = f"the first runs out {text.relative(first, now)}" if first else "nothing waits"
    old = f"the oldest since {text.span(now - oldest)}" if oldest else "every outcome is known"
    runs = "/admin/runs/run/"
    return [
        Tile("Waits for a decision", asked, soon, "/admin/review/", "wait"),
        Tile("Unknown outcomes", unknown, old, "/admin/unknown/", "alert"),
        Tile("Due and not taken", stuck, "for more than a minute", "/admin/stuck/", "bad"),
        Tile("Paused runs", paused, "wait for an operator", f"{runs}?status=SUSPENDED", "alert"),
        Tile("Failed in 24 h", failed, "by start", f"{runs}?status=FAILED&age=24", "bad"),
        Tile("Switched off", off, "agents and tools", "/admin/agents/", "off"),
    ]


def alarms(fleet: Fleet) -> list[str]:
    """What holds up everything."""
    found = []
    if not fleet.alive:
        found.append("No worker lives: nothing moves.")
    if fleet.sweep_is_late:
        age = "has never run" if fleet.sweep_age is None else f"ran {fleet.sweep_age:.0f} s ago"
        found.append(f"The sweep {age}: a lost message would not be found.")
    return found


def _rows(sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def outcomes(now: datetime) -> plots.Plot:
    """Runs of the last day by the hour of their start, by what became of them."""
    times = plots.hours_before(now.astimezone(UTC), 24)
    rows = _rows(
        "SELECT date_trunc('hour', created_at AT TIME ZONE 'UTC'), state, count(*) FROM runs_run"
        " WHERE id >= %(first)s GROUP BY 1, 2",
        first=floor_id(times[0]),
    )
    values: dict[datetime, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for at, state, count in rows:
        values[at.replace(tzinfo=UTC)][_KIND.get(state, "active")] += count
    return plots.stacked(
        name="outcomes",
        title="Runs by the hour of their start",
        series=OUTCOMES,
        values=values,
        times=times,
        form="%H:%M",
    )


def waits(now: datetime) -> plots.Plot:
    """How long people took to decide, in the last seven days: median and 95 of 100."""
    rows = _rows(
        "SELECT to_char(created_at AT TIME ZONE 'UTC', 'Mon DD'),"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY took),"
        " percentile_cont(0.95) WITHIN GROUP (ORDER BY took)"
        " FROM (SELECT created_at, extract(epoch FROM decided_at - created_at) / 60 AS took"
        "   FROM approvals_approval WHERE id >= %(first)s AND decided_at IS NOT NULL) d"
        " GROUP BY 1, date_trunc('day', created_at AT TIME ZONE 'UTC')"
        " ORDER BY date_trunc('day', created_at AT TIME ZONE 'UTC')",
        first=floor_id(now - timedelta(days=7)),
    )
    return plots.steps(
        name="waits",
        title="How long a decision took",
        series=(("active", "half"), ("alert", "95 of 100")),
        points=[(label, (float(half), float(most))) for label, half, most in rows],
        words="min",
    )


def unknowns(now: datetime) -> plots.Plot:
    """Writes of the last seven days whose reply was lost: settled by now, or still open."""
    times = plots.days_before(now.astimezone(UTC), 7)
    rows = _rows(
        "SELECT date_trunc('day', t.started_at AT TIME ZONE 'UTC'), a.ended_at IS NULL,"
        " count(DISTINCT a.id) FROM runs_attempt t JOIN runs_actionjournal a ON a.id = t.action_id"
        " WHERE t.id >= %(first)s AND t.kind = 'TOOL' AND a.effect <> 'READ'"
        " AND (t.outcome = 'AMBIGUOUS' OR (t.outcome IS NULL AND t.lost_at IS NOT NULL))"
        " GROUP BY 1, 2",
        first=floor_id(times[0]),
    )
    values: dict[datetime, dict[str, int]] = defaultdict(dict)
    for at, still_open, count in rows:
        values[at.replace(tzinfo=UTC)]["alert" if still_open else "good"] = count
    return plots.stacked(
        name="unknowns",
        title="Replies that were lost, by day",
        series=(("good", "settled by now"), ("alert", "still unknown")),
        values=values,
        times=times,
        form="%b %d",
    )


@dataclass(frozen=True, slots=True)
class Spend:
    """What the runs of one agent spent since midnight (UTC), and what they might have."""

    agent: str
    used: int
    limit: int
    runs: int

    @property
    def share(self) -> int:
        """In thousandths of the limit, at most 1000."""
        return min(1000, self.used * 1000 // self.limit) if self.limit else 0


def spend(now: datetime) -> list[Spend]:
    """By agent, the most expensive first."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = _rows(
        "SELECT v.name, sum(r.cost_used - coalesce((SELECT sum(c.cost_used + c.cost_held)"
        " FROM runs_run c JOIN runs_actionjournal a ON a.id = c.parent_action"
        " WHERE c.parent_id = r.id AND a.ended_at IS NOT NULL), 0))::bigint,"
        " coalesce(sum(coalesce(r.max_cost, (v.spec->'budget'->>'cost')::bigint)), 0)::bigint,"
        " count(*) FROM runs_run r JOIN runs_agentversion v ON v.id = r.agent_version_id"
        " WHERE r.id >= %(first)s GROUP BY 1 ORDER BY 2 DESC LIMIT 12",
        first=floor_id(midnight),
    )
    return [Spend(*row) for row in rows]
