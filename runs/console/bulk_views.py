"""Approving several alike questions at once: chosen by hand, each impact listed, counted by hand.

The set is frozen on the confirming page: ids with the hashes that were shown. Each one is decided
by the same use case as a single question, so that one refused among them stops no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals import selectors as approvals
from approvals.errors import DecisionError
from approvals.models import Approval
from runs import services
from runs.approving import PERMISSION
from runs.console import presenters
from runs.console.pages import decider_of, need, page
from runs.models import ActionJournal

MOST = 25


@dataclass(frozen=True, slots=True)
class Chosen:
    """One question of the set, with its impact."""

    approval: Approval
    impact: str


@require_POST
def bulk(request: HttpRequest) -> HttpResponse:
    """`/admin/review/bulk/`: first the list with each impact, then, with the typed count, all."""
    need(request, PERMISSION)
    chosen = _chosen(request.POST.getlist("ids"))
    refused = refusal(chosen)
    if refused:
        messages.error(request, f"Nothing was decided: {refused}")
        return redirect("review:queue")
    typed = request.POST.get("count")
    if typed is None:
        return _confirm(request, chosen)
    if typed.strip() != str(len(chosen)):
        problem = f"Type {len(chosen)} to approve them. Nothing was decided."
        return _confirm(request, chosen, problem=problem, status=400)
    _decide(request, chosen)
    return redirect("review:queue")


def _chosen(ids: list[str]) -> list[Chosen]:
    found = []
    for text in ids[: MOST + 1]:
        try:
            approval = approvals.find(approval_id=UUID(text))
        except ValueError:
            continue
        if approval is not None:
            found.append(Chosen(approval, presenters.one_line(approval)))
    return found


def refusal(chosen: list[Chosen]) -> str:
    """Why this set cannot be approved at once; empty when it can."""
    if not chosen:
        return "choose some questions first."
    if len(chosen) > MOST:
        return f"at most {MOST} at once."
    rows = [item.approval for item in chosen]
    if len({(row.tool, row.tool_version, row.rule, row.policy_version) for row in rows}) > 1:
        return "they must be of one tool, asked for by one rule."
    ids = [row.action_id for row in rows]
    hard = ActionJournal.objects.filter(pk__in=ids, effect="WRITE_IRREVERSIBLE").exists()
    if hard or any(row.high_risk for row in rows):
        return "what is high risk or cannot be undone is decided one by one."
    return ""


def _confirm(
    request: HttpRequest, chosen: list[Chosen], *, problem: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "title": f"Approve {len(chosen)} actions",
        "chosen": chosen,
        "problem": problem,
        "tool": chosen[0].approval.tool,
        "rule": chosen[0].approval.rule,
    }
    return page(request, "console/review_bulk.html", context, status=status)


def _decide(request: HttpRequest, chosen: list[Chosen]) -> None:
    sent: Any = request.POST
    done, refused = 0, []
    for item in chosen:
        try:
            services.decide_approval(
                approval_id=item.approval.pk,
                params_hash=sent.get(f"hash-{item.approval.pk}", ""),
                decision="APPROVE",
                decider=decider_of(request),
                reason="",
            )
            done += 1
        except DecisionError as error:
            refused.append(f"{presenters.subject_of(item.approval)}: {error.message}")
    messages.success(request, f"Approved: {done} of {len(chosen)}.")
    for text in refused:
        messages.error(request, f"Not approved: {text}")
