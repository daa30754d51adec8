"""Callers that are remembered for some seconds, and compared by the transaction of their request.

To look a token up takes a round trip, a tenth of a start. A remembered caller costs none: the first
statement of the transaction (`runs/once.py`) compares it with the stored token, so one that was
revoked does nothing from that moment on, in whatever process. Nor is it told what is wrong with its
request: before an error is answered, the token is looked up.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, cast

from django.db import DatabaseError, InterfaceError
from django.http import HttpResponse
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from runs.access_models import ApiToken
from runs.api.auth import (
    ApiUser,
    StaffSession,
    TokenAuthentication,
    api_user,
    live_token,
    token_hash,
)
from runs.api.base import ApiView
from runs.once import TokenChanged, TokenFacts

SECONDS = 15.0
"""How long a caller is remembered; by then its token is looked up, which notes its use, too."""
MOST = 1000
"""Callers; with more, all are forgotten."""


@dataclass(frozen=True, slots=True)
class _Known:
    user: ApiUser
    token: ApiToken
    until: float


_known: dict[str, _Known] = {}


class RememberedToken(TokenAuthentication):
    """As `TokenAuthentication`, for what compares the token itself before it does anything."""

    def user_of(self, secret: str) -> tuple[ApiUser, Any]:
        sha256 = token_hash(secret)
        found = _known.get(sha256)
        if found is not None and time.monotonic() < found.until:
            return found.user, found.token
        return _look(sha256)


def _look(sha256: str) -> tuple[ApiUser, ApiToken]:
    """Who has the token with this hash, looked up and remembered. Raises `AuthenticationFailed`."""
    _known.pop(sha256, None)
    token = live_token(sha256)
    user = api_user(token)
    if len(_known) >= MOST:
        _known.clear()
    remembered = ApiUser(user.caller, user.decider, _facts_of(token))
    _known[sha256] = _Known(remembered, token, time.monotonic() + SECONDS)
    return user, token


def _facts_of(token: ApiToken) -> TokenFacts:
    lists = json.dumps(token.scopes), json.dumps(token.agents)
    return TokenFacts(token.sha256, token.tenant, token.name, *lists)


class RemembersCallers(ApiView):
    """A view whose POST does everything in one transaction that takes its key (`once_of`)."""

    def get_authenticators(self) -> list[BaseAuthentication]:
        request = getattr(self, "request", None)  # none while the OpenAPI document is made
        if request is not None and request.method == "POST":
            return [RememberedToken(), StaffSession()]
        return super().get_authenticators()

    def handle_exception(self, exc: Exception) -> Response:
        """The answer to an error, or what becomes of the request when its token is another now."""
        if isinstance(exc, DatabaseError | InterfaceError):
            return super().handle_exception(exc)  # nothing can be looked up
        # Not `request.user`: where the session was refused it would ask once more, and raise here.
        user = getattr(self.request, "_user", None)
        facts = user.remembered_by if isinstance(user, ApiUser) else None
        if facts is not None:
            try:
                caller, token = _look(facts.sha256)
                self.request.user = cast("Any", caller)
                if _facts_of(token) != facts or isinstance(exc, TokenChanged):
                    self.check_permissions(self.request)
                    return cast("Response", self.post(self.request))
            except Exception as error:  # noqa: BLE001  (it is what the caller is told)
                exc = error
        return super().handle_exception(exc)

    def post(self, request: Request) -> HttpResponse:
        """The view's own."""
        raise NotImplementedError
