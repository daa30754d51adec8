"""When a run is driven alone: the count of deaths decides. Values in, values out.

`claims` on a run that nobody works on is the number of claims since its last outcome that ended
without one: its holder died, or a step failed. From `isolate_after` on the run is driven in a
process of its own, so that it cannot take its neighbours along; `poison_after` deaths there end
that (`runs/poison.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

QUEUE = "isolate"
"""The queue of a one-slot worker: one process, one run at a time."""


def is_isolated(claims: int) -> bool:
    """The next claim belongs to a process of its own."""
    return claims >= settings.AGENTCORE_OPTIONS.isolate_after


def is_spent(claims: int) -> bool:
    """No further claim: it died often enough alone."""
    return claims >= spent_at()


def spent_at() -> int:
    options = settings.AGENTCORE_OPTIONS
    return options.isolate_after + options.poison_after


def may_claim(claims: int, *, isolating: bool) -> bool:
    """Whether a process may claim a run with this count; `isolating`: it drives one at a time."""
    return not is_spent(claims) and (isolating or not is_isolated(claims))


def wake_if_lost(*, claims: int, now: datetime) -> datetime:
    """`wake_at` of a run in progress: when it is due again should this process die now."""
    if not is_isolated(claims) or is_spent(claims):
        return now
    options = settings.AGENTCORE_OPTIONS
    seconds = min(options.isolate_backoff * 2**claims, options.hint_backoff_cap)
    return now + timedelta(seconds=seconds)
