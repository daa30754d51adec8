"""What a reviewer may do beside deciding: edit, escalate, claim; each a use case of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals.errors import DecisionError, InvalidEdit
from runs.approving import EDIT
from runs.claiming import claim_approval, escalate_approval, release_approval
from runs.console import presenters, views
from runs.console.forms import EscalateForm, Field, changed, fields_of
from runs.console.pages import decider_of, need, page
from runs.editing import edit_action
from tools import registry


def edit(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """`/admin/review/<id>/edit/`: other arguments, as a new action with a question of its own."""
    views.may_look(request)
    need(request, EDIT)
    item = presenters.review_item(approval_id=approval_id, decider=decider_of(request))
    spec = registry.get(item.approval.tool) if item else None
    if item is None or spec is None:
        raise Http404("There is no such approval, or its tool is not registered any more.")
    fields = fields_of(spec, item.approval.arguments)
    if request.method != "POST":
        return _edit_page(request, item, fields)
    changes, errors = changed(fields, request.POST)
    problem: DecisionError | None = None
    if errors:
        problem = InvalidEdit("Correct the marked fields.", list(errors.items()))
    else:
        try:
            edited = edit_action(
                approval_id=approval_id,
                params_hash=request.POST.get("params_hash", ""),
                arguments=changes,
                editor=decider_of(request),
                reason=request.POST.get("reason", ""),
            )
        except DecisionError as error:
            problem = error
    if problem is None:
        names = ", ".join(edited.changed)
        messages.success(
            request,
            f"Changed: {names}. Somebody else decides about it once its new impact has been read.",
        )
        return redirect("admin:runs_actionjournal_change", edited.action_id)
    return _edit_page(request, item, _with(fields, request.POST, problem), problem)


def _with(fields: list[Field], sent: Any, problem: DecisionError) -> list[Field]:
    """The fields as they were sent, each with what is wrong with it."""
    wrong = dict(problem.errors) if isinstance(problem, InvalidEdit) else {}
    return [
        replace(
            item,
            value=sent.get(f"arg-{item.name}", item.value),
            error=next((words for at, words in wrong.items() if at.split(".")[0] == item.name), ""),
        )
        for item in fields
    ]


def _edit_page(
    request: HttpRequest,
    item: presenters.ReviewItem,
    fields: list[Field],
    problem: DecisionError | None = None,
) -> HttpResponse:
    context = {
        "title": f"Edit: {item.subject}",
        "item": item,
        "fields": fields,
        "problem": problem,
        "reason": request.POST.get("reason", ""),
        "params_hash": request.POST.get("params_hash", item.approval.params_hash),
    }
    status = problem.status if problem else 200
    return page(request, "console/review_edit.html", context, status=status)


@require_POST
def escalate(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """`/admin/review/<id>/escalate/`: the same question to a higher group."""
    views.may_look(request)
    form = EscalateForm(request.POST)
    if not form.is_valid():
        problem = DecisionError("Say why you pass it on: the next reviewer is shown your reason.")
        return views.item_page(request, approval_id, problem=problem, status=400)
    try:
        after = escalate_approval(
            approval_id=approval_id, by=decider_of(request), **form.cleaned_data
        )
    except DecisionError as error:
        return views.item_page(request, approval_id, problem=error, status=error.status)
    messages.success(request, f"Passed on to {after.role}.")
    return redirect("review:item", after.approval_id)


@require_POST
def claim(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """`/admin/review/<id>/claim/`: say that you look at it, or that you do not any more."""
    views.may_look(request)
    try:
        if request.POST.get("to") == "release":
            release_approval(approval_id=approval_id, by=decider_of(request))
            said = "Given back: others see that nobody looks at it."
        else:
            claim_approval(approval_id=approval_id, by=decider_of(request))
            said = "Yours for 15 minutes. Others see that, and may decide all the same."
    except DecisionError as error:
        return views.item_page(request, approval_id, problem=error, status=error.status)
    messages.success(request, said)
    return redirect("review:item", approval_id)
