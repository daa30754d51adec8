"""The stuck board, and its one safe action for each cause."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from runs import services, stuck, unsticking
from runs.console.pages import VIEW_RUN, may, need, page, person_of
from runs.models import Run
from runs.refusals import Refused

PERMISSIONS = {
    "requeue": "runs.pause_run",
    "release": "runs.pause_run",
    "cancel": "runs.cancel_run",
}
"""Remedy of a cause -> what one needs to use it."""


@require_safe
def board(request: HttpRequest) -> HttpResponse:
    """`/admin/stuck/`: what does not move, by cause."""
    need(request, VIEW_RUN)
    found = stuck.board()
    allowed = {name for name, permission in PERMISSIONS.items() if may(request, permission)}
    context = {"title": "Stuck", "board": found, "now": found.now, "allowed": allowed}
    return page(request, "console/stuck.html", context)


@require_POST
def free(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """`/admin/stuck/<run>/`: the safe action of the cause that the board showed."""
    cause = next((item for item in stuck.CAUSES if item.name == request.POST.get("cause")), None)
    if cause is None or cause.remedy not in PERMISSIONS:
        raise Http404("There is no such cause.")
    need(request, PERMISSIONS[cause.remedy])
    try:
        said = _free(cause, run_id, person_of(request))
    except Run.DoesNotExist:
        raise Http404("There is no run with this id.") from None
    except Refused as error:
        said = f"Nothing was done: {error.detail}"
    messages.info(request, said)
    return redirect("console:stuck")


def _free(cause: stuck.Cause, run_id: UUID, person: str) -> str:
    if not stuck.is_stuck(run_id=run_id, cause=cause.name):
        return "Nothing was done: it moves again, or stands still for another reason."
    why = f"stuck board: {cause.title}"
    if cause.remedy == "requeue":
        taken = unsticking.requeue(run_id=run_id)
        return "Its message was sent again." if taken else "The broker did not take the message."
    if cause.remedy == "release":
        unsticking.release_lease(run_id=run_id, actor=person, reason=why)
        return "The lease was released with a new fence; the run is due."
    services.cancel_run(run_id=run_id, actor=person, reason=f"POISON, by the {why}")
    return "It is being cancelled; what it had sent is settled first."
