"""How often one tool may be called by a run together with the other runs of its tree.

Two caps: `max_calls_per_run` of the tool counts the calls of the whole tree, and `tool_calls` in
the budget of a run above counts what that run has proposed and the runs below it have begun.
Siblings start side by side, so the transaction that starts a call takes a lock of the tree and
counts once more. A run without parent and children counts its own rows and pays nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from runs import lineage, sql
from runs.at_once import Joining
from runs.models import ActionJournal
from runs.steps.order import DRY_RUN
from runs.transitions import Draft, StaleDraft
from runs.view import View
from tools.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class Cap:
    """`most` calls by the run `top` and all runs below it. Of the run `asks` each proposal counts,
    of the others what has begun.
    """

    most: int
    top: UUID
    asks: UUID | None
    said: str


def caps_of(view: View, spec: ToolSpec) -> list[Cap]:
    """What bounds the calls of a tool by this run; nothing for most tools."""
    found: list[Cap] = []
    most = spec.max_calls_per_run
    if most is not None:
        where = "one run" if is_alone(view) else "one run and the runs of its agents"
        found.append(Cap(most, view.run.root_id or view.run.id, None, f"{most} calls in {where}"))
    for run in view.above:
        budget = run.agent_version.spec.get("budget") or {}
        limit = (budget.get("tool_calls") or {}).get(spec.name)
        if limit is not None:
            said = f"{limit} calls for {run.agent_version.name} and the agents that it calls"
            found.append(Cap(limit, run.id, run.id, said))
    return found


def is_alone(view: View) -> bool:
    """Whether the run has no parent, and has started no child."""
    return view.run.root_id is None and not view.run.handoffs_lent


def reached(view: View, draft: Draft, action: ActionJournal, spec: ToolSpec) -> str:
    """Which cap lets `action` begin no more, in words; "" for none. Then the transaction of `draft`
    asks once more, where others may begin calls at the same moment.
    """
    found = caps_of(view, spec)
    own = _own(view, action) if found else 0
    for cap in found:
        others = 0 if is_alone(view) else _count(cap, action)
        if own + others >= cap.most:
            return f"at most {cap.said}"
    if found and not is_alone(view):
        left = [(cap, cap.most - own - 1) for cap in found]
        draft.also(_Guard(view.run.root_id or view.run.id, action, left))
    return ""


def begun_below(view: View, tools: Collection[str]) -> Counter[str]:
    """Calls of `tools` that the runs below this one have begun, by tool."""
    runs = lineage.below(view.run) if tools else []
    if not runs:
        return Counter()
    rows = ActionJournal.objects.filter(run_id__in=runs, tool__in=tools)
    begun = rows.filter(Q(first_sent_at__isnull=False) | Q(reason=DRY_RUN))
    return Counter(begun.values_list("tool", flat=True))


def _own(view: View, action: ActionJournal) -> int:
    """The other calls of its tool that this run has begun, as this drive knows them."""
    same = [row for row in view.actions if row.tool == action.tool and row.id != action.id]
    return sum(row.first_sent_at is not None or row.reason == DRY_RUN for row in same)


# --- in the transaction --------------------------------------------------------------------

_COUNT = f"""
    SELECT count(*) FROM runs_actionjournal a
    WHERE a.tool = %s AND a.run_id <> %s AND a.run_id IN ({lineage.TREE})
      AND CASE WHEN a.run_id = %s::uuid THEN a.edit = 0
          ELSE a.first_sent_at IS NOT NULL OR a.reason = '{DRY_RUN}' END
"""  # noqa: S608  (a word of ours)


def _values(cap: Cap, action: ActionJournal) -> list[Any]:
    return [action.tool, action.run_id, cap.top, cap.asks]


def _count(cap: Cap, action: ActionJournal) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, _values(cap, action))
        found: int = cursor.fetchone()[0]
    return found


@dataclass(frozen=True, slots=True)
class _Guard(Joining):
    """The calls of the other runs are still as few as they may be. `left`: how many, for each cap.

    The lock is taken by every start in the tree under a cap, and held to its commit; the count
    after it sees what those before it have begun.
    """

    root: UUID
    action: ActionJournal
    left: list[tuple[Cap, int]]

    def join(self, writes: sql.Together) -> None:
        writes.before("SELECT pg_advisory_xact_lock(%s)", [_lock_key(self.root)])
        for cap, left in self.left:
            query = f"SELECT 1 WHERE ({_COUNT}) <= %s"
            writes.check(query, [*_values(cap, self.action), left])

    def __call__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_key(self.root)])
        for cap, left in self.left:
            if _count(cap, self.action) > left:
                raise StaleDraft(f"another run of the tree has called {self.action.tool} since")


def _lock_key(root: UUID) -> int:
    digest = blake2b(f"calls:{root.hex}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
