"""Who calls: a bearer token, or a signed-in member of staff."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Q
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from runs import sql
from runs.access_models import ApiToken
from runs.approving import PERMISSION as DECIDE
from runs.approving import Decider
from runs.deciding import EDIT
from runs.once import TokenFacts
from runs.reconciliations import PERMISSION as RECONCILE
from runs.refusals import Refused
from runs.rights import TOKEN_PERMISSIONS
from runs.starting import Caller
from runs.switches import PERMISSION as SWITCH

SCOPES: dict[str, str] = {
    "runs:read": "Read runs",
    "runs:write": "Start and cancel runs",
    "runs:operate": "Pause, resume and retry runs",
    "events:read": "Read the events of runs",
    "actions:read": "Read what runs did and want to do",
    "approvals:read": "Read the questions to people",
    "approvals:decide": "Claim, approve, reject and escalate actions",
    "approvals:edit": "Change the arguments of an action before it is approved",
    "approvals:decide_high_risk": "Decide what is hard to undo, too",
    "reconciliations:write": "Ask a downstream now what became of a write",
    "reconciliations:decide": "Say what became of a write",
    "agents:read": "Read the agents and their versions",
    "agents:operate": "Switch agents off and on, for every tenant",
    "tools:read": "Read the tools",
    "sessions:read": "Read sessions",
    "sessions:write": "Make and delete sessions",
    "webhooks:read": "Read webhook endpoints and deliveries",
    "webhooks:write": "Change webhook endpoints, send deliveries again",
    "bulk:write": "Make, start and read bulk operations",
}
"""The scopes of the API itself. `role:NAME` lets a token decide for that group. Every other scope
of a token is for tools."""
ROLE = "role:"

STAFF_TENANT = "default"
STAFF_SCOPES = {
    "runs:read": "runs.view_run",
    "events:read": "runs.view_event",
    "actions:read": "runs.view_actionjournal",
    "approvals:read": "approvals.view_approval",
    "approvals:decide": DECIDE,
    "reconciliations:write": RECONCILE,
    "reconciliations:decide": RECONCILE,
    "agents:read": "runs.view_agentversion",
    "agents:operate": SWITCH,
    "tools:read": "runs.view_agentversion",
    "sessions:read": "runs.view_session",
    "webhooks:read": "runs.view_webhookdelivery",
}
"""Scope -> Django permission that gives it to a signed-in member of staff."""

SCOPE_PERMISSIONS = {
    **TOKEN_PERMISSIONS,
    "approvals:edit": EDIT,
    "reconciliations:decide": RECONCILE,
    "agents:operate": SWITCH,
}
"""Scope of a token -> the permission of a person that it stands for."""

TOUCH_EVERY = timedelta(minutes=1)


def token_hash(secret: str) -> str:
    """What is stored of a token: SHA-256 in hex. The secret has 256 random bits, so no salt."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class ApiUser:
    """The authenticated caller as DRF's `request.user`."""

    is_authenticated = True

    def __init__(
        self, caller: Caller, decider: Decider, remembered_by: TokenFacts | None = None
    ) -> None:
        self.caller = caller
        self.decider = decider
        self.remembered_by = remembered_by


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer agc_…`. A token acts for its tenant, under its name."""

    def authenticate(self, request: Request) -> tuple[ApiUser, Any] | None:
        secret = _secret_of(request)
        return None if secret is None else self.user_of(secret)

    def user_of(self, secret: str) -> tuple[ApiUser, Any]:
        """Who has this secret. Raises `AuthenticationFailed`."""
        token = live_token(token_hash(secret))
        return api_user(token), token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        return 'Bearer realm="agentcore"'


def api_user(token: ApiToken) -> ApiUser:
    """The caller that a token makes."""
    name, scopes = f"token:{token.name}", tuple(token.scopes)
    caller = Caller(tenant=token.tenant, principal=name, scopes=scopes, agents=tuple(token.agents))
    decider = Decider(
        name=name,
        permissions=frozenset(p for scope, p in SCOPE_PERMISSIONS.items() if scope in scopes),
        roles=frozenset(s.removeprefix(ROLE) for s in scopes if s.startswith(ROLE)),
    )
    return ApiUser(caller, decider)


_COLUMNS = sql.columns_of(ApiToken)
_FIND = f"SELECT clock_timestamp(), {_COLUMNS} FROM runs_apitoken WHERE sha256 = %s"  # noqa: S608


def _find(sha256: str) -> tuple[ApiToken | None, Any]:
    """The token with this hash and the database clock. As SQL, since every request does it: the
    ORM took 0.3 ms more, a tenth of a start."""
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [sha256])
        row = cursor.fetchone()
    return (None, None) if row is None else (sql.row_of(ApiToken, row[1:]), row[0])


def live_token(sha256: str) -> ApiToken:
    """The usable token with this hash; raises `AuthenticationFailed` and says why.

    Read for each request, so that a revoked token is refused at once.
    """
    token, now = _find(sha256)
    if token is None:
        raise AuthenticationFailed("This token is not known. Check that it was copied whole.")
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


def _secret_of(request: Request) -> str | None:
    """The bearer token of a request, or None without the header. Raises `AuthenticationFailed`."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        return None
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise AuthenticationFailed("Send the token as: Authorization: Bearer <token>.")
    found: str = secret.strip()
    return found


class StaffSession(BaseAuthentication):
    """The session of the admin site. What changes something needs the CSRF token as well."""

    def authenticate(self, request: Request) -> tuple[ApiUser, None] | None:
        user = getattr(request._request, "user", None)  # noqa: SLF001  (DRF documents it)
        if user is None or not (user.is_active and user.is_staff):
            return None
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            _need_csrf_token(request)
        scopes = tuple(name for name, perm in STAFF_SCOPES.items() if user.has_perm(perm))
        name = f"user:{user.get_username()}"
        decider = Decider(
            name=name,
            permissions=frozenset(user.get_all_permissions()),
            roles=frozenset(user.groups.values_list("name", flat=True)),
            is_superuser=user.is_superuser,
        )
        return ApiUser(Caller(tenant=STAFF_TENANT, principal=name, scopes=scopes), decider), None


def _need_csrf_token(request: Request) -> None:
    try:
        SessionAuthentication().enforce_csrf(request)
    except PermissionDenied as error:
        detail = f"{error.detail} With a session, send the page's token as X-CSRFToken."
        raise Refused(code="scope_missing", detail=detail) from None


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
    return user_of(request).caller


def user_of(request: Request) -> ApiUser:
    user = request.user
    if not isinstance(user, ApiUser):
        raise NotAuthenticated
    return user
