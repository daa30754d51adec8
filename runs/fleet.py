"""Which workers live, what they serve, and when a sweep last came through. Reads only.

The doctor, the stuck board and the console's pages ask here, so that they cannot disagree.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

_SERVED = """
    SELECT jsonb_array_elements_text(queues) FROM runs_worker
    WHERE beat_at > clock_timestamp() - make_interval(secs => %(dead_after)s)
      AND stopped_at IS NULL
"""
_LAST_SWEEP = (
    "SELECT extract(epoch FROM clock_timestamp() - max(swept_at))::float8 FROM runs_worker"
)

_ELDER = """
    SELECT count(*) FROM runs_worker
    WHERE hostname = %(hostname)s AND stopped_at IS NULL
      AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after)s)
      AND started_at < (SELECT started_at FROM runs_worker WHERE id = %(worker)s)
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """`serving`: living workers by queue. `sweep_age`: seconds since the last pass, None: never."""

    serving: Counter[str]
    sweep_age: float | None

    @property
    def alive(self) -> bool:
        return bool(self.serving)

    @property
    def sweep_is_late(self) -> bool:
        """No pass for more than two periods (a pass is noted with the beat)."""
        options = settings.AGENTCORE_OPTIONS
        most = 2 * max(options.sweep_period, options.beat_period) + options.beat_period
        return self.sweep_age is None or self.sweep_age > most


def look() -> Fleet:
    """The fleet as its rows are now."""
    with connection.cursor() as cursor:
        cursor.execute(_SERVED, {"dead_after": settings.AGENTCORE_OPTIONS.worker_dead_after})
        served = Counter(row[0] for row in cursor.fetchall())
        cursor.execute(_LAST_SWEEP)
        (age,) = cursor.fetchone() or (None,)
    return Fleet(served, age)


def place_on(hostname: str, worker: UUID) -> int:
    """A number of this worker on its machine: those that live there have consecutive ones.

    Containers have names of their own and cannot be counted, so each begins somewhere else.
    """
    given: dict[str, Any] = {
        "hostname": hostname,
        "worker": worker,
        "dead_after": settings.AGENTCORE_OPTIONS.worker_dead_after,
    }
    with connection.cursor() as cursor:
        cursor.execute(_ELDER, given)
        (elder,) = cursor.fetchone() or (0,)
    return zlib.crc32(hostname.encode()) + int(elder)
