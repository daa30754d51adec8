"""The outbox: which events are for webhooks, and the rows that say to whom they go."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from runs import sql
from runs.models import Event, Run

EVENT_TYPES = (
    "run.created",
    "run.requires_action",
    "run.cancelling",
    "run.cancelled",
    "run.completed",
    "run.failed",
    "run.incomplete",
    "run.business_result",
    "approval.decided",
    "action.unknown",
    "action.needs_human",
)
"""What an endpoint may subscribe to: where a run begins, rests and ends, what a downstream says of
it later, and what people should know. Other events (two or three a turn) are read from the log."""
_TYPES = frozenset(EVENT_TYPES)

_RECORD = """
    INSERT INTO runs_webhookdelivery (id, tenant, endpoint_id, run_id, seq, type, status, tries,
        next_try_at, last_error, created_at)
    SELECT gen_random_uuid(), e.tenant, e.id, %s, %s, %s,
        'PENDING', 0, clock_timestamp(), '', clock_timestamp()
    FROM runs_webhookendpoint e
    WHERE e.tenant = %s AND e.deleted_at IS NULL AND e.disabled_at IS NULL
      AND e.id = coalesce(%s::uuid, e.id) AND (e.events @> %s OR e.events @> %s)
"""


def record(run: Run, event: Event) -> None:
    """Insert a delivery for every endpoint that wants this event, in the open transaction.

    One statement, and only for the few types above; it finds nothing by index where the tenant has
    no endpoint.
    """
    if event.type not in _TYPES:
        return
    who = [run.tenant, run.webhook_endpoint_id, Jsonb("*"), Jsonb(event.type)]
    sql.write(_RECORD, [run.id, event.seq, event.type, *who])
