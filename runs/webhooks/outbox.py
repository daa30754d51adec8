"""The outbox: which events are for webhooks, and the rows that say to whom they go."""

from __future__ import annotations

from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

from runs.models import Event, Run

EVENT_TYPES = (
    "run.created",
    "run.requires_action",
    "run.cancelling",
    "run.cancelled",
    "run.completed",
    "run.failed",
    "run.incomplete",
    "approval.decided",
    "action.unknown",
    "action.needs_human",
)
"""What an endpoint may subscribe to: where a run begins, rests and ends, and what people should
know. The other events (two or three a turn) are read from the log."""
_TYPES = frozenset(EVENT_TYPES)

_RECORD = """
    INSERT INTO runs_webhookdelivery (id, tenant, endpoint_id, run_id, seq, type, status, tries,
        next_try_at, last_error, created_at)
    SELECT gen_random_uuid(), e.tenant, e.id, %(run)s, %(seq)s, %(type)s,
        'PENDING', 0, clock_timestamp(), '', clock_timestamp()
    FROM runs_webhookendpoint e
    WHERE e.tenant = %(tenant)s AND e.deleted_at IS NULL AND e.disabled_at IS NULL
      AND (%(only)s::uuid IS NULL OR e.id = %(only)s)
      AND (e.events @> %(all)s OR e.events @> %(name)s)
"""


def record(run: Run, event: Event) -> None:
    """Insert a delivery for every endpoint that wants this event, in the open transaction.

    One statement, and only for the few types above; it finds nothing by index where the tenant has
    no endpoint.
    """
    if event.type not in _TYPES:
        return
    values: dict[str, Any] = {
        "run": run.id,
        "seq": event.seq,
        "type": event.type,
        "tenant": run.tenant,
        "only": run.webhook_endpoint_id,
        "all": Jsonb("*"),
        "name": Jsonb(event.type),
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, values)
