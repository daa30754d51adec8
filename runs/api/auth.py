"""Who calls: a bearer token, or (reading only) a signed-in member of staff."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from runs.access_models import ApiToken
from runs.refusals import Refused
from runs.starting import Caller

SCOPES: dict[str, str] = {
    "runs:read": "Read runs",
    "runs:write": "Start runs",
    "events:read": "Read the events of runs",
}
"""The scopes of the API itself. Every other scope of a token is for tools."""

STAFF_TENANT = "default"
STAFF_SCOPES = {"runs:read": "runs.view_run", "events:read": "runs.view_event"}
"""Scope -> Django permission that gives it to a signed-in member of staff."""

TOUCH_EVERY = timedelta(minutes=1)


def token_hash(secret: str) -> str:
    """What is stored of a token: SHA-256 in hex. The secret has 256 random bits, so no salt."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class ApiUser:
    """The authenticated caller as DRF's `request.user`."""

    is_authenticated = True

    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer agc_…`. A token acts for its tenant, under its name."""

    def authenticate(self, request: Request) -> tuple[ApiUser, ApiToken] | None:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        scheme, _, secret = header.partition(" ")
        if not header:
            return None
        if scheme.lower() != "bearer" or not secret.strip():
            raise AuthenticationFailed("Send the token as: Authorization: Bearer <token>.")
        token = _live_token(secret.strip())
        caller = Caller(
            tenant=token.tenant, principal=f"token:{token.name}", scopes=tuple(token.scopes)
        )
        return ApiUser(caller), token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        return 'Bearer realm="agentcore"'


def _live_token(secret: str) -> ApiToken:
    """The usable token with this secret; raises `AuthenticationFailed` and says why."""
    token = ApiToken.objects.filter(sha256=token_hash(secret)).annotate(clock=Now()).first()
    if token is None:
        raise AuthenticationFailed("This token is not known. Check that it was copied whole.")
    now: Any = token.clock
    if token.revoked_at is not None:
        raise AuthenticationFailed(
            "This token was revoked. Make a new one: manage.py token create."
        )
    if token.expires_at is not None and token.expires_at <= now:
        raise AuthenticationFailed(
            "This token has expired. Make a new one: manage.py token create."
        )
    if token.last_used_at is None or now - token.last_used_at >= TOUCH_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - TOUCH_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    return token


class StaffSession(BaseAuthentication):
    """The session of the admin site, for GET only: no CSRF question arises."""

    def authenticate(self, request: Request) -> tuple[ApiUser, None] | None:
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            return None
        user = getattr(request._request, "user", None)  # noqa: SLF001  (DRF documents it)
        if user is None or not (user.is_active and user.is_staff):
            return None
        scopes = tuple(name for name, perm in STAFF_SCOPES.items() if user.has_perm(perm))
        caller = Caller(tenant=STAFF_TENANT, principal=f"user:{user.get_username()}", scopes=scopes)
        return ApiUser(caller), None


class HasScope(BasePermission):
    """The view names the scope of each of its methods in `scopes`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.user, ApiUser):
            return False  # DRF answers 401
        needed = view.scopes.get("GET" if request.method == "HEAD" else request.method)
        if needed is None:
            return True  # the view has no such method: DRF answers 405
        if needed not in request.user.caller.scopes:
            raise Refused(
                code="scope_missing",
                detail=f"This needs the scope {needed}. Use a token that has it.",
            )
        return True


def caller_of(request: Request) -> Caller:
    """The caller of a request that passed `HasScope`."""
    user = request.user
    if not isinstance(user, ApiUser):
        raise NotAuthenticated
    return user.caller
