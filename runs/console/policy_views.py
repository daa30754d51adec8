"""What operators add to the policy: thresholds that make it stricter, and standing approvals."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from agentcore.policy import LADDER
from approvals.errors import DecisionError, InvalidRule
from approvals.models import StandingApproval
from runs.console.pages import VIEW_RUN, decider_of, may, need, page
from runs.control_models import PolicyThreshold
from runs.selectors import database_clock
from runs.standing import grant_standing, revoke_standing
from runs.thresholds import PERMISSION, add_threshold, retire_threshold
from tools import registry

STANDING = "approvals.decide_high_risk"
OPS = ("always", ">", ">=", "<", "<=", "=", "!=", "in", "not in")
SHOWN = 100
LONGEST = timedelta(days=3650)
"""Of a threshold's time to answer, and of a standing approval."""


@require_safe
def policy(request: HttpRequest) -> HttpResponse:
    """`/admin/policy/`: what stands beside the rules in code."""
    need(request, VIEW_RUN)
    return _page(request)


def _page(
    request: HttpRequest, *, problem: DecisionError | None = None, given: Any = None
) -> HttpResponse:
    thresholds = PolicyThreshold.objects.order_by("-created_at")
    standing = StandingApproval.objects.order_by("-created_at")
    context = {
        "title": "Policy",
        "live": list(thresholds.filter(retired_at=None)[:SHOWN]),
        "retired": list(thresholds.exclude(retired_at=None)[:20]),
        "standing": list(standing[:SHOWN]),
        "tools": [spec.name for spec in registry.all_tools() if spec.effect.is_write],
        "ops": OPS,
        "roles": LADDER,
        "may_set": may(request, PERMISSION),
        "may_stand": may(request, STANDING),
        "now": database_clock(),
        "problem": problem,
        "given": given or {},
    }
    return page(request, "console/policy.html", context, status=problem.status if problem else 200)


@require_POST
def add(request: HttpRequest) -> HttpResponse:
    """`/admin/policy/add/`: a threshold, from now on."""
    need(request, PERMISSION)
    sent = request.POST
    try:
        add_threshold(
            by=decider_of(request),
            tool=sent.get("tool", ""),
            argument=sent.get("argument", "").strip(),
            op=sent.get("op", "always"),
            value=_value(sent.get("value", "")),
            verdict=sent.get("verdict", "ASK"),
            role=sent.get("role", ""),
            quorum=_number(sent.get("quorum", "1"), "The number of approvals"),
            ttl=_hours(sent.get("hours", "")),
            reason=sent.get("reason", ""),
        )
    except DecisionError as error:
        return _page(request, problem=error, given=sent)
    messages.success(request, "The policy is stricter from now on.")
    return redirect("console:policy")


@require_POST
def retire(request: HttpRequest, threshold_id: UUID) -> HttpResponse:
    """`/admin/policy/<id>/retire/`: a threshold that no longer applies."""
    need(request, PERMISSION)
    return _end(
        request, lambda by, why: retire_threshold(threshold_id=threshold_id, by=by, reason=why)
    )


@require_POST
def stand(request: HttpRequest) -> HttpResponse:
    """`/admin/policy/standing/`: an approval given beforehand, within bounds, for a time."""
    need(request, STANDING)
    sent = request.POST
    try:
        hours = _hours(sent.get("hours", ""))
        if hours is None:
            raise InvalidRule("Say for how many hours it holds.")
        argument, uses = sent.get("argument", "").strip(), sent.get("max_uses", "").strip()
        bound = [(argument, sent.get("op", ""), _value(sent.get("value", "")))] if argument else []
        grant_standing(
            by=decider_of(request),
            tenant=sent.get("tenant", "").strip(),
            tool=sent.get("tool", ""),
            agent=sent.get("agent", "").strip(),
            principal=sent.get("principal", "").strip(),
            conditions=bound,
            max_uses=_number(uses, "The number of uses") if uses else None,
            expires_at=database_clock() + hours,
            reason=sent.get("reason", ""),
        )
    except DecisionError as error:
        return _page(request, problem=error, given=sent)
    messages.success(request, "It stands until its time, its uses or you end it.")
    return redirect("console:policy")


@require_POST
def revoke(request: HttpRequest, standing_id: UUID) -> HttpResponse:
    """`/admin/policy/standing/<id>/revoke/`: ends a standing approval at once."""
    need(request, STANDING)
    return _end(
        request, lambda by, why: revoke_standing(standing_id=standing_id, by=by, reason=why)
    )


def _end(request: HttpRequest, act: Any) -> HttpResponse:
    try:
        act(decider_of(request), request.POST.get("reason", ""))
    except DecisionError as error:
        if error.status == 404:
            raise Http404(error.message) from None
        return _page(request, problem=error)
    messages.success(request, "It no longer applies.")
    return redirect("console:policy")


def _value(text: str) -> Any:
    """JSON where it reads as such, else the text itself: `100`, `"100.00 EUR"`, `100.00 EUR`."""
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return text.strip()


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRule(f"{what} is a whole number.") from None


def _hours(text: str) -> timedelta | None:
    try:
        found = timedelta(hours=float(text)) if text.strip() else None
    except (ValueError, OverflowError):
        raise InvalidRule("The hours are a number.") from None
    if found is not None and found > LONGEST:
        raise InvalidRule(f"At most {LONGEST.days} days.")
    return found
