"""How much of a downstream may be used at once and in a minute, by all or by each tenant.

A downstream is a model (`model:gpt-5.2`) or what a tool calls (its declared `downstream`, else the
tool's own name). A `Limit` is one line of configuration; a `Bucket` is what one call is counted in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

MINUTE = timedelta(minutes=1)
LOOK_AGAIN = timedelta(seconds=5)
"""When a run looks again by itself; the end of a call wakes it sooner."""
LONGEST = timedelta(minutes=5)
EACH = "*"


@dataclass(frozen=True, slots=True)
class Limit:
    """`concurrent`: calls in flight; `per_minute`: calls started in any 60 seconds.

    `tenant` and `downstream` say whose calls are counted together: None for all, "*" for each one
    by itself, a name for that one. Raises ValueError for a limit that lets nothing through.
    """

    tenant: str | None = None
    downstream: str | None = None
    concurrent: int | None = None
    per_minute: int | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.concurrent, self.per_minute) if value is not None]
        if not given or min(given) < 1:
            raise ValueError("limits: concurrent or per_minute, at least 1")
        if "" in (self.tenant, self.downstream):
            raise ValueError("limits: an empty name; leave it out to count all together")


def _given(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


LimitTable = Annotated[tuple[Limit, ...], BeforeValidator(_given)]
"""The option's type: a tuple of limits, or their JSON text."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What one call is counted in. `name` is for people and unique."""

    name: str
    concurrent: int | None
    per_minute: int | None


@dataclass(frozen=True, slots=True)
class Use:
    """What a bucket has: `in_flight` calls, the earliest of which is over at `first_end` at the
    latest; `taken`: calls begun in the last minute; `waiting`: runs that wait for it; `turn`: when
    the call was begun whose minute has to pass for this run, once the minute is full.
    """

    in_flight: int = 0
    first_end: datetime | None = None
    taken: int = 0
    waiting: int = 0
    turn: datetime | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A call has to wait: for which bucket, until when at the latest, and why."""

    bucket: str
    until: datetime
    reason: str


def buckets(*, limits: Iterable[Limit], tenant: str, downstream: str) -> tuple[Bucket, ...]:
    """The buckets that a call is counted in, by name: of each kind of limit the most exact one."""
    chosen: dict[tuple[bool, bool], Limit] = {}
    for limit in limits:
        if _covers(limit.tenant, tenant) and _covers(limit.downstream, downstream):
            kind = limit.tenant is not None, limit.downstream is not None
            known = chosen.get(kind)
            if known is None or _exactness(limit) > _exactness(known):
                chosen[kind] = limit
    found = [
        Bucket(_name(kind, tenant, downstream), limit.concurrent, limit.per_minute)
        for kind, limit in chosen.items()
    ]
    return tuple(sorted(found, key=lambda bucket: bucket.name))


def _covers(said: str | None, name: str) -> bool:
    return said in (None, EACH, name)


def _exactness(limit: Limit) -> int:
    return sum(name not in (None, EACH) for name in (limit.tenant, limit.downstream))


def _name(kind: tuple[bool, bool], tenant: str, downstream: str) -> str:
    parts = [f"tenant {tenant}"] if kind[0] else []
    parts += [downstream] if kind[1] else []
    return " ".join(parts) or "all"


def held(*, bucket: Bucket, use: Use, calls: int, now: datetime) -> Held | None:
    """Whether `calls` more calls have to wait, judged by what is in use now."""
    most, rate = bucket.concurrent, bucket.per_minute
    times, why = [], []
    if most is not None and use.in_flight + calls > most:
        times.append(_when_one_ends(use, most, now))
        why.append(f"{most} at once")
    if rate is not None and use.taken + calls > rate:
        times.append(_when_one_is_old(use, rate, now))
        why.append(f"{rate} a minute")
    if not times:
        return None
    reason = f"limit: {bucket.name}: {' and '.join(why)}"
    return Held(bucket.name, max(*times, now + timedelta(milliseconds=50)), reason)


def _when_one_ends(use: Use, most: int, now: datetime) -> datetime:
    """Its end is told; this is for when it is not, later the more runs wait."""
    latest = now + min(LOOK_AGAIN * (1 + use.waiting // most), LONGEST)
    return min(latest, use.first_end or latest)


def _when_one_is_old(use: Use, rate: int, now: datetime) -> datetime:
    """When as many calls of the last minute are over it as runs wait for that before this one."""
    begun = use.turn or now  # none: a set of calls that is larger than what is left
    return min(begun + MINUTE * (1 + use.waiting // rate), now + LONGEST)
