"""Rate limits of a caller: reads and writes a minute, counted in each process.

The counters are not shared, so several processes allow several times as much: they protect the
service from a loop in a client, they are no quota. Hard limits are the budgets.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from runs.api.auth import ApiUser
from runs.refusals import Refused

WINDOW = 60.0
"""Seconds; every caller's window begins with its first request."""
MOST_CALLERS = 10_000


@dataclass(slots=True)
class _Window:
    began: float
    used: int = 0


class Counter:
    """Requests of each caller in its current window."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}
        self._lock = threading.Lock()

    def take(self, who: tuple[str, str], *, now: float) -> tuple[int, float]:
        """Count one request; how many there are now, and the seconds left of the window."""
        with self._lock:
            window = self._windows.get(who)
            if window is None or now - window.began >= WINDOW:
                if len(self._windows) >= MOST_CALLERS:
                    self._forget(now)
                window = self._windows[who] = _Window(now)
            window.used += 1
            return window.used, WINDOW - (now - window.began)

    def _forget(self, now: float) -> None:
        """Drop the windows that are over; all of them when that is not enough."""
        live = {who: w for who, w in self._windows.items() if now - w.began < WINDOW}
        self._windows = live if len(live) < MOST_CALLERS else {}

    def clear(self) -> None:
        with self._lock:
            self._windows.clear()


COUNTER = Counter()


class CallerThrottle(BaseThrottle):
    """Refuses with `rate_limited` what goes beyond; every answer tells what is left."""

    def allow_request(self, request: Request, view: Any) -> bool:  # noqa: ARG002
        user = request.user
        options = settings.AGENTCORE_OPTIONS
        reading = request.method in ("GET", "HEAD")
        limit = options.api_reads_a_minute if reading else options.api_writes_a_minute
        if not isinstance(user, ApiUser) or not limit:
            return True
        kind = "reads" if reading else "writes"
        who = (f"{user.caller.tenant}/{user.caller.principal}", kind)
        used, left = COUNTER.take(who, now=time.monotonic())
        request._request.rate_limit = (kind, limit, max(0, limit - used), left)  # noqa: SLF001
        if used > limit:
            raise Refused(
                code="rate_limited",
                detail=f"At most {limit} {kind} a minute. Wait for the time in Retry-After.",
                retry_after=int(left) + 1,
            )
        return True


def add_headers(request: Request, response: Response) -> None:
    """`RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers)."""
    told = getattr(request._request, "rate_limit", None)  # noqa: SLF001
    if told is None:
        return
    kind, limit, remaining, left = told
    response["RateLimit-Policy"] = f'"{kind}";q={limit};w={int(WINDOW)}'
    response["RateLimit"] = f'"{kind}";r={remaining};t={int(left) + 1}'
