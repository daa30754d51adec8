"""What every page of the console needs: who looks, may he, and the frame around the content."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from runs.approving import Decider
from runs.models import Run
from runs.starting import Caller

VIEW_RUN = "runs.view_run"


def decider_of(request: HttpRequest) -> Decider:
    """The signed-in person as the decision rules see him."""
    user: Any = request.user
    return Decider(
        name=person_of(request),
        permissions=frozenset(user.get_all_permissions()),
        roles=frozenset(user.groups.values_list("name", flat=True)),
        is_superuser=user.is_superuser,
    )


def person_of(request: HttpRequest) -> str:
    """The signed-in person as a principal: `user:olga`."""
    user: Any = request.user
    return f"user:{user.get_username()}"


def caller_of(request: HttpRequest, run: Run) -> Caller:
    """The person in the place of the run's caller: its tenant and scopes, his own name."""
    return Caller(tenant=run.tenant, principal=person_of(request), scopes=tuple(run.scopes))


def may(request: HttpRequest, permission: str) -> bool:
    """Whether the person has this permission; a superuser has each."""
    user: Any = request.user
    return bool(user.has_perm(permission))


def need(request: HttpRequest, *permissions: str) -> None:
    """Raise `PermissionDenied` unless the person has one of these."""
    if not any(may(request, permission) for permission in permissions):
        raise PermissionDenied


def page(
    request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """One of our templates inside the admin's frame."""
    shared = {**admin.site.each_context(request), "is_nav_sidebar_enabled": False}
    return TemplateResponse(request, template, {**shared, **context}, status=status)
