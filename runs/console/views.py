"""The review pages: the queue, and one item with its decisions. GET changes nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from approvals.errors import DecisionError
from runs.approving import PERMISSION
from runs.claiming import next_role
from runs.console import presenters
from runs.console.forms import CHOICES, DecisionForm
from runs.console.pages import decider_of, need, page
from runs.selectors import database_clock
from runs.services import decide_approval

QUEUE_LIMIT = 100


@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """`/admin/review/`: every open question, the one that runs out first on top."""
    may_look(request)
    now = database_clock()
    rows = presenters.queue_rows(limit=QUEUE_LIMIT + 1, now=now)
    context = {
        "title": "Review queue",
        "rows": rows[:QUEUE_LIMIT],
        "more": len(rows) > QUEUE_LIMIT,
        "now": now,
    }
    return page(request, "console/review_queue.html", context)


def item(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """`/admin/review/<id>/`: one question; POST decides it through `services.decide_approval`."""
    may_look(request)
    if request.method == "POST":
        return _decide(request, approval_id)
    return item_page(request, approval_id)


def _decide(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    form = DecisionForm(request.POST)
    if not form.is_valid() or form.cleaned_data["approval_id"] != approval_id:
        problem = DecisionError(
            "The form was not complete. Nothing was decided; read and try again."
        )
        return item_page(request, approval_id, problem=problem, status=400)
    data = form.cleaned_data
    try:
        decision = decide_approval(
            approval_id=approval_id,
            params_hash=data["params_hash"],
            decision=data["decision"],
            decider=decider_of(request),
            reason=form.said,
        )
    except DecisionError as error:
        return item_page(
            request, approval_id, problem=error, status=error.status, reason=data["reason"]
        )
    messages.success(request, _answer(decision.already, data["decision"], decision))
    return redirect("review:item", approval_id=approval_id)


def _answer(already: bool, choice: str, decision: Any) -> str:
    word = {"APPROVE": "approved", "REJECT": "rejected"}.get(choice, "answered")
    if already:
        return f"You had already {word} this. It was counted once."
    if choice == "RESPOND":
        return "Answered. The model is given your words; nothing was sent."
    if choice == "REJECT":
        return "Rejected. The model is told your reason; nothing was sent."
    if decision.votes < decision.required:
        missing = decision.required - decision.votes
        return f"Your approval is recorded. {missing} more needed before anything is sent."
    return "Approved. The run goes on with exactly these arguments."


def item_page(
    request: HttpRequest,
    approval_id: UUID,
    *,
    problem: DecisionError | None = None,
    status: int = 200,
    reason: str = "",
) -> HttpResponse:
    found = presenters.review_item(approval_id=approval_id, decider=decider_of(request))
    if found is None:
        raise Http404("There is no approval with this id.")
    context = {
        "title": f"Review: {found.subject}",
        "item": found,
        "problem": problem,
        "reason": reason,
        "choices": CHOICES.items(),
        "next_role": next_role(found.approval.role),
    }
    return page(request, "console/review_item.html", context, status=status)


def may_look(request: HttpRequest) -> None:
    need(request, PERMISSION, "approvals.view_approval")
