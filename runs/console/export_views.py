"""What leaves the console as a file, what the model was shown, and whether the chain holds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from agentcore.context import ContextError
from approvals.models import Approval
from runs import contexts
from runs.console import lists, text
from runs.console.admin_records import validation_words
from runs.console.pages import VIEW_RUN, need, page
from runs.console.redaction import redacted, redactor_of
from runs.console.run_presenters import actions_of
from runs.models import Event, Run, Turn

MOST_ROWS = 10_000
"""Rows of one file; the filters make smaller ones."""
_FORMULA = (*"=+-@\t\n|%", *"\uff1d\uff0b\uff0d\uff20")
"""What a spreadsheet may take for the begin of a formula, full-width forms among them."""
_COLUMNS = (
    "approval", "asked_at", "decided_at", "seconds_to_decide", "state", "tool", "tool_version",
    "resource", "requested_by", "decisions", "reasons", "rule", "policy_version", "role",
    "required", "params_hash", "arguments", "at_execution", "run", "action",
)  # fmt: skip


@require_safe
def approvals_csv(request: HttpRequest) -> HttpResponse:
    """`/admin/approvals.csv`: the approvals that fit the filters of the list, for auditors."""
    need(request, "approvals.view_approval")
    try:
        rows = lists.narrowed(request, admin.site.get_model_admin(Approval))
        found = lists.limited(rows.order_by("-pk")[:MOST_ROWS])
    except lists.BadQuestion as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    writer.writerows([_cell(value) for value in _row(approval)] for approval in found)
    response = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="approvals.csv"'
    return response


def _row(row: Approval) -> list[Any]:
    votes = list(row.votes.all())
    took = (row.decided_at - row.created_at).total_seconds() if row.decided_at else ""
    return [
        row.pk,
        row.created_at.isoformat(),
        row.decided_at.isoformat() if row.decided_at else "",
        took,
        row.state,
        row.tool,
        row.tool_version,
        row.resource_key,
        row.requester,
        "; ".join(f"{vote.voter} {vote.decision}" for vote in votes),
        "; ".join(vote.reason for vote in votes if vote.reason),
        row.rule,
        row.policy_version,
        row.role,
        row.required_count,
        row.params_hash,
        json.dumps(redacted(row.tool, row.arguments), ensure_ascii=False, sort_keys=True),
        validation_words(row),
        row.run_id,
        row.action_id,
    ]


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula; nothing invisible in it."""
    shown = text.visible(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


@require_safe
def events(request: HttpRequest, run_id: UUID) -> StreamingHttpResponse:
    """`/admin/runs/run/<id>/events.ndjson`: every event of a run, one JSON a line."""
    need(request, VIEW_RUN)
    if not Run.objects.filter(pk=run_id).exists():
        raise Http404("There is no run with this id.")
    redactor = redactor_of(actions_of(run_id))
    rows = Event.objects.filter(run_id=run_id).order_by("seq")[:MOST_ROWS]

    def lines() -> Iterator[str]:
        for row in rows:
            shown = {
                "run": str(row.run_id),
                "seq": row.seq,
                "type": row.type,
                "actor": row.actor,
                "revision": [row.revision_before, row.revision_after],
                "at": row.created_at.isoformat(),
                "data": redactor.json(row.data),
                "hash": row.hash,
            }
            yield json.dumps(shown, ensure_ascii=True) + "\n"

    response = StreamingHttpResponse(lines(), content_type="application/x-ndjson")
    name = f"events-{run_id}.ndjson"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
def context(request: HttpRequest, run_id: UUID, turn: int) -> HttpResponse:
    """`/admin/runs/run/<id>/turn/<n>/`: what the model was shown, built again from the rows."""
    need(request, VIEW_RUN)
    try:
        rebuilt = contexts.rebuild(run_id=run_id, turn=turn)
        problem = ""
    except (Turn.DoesNotExist, Run.DoesNotExist, IndexError):
        raise Http404("There is no such turn.") from None
    except (ContextError, KeyError, TypeError, ValueError) as error:
        rebuilt, problem = None, str(error) or type(error).__name__
    redactor = redactor_of(actions_of(run_id))
    body = redactor.json(json.loads(rebuilt.data)) if rebuilt else {}
    items = body.pop("input", body.pop("messages", []))
    shown = {
        "title": f"Turn {turn} of run …{str(run_id)[-8:]}",
        "run_id": run_id,
        "turn": turn,
        "rebuilt": rebuilt,
        "problem": problem,
        "size": len(rebuilt.data) if rebuilt else 0,
        "request_parts": sorted(body.items()),
        "items": [{"kind": _kind(item), "item": item} for item in items],
    }
    return page(request, "console/context.html", shown)


def _kind(item: Any) -> str:
    if not isinstance(item, dict):
        return "text"
    return str(item.get("type") or item.get("role") or "item")


@require_POST
def verify(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """`/admin/runs/run/<id>/verify/`: compute the hash chain of a run again."""
    need(request, "runs.view_event", VIEW_RUN)
    from runs import audit

    broken = audit.verify_run(run_id)
    if broken is None:
        messages.success(request, "The chain of its events holds, from the first to the last.")
    else:
        messages.error(
            request, f"The chain of its events is broken: {text.short(broken.text, 200)}"
        )
    return redirect(f"/admin/runs/run/{run_id}/change/?tab=timeline")
