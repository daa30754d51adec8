"""The pages about unknown writes: the board, and one write with its verdicts.

GET changes nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from agentcore.reconciling import Verdict
from runs.console import unknown_presenters as presenters
from runs.console.pages import decider_of, may, need, page
from runs.console.unknown_forms import GROUNDS, PROBE_IN, VerdictForm
from runs.reconciliations import PERMISSION, Recorded
from runs.selectors import database_clock
from runs.services import ask_probe, record_verdict
from runs.verdict_errors import VerdictError

BOARD_LIMIT = 100


@require_safe
def board(request: HttpRequest) -> HttpResponse:
    """`/admin/unknown/`: every write whose fate is open."""
    _may_look(request)
    rows = presenters.board_rows(limit=BOARD_LIMIT + 1)
    context = {
        "title": "Unknown outcomes",
        "rows": rows[:BOARD_LIMIT],
        "more": len(rows) > BOARD_LIMIT,
        "now": database_clock(),
        "may_probe": _may_judge(request),
    }
    return page(request, "console/unknown_board.html", context)


def item(request: HttpRequest, action_id: UUID) -> HttpResponse:
    """`/admin/unknown/<id>/`: one write; POST gives a verdict through `services.record_verdict`."""
    _may_look(request)
    if request.method == "POST":
        return _record(request, action_id)
    return _item_page(request, action_id)


@require_POST
def probe(request: HttpRequest, action_id: UUID) -> HttpResponse:
    """`/admin/unknown/<id>/probe/`: ask the downstream now."""
    _may_look(request)
    try:
        ask_probe(action_id=action_id, person=decider_of(request))
    except VerdictError as error:
        return _item_page(request, action_id, problem=error, status=error.status)
    messages.success(request, "The downstream is being asked. Load the page again for its answer.")
    return redirect("unknown:item", action_id=action_id)


def _record(request: HttpRequest, action_id: UUID) -> HttpResponse:
    form = VerdictForm(request.POST)
    if not form.is_valid():
        problem = VerdictError("form_incomplete", _faults(form), status=400)
        return _item_page(request, action_id, problem=problem, status=400, given=request.POST)
    data = form.cleaned_data
    try:
        recorded = record_verdict(
            action_id=action_id,
            action_revision=data["action_revision"],
            verdict=Verdict(data["verdict"]),
            person=decider_of(request),
            evidence_text=data["evidence"],
            evidence_link=data["evidence_link"],
            **form.facts,
        )
    except VerdictError as error:
        seen = data["seen"] if error.status == 409 else None
        return _item_page(
            request, action_id, problem=error, status=error.status, given=request.POST, seen=seen
        )
    messages.success(request, _answer(recorded))
    return redirect("unknown:item", action_id=action_id)


def _faults(form: VerdictForm) -> str:
    faults = [
        f"{name.replace('_', ' ')}: {fault}"
        for name, errors in form.errors.items()
        for fault in errors
    ]
    return "Nothing was recorded. " + " ".join(faults)


ANSWERS = {
    Verdict.EFFECT_EXISTS: "Recorded: it happened. The run goes on with this result.",
    Verdict.EFFECT_DOES_NOT_EXIST: "Recorded: it did not happen and cannot still happen. "
    "The key is free.",
    Verdict.RESEND_SAME_KEY: "Granted by two people. The same key and bytes are sent once more.",
    Verdict.ABANDON: "Recorded: given up. Its fate stays unknown, and its key stays taken.",
    Verdict.STILL_UNKNOWN: "Recorded: still unknown. It is looked at again at the time you chose.",
}


def _answer(recorded: Recorded) -> str:
    if recorded.waits_for_second:
        said = "You asked for a resend. Nothing is sent before a second person agrees."
    else:
        said = ANSWERS[recorded.verdict]
    return f"You had said so already; it was counted once. {said}" if recorded.already else said


def _item_page(
    request: HttpRequest,
    action_id: UUID,
    *,
    problem: VerdictError | None = None,
    status: int = 200,
    given: Any = None,
    seen: int | None = None,
) -> HttpResponse:
    found = presenters.unknown_item(action_id=action_id, person=decider_of(request))
    if found is None:
        raise Http404("There is no write with this id.")
    context = {
        "title": f"Unknown outcome: {found.subject}",
        "item": found,
        "problem": problem,
        "changes": presenters.changes_since(action=found.action, seq=seen) if seen else [],
        "given": given or {},
        "grounds": GROUNDS.items(),
        "probe_in": PROBE_IN.items(),
        "may_probe": _may_judge(request),
    }
    return page(request, "console/unknown_item.html", context, status=status)


def _may_judge(request: HttpRequest) -> bool:
    return may(request, PERMISSION)


def _may_look(request: HttpRequest) -> None:
    need(request, PERMISSION, "runs.view_actionjournal")
