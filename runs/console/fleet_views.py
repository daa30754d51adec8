"""Agents, tools and workers: what is declared, how it does, and the switches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from agentcore.lifecycle import STEPS
from approvals.errors import DecisionError
from runs import switches
from runs.agents import AgentDeclaration, all_agents, effect_of
from runs.console.home import floor_id
from runs.console.pages import VIEW_RUN, decider_of, may, need, page
from runs.fleet import look
from runs.models import Worker
from runs.selectors import database_clock
from tools import registry
from tools.guarantees import MEANING, guarantee
from tools.spec import ToolSpec

SWITCH = "runs.pause_agent"


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One agent as declared, with its last day."""

    agent: AgentDeclaration
    model: str
    runs: int
    done: int
    half: int
    most: int
    switch: Any

    @property
    def success(self) -> str:
        return f"{100 * self.done // self.runs} %" if self.runs else "—"


@dataclass(frozen=True, slots=True)
class ToolLine:
    """One tool as declared, with its last seven days, of which the newest 1,000 calls count."""

    spec: ToolSpec
    effect: str
    guarantee: str
    meaning: str
    calls: int
    p95: str
    failed: int
    unknown: int
    by_people: int
    switch: Any


def _switched_off(kind: str) -> dict[str, Any]:
    return {row.name: row for row in switches.all_off() if row.kind == kind}


@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """`/admin/agents/`: every declared agent."""
    need(request, VIEW_RUN)
    now = database_clock()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT v.name, count(*) FILTER (WHERE r.ended_at IS NOT NULL),"
            " count(*) FILTER (WHERE r.state = 'COMPLETED'),"
            " percentile_cont(0.5) WITHIN GROUP (ORDER BY r.cost_used)::bigint,"
            " percentile_cont(0.95) WITHIN GROUP (ORDER BY r.cost_used)::bigint"
            " FROM runs_run r JOIN runs_agentversion v ON v.id = r.agent_version_id"
            " WHERE r.id >= %s GROUP BY 1",
            [floor_id(now - timedelta(days=1))],
        )
        known = {row[0]: row[1:] for row in cursor.fetchall()}
    off = _switched_off("AGENT")
    lines = [_agent_line(item, known, off) for item in all_agents()]
    context = {"title": "Agents", "lines": lines, "now": now, "may_switch": may(request, SWITCH)}
    return page(request, "console/agents.html", context)


def _agent_line(item: AgentDeclaration, known: dict[str, Any], off: dict[str, Any]) -> AgentLine:
    runs, done, half, most = known.get(item.name, (0, 0, 0, 0))
    model = item.model or settings.AGENTCORE_OPTIONS.model
    return AgentLine(item, model, runs, done, half or 0, most or 0, off.get(item.name))


_TOOLS = """
    SELECT a.tool, count(*),
      percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM t.ended_at - t.started_at)),
      count(*) FILTER (WHERE a.state = 'FAILED'),
      count(*) FILTER (WHERE t.outcome = 'AMBIGUOUS' OR t.lost_at IS NOT NULL),
      count(*) FILTER (WHERE EXISTS (SELECT 1 FROM runs_reconciliation c WHERE c.action_id = a.id))
    FROM (SELECT * FROM runs_attempt WHERE id >= %s AND kind = 'TOOL'
          ORDER BY id DESC LIMIT 1000) t
    JOIN runs_actionjournal a ON a.id = t.action_id GROUP BY 1
"""


@require_safe
def tools(request: HttpRequest) -> HttpResponse:
    """`/admin/tools/`: every declared tool."""
    need(request, VIEW_RUN)
    now = database_clock()
    with connection.cursor() as cursor:
        cursor.execute(_TOOLS, [floor_id(now - timedelta(days=7))])
        known = {row[0]: row[1:] for row in cursor.fetchall()}
    off = _switched_off("TOOL")
    context = {
        "title": "Tools",
        "lines": [_tool_line(spec, known, off) for spec in registry.all_tools()],
        "rejected": registry.rejected(),
        "now": now,
        "may_switch": may(request, SWITCH),
    }
    return page(request, "console/tools.html", context)


def _tool_line(spec: ToolSpec, known: dict[str, Any], off: dict[str, Any]) -> ToolLine:
    calls, p95, failed, unknown, by_people = known.get(spec.name, (0, None, 0, 0, 0))
    kind = guarantee(spec)
    shown = f"{float(p95):.2f} s" if p95 is not None else "—"
    return ToolLine(
        spec=spec,
        effect=effect_of(spec),
        guarantee=kind,
        meaning=MEANING[kind],
        calls=calls,
        p95=shown,
        failed=failed,
        unknown=unknown,
        by_people=by_people,
        switch=off.get(spec.name),
    )


@require_POST
def switch(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """`/admin/switch/<agent|tool>/<name>/`: off or on, with a reason."""
    if kind not in ("agent", "tool"):
        raise Http404("Only agents and tools have switches.")
    need(request, SWITCH)
    turn = switches.switch_off if request.POST.get("to") == "off" else switches.switch_on
    try:
        turn(
            kind=kind.upper(),
            name=name,
            by=decider_of(request),
            reason=request.POST.get("reason", ""),
        )
    except DecisionError as error:
        messages.error(request, f"Nothing was changed: {error.message}")
    else:
        messages.success(
            request, f"{name} is {'off' if request.POST.get('to') == 'off' else 'on'}."
        )
    return redirect("console:agents" if kind == "agent" else "console:tools")


@require_safe
def workers(request: HttpRequest) -> HttpResponse:
    """`/admin/workers/`: processes, their queues and beats, and the sweep."""
    need(request, VIEW_RUN)
    now = database_clock()
    dead_after = timedelta(seconds=settings.AGENTCORE_OPTIONS.worker_dead_after)
    rows = list(Worker.objects.order_by("-beat_at", "-started_at")[:100])
    held = _leases()
    lines = [
        {"worker": row, "alive": row.beat_at > now - dead_after, "leases": held.get(row.pk, 0)}
        for row in rows
    ]
    fleet = look()
    context = {
        "title": "Workers and sweeps",
        "lines": lines,
        "fleet": fleet,
        "serving": [(step, fleet.serving[step]) for step in (*STEPS, "isolate")],
        "now": now,
        "options": settings.AGENTCORE_OPTIONS,
    }
    return page(request, "console/workers.html", context)


def _leases() -> dict[Any, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lease_worker, count(*) FROM runs_run"
            " WHERE ended_at IS NULL AND lease_worker IS NOT NULL GROUP BY 1"
        )
        return dict(cursor.fetchall())


@require_safe
def keys(request: HttpRequest) -> HttpResponse:
    """`/admin/help/`: keys, shapes and words."""
    return page(request, "console/help.html", {"title": "Keys and signs"})
