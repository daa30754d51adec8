"""Sending what stands in the outbox: claimed, sent without a transaction, recorded.

At least once: who dies between sending and recording leaves the row claimed, and it is sent again
with the same `webhook-id` when the claim has run out.
"""

from __future__ import annotations

import logging
import random
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection, transaction

from agentcore.canonical import clean_text
from runs.models import Event, Run
from runs.rest_models import WebhookDelivery, WebhookEndpoint
from runs.selectors import database_clock
from runs.webhooks.addresses import networks_of
from runs.webhooks.signing import signatures
from runs.webhooks.wire import Sent, body_of, post

log = logging.getLogger(__name__)

DELAYS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds after each failed try before the next: the schedule of Standard Webhooks."""
TRIES = len(DELAYS) + 1
THREADS = 8
PER_ENDPOINT = 4
"""Deliveries to one endpoint that are in flight at a time, in all processes together."""
GONE = 410

_CLAIM = """
    UPDATE runs_webhookdelivery SET claim = %(claim)s,
        claimed_until = clock_timestamp() + make_interval(secs => %(hold)s)
    WHERE id IN (
        SELECT d.id FROM runs_webhookendpoint e CROSS JOIN LATERAL (
            SELECT id FROM runs_webhookdelivery d
            WHERE d.endpoint_id = e.id AND d.status = 'PENDING'
              AND d.next_try_at <= clock_timestamp()
              AND (d.claimed_until IS NULL OR d.claimed_until < clock_timestamp())
            ORDER BY d.next_try_at
            LIMIT greatest(0, %(each)s - (
                SELECT count(*) FROM runs_webhookdelivery f WHERE f.endpoint_id = e.id
                  AND f.status = 'PENDING' AND f.claimed_until >= clock_timestamp()))
            FOR UPDATE SKIP LOCKED
        ) d
        WHERE e.disabled_at IS NULL AND e.deleted_at IS NULL
        LIMIT %(limit)s
    )
    RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One delivery that is ours to make until its claim runs out."""

    delivery: WebhookDelivery
    endpoint: WebhookEndpoint
    payload: dict[str, Any]
    message_id: str
    now: datetime


def claim_due(*, limit: int) -> list[Claimed]:
    """Take up to `limit` deliveries that are due, and read what they need."""
    token = uuid4()
    hold = settings.AGENTCORE_OPTIONS.webhook_timeout + 15
    values: dict[str, Any] = {"claim": token, "hold": hold, "each": PER_ENDPOINT, "limit": limit}
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_CLAIM, values)
        ids = [row[0] for row in cursor.fetchall()]
    if not ids:
        return []
    now = database_clock()
    rows = WebhookDelivery.objects.filter(id__in=ids, claim=token)
    rows = rows.select_related("endpoint", "run__agent_version")
    events = _events(list(rows))
    return [_claimed(row, events[row.run_id, row.seq], now) for row in rows]


def _events(rows: list[WebhookDelivery]) -> dict[tuple[UUID, int], Event]:
    found = Event.objects.filter(
        run_id__in={row.run_id for row in rows}, seq__in={row.seq for row in rows}
    )
    return {(event.run_id, event.seq): event for event in found}


def _claimed(row: WebhookDelivery, event: Event, now: datetime) -> Claimed:
    message_id = f"evt_{event.run_id.hex}_{event.seq}"
    return Claimed(row, row.endpoint, payload_of(row.run, event, message_id), message_id, now)


def payload_of(run: Run, event: Event, message_id: str) -> dict[str, Any]:
    """The body of a delivery: the same at every try, and below 20 kB."""
    return {
        "type": event.type,
        "timestamp": event.created_at.isoformat().replace("+00:00", "Z"),
        "data": {
            "id": message_id,
            "object": "event",
            "run": f"run_{run.id.hex}",
            "parent": f"run_{run.parent_id.hex}" if run.parent_id else None,
            "root": f"run_{run.root_id.hex}" if run.root_id else None,
            "agent": run.agent_version.name,
            "seq": event.seq,
            "revision": event.revision_after,
            "dedupe_key": run.dedupe_key or None,
            "metadata": run.metadata,
        },
    }


def deliver(claimed: Claimed) -> None:
    """Send one delivery and record what came of it. No transaction is open while it is sent."""
    connection.close()
    options = settings.AGENTCORE_OPTIONS
    timestamp = int(claimed.now.timestamp())
    body = body_of(claimed.payload)
    headers = {
        "User-Agent": "agentcore-webhooks/1",
        "webhook-id": claimed.message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signatures(
            claimed.endpoint,
            message_id=claimed.message_id,
            timestamp=timestamp,
            body=body,
            now=claimed.now,
        ),
    }
    sent = post(
        url=claimed.endpoint.url,
        payload=claimed.payload,
        headers=headers,
        networks=networks_of(options.webhook_networks),
        seconds=options.webhook_timeout,
    )
    record_try(delivery=claimed.delivery, sent=sent)


def record_try(*, delivery: WebhookDelivery, sent: Sent) -> None:
    """Write what a try came to, if the claim is still ours; 410 disables the endpoint."""
    now = database_clock()
    tries = delivery.tries + 1
    dead = not sent.taken and (sent.status == GONE or tries >= TRIES)
    fields: dict[str, Any] = {
        "tries": tries,
        "last_try_at": now,
        "last_status": sent.status,
        "last_error": clean_text(sent.error, 300),
        "claim": None,
        "claimed_until": None,
    }
    if sent.taken or dead:
        fields |= {"status": "DELIVERED" if sent.taken else "DEAD", "ended_at": now}
    else:
        wait_for = delay_after(tries=tries, asked=sent.retry_after, jitter=random.random())  # noqa: S311
        fields["next_try_at"] = now + wait_for
    with transaction.atomic(durable=True):
        if sent.status == GONE:
            WebhookEndpoint.objects.filter(id=delivery.endpoint_id, disabled_at=None).update(
                disabled_at=now, disabled_reason="it answered 410 Gone"
            )
        ours = WebhookDelivery.objects.filter(id=delivery.id, claim=delivery.claim)
        if not ours.update(**fields):
            log.info("delivery %s was claimed by another process", delivery.id)


def delay_after(*, tries: int, asked: float | None, jitter: float) -> timedelta:
    """How long after a failed try the next one waits; the receiver's Retry-After may only add.

    `jitter` is from 0 to 1 and moves the delay by up to a tenth.
    """
    planned = DELAYS[min(tries, len(DELAYS)) - 1] * (0.95 + 0.1 * jitter)
    return timedelta(seconds=max(planned, min(asked or 0.0, DELAYS[-1])))


class Sender:
    """Keeps a few deliveries in flight; one slow receiver does not hold up the others."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook")
        self._flying: set[Future[None]] = set()

    def step(self) -> bool:
        """Take what is due into free threads; whether anything was taken."""
        self._flying = {future for future in self._flying if not future.done()}
        free = THREADS - len(self._flying)
        taken = claim_due(limit=free) if free else []
        for claimed in taken:
            self._flying.add(self._pool.submit(_deliver_safely, claimed))
        return bool(taken)

    def settle(self, seconds: float) -> None:
        """Wait until a thread is free, at most `seconds`."""
        wait(self._flying, timeout=seconds, return_when=FIRST_COMPLETED)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _deliver_safely(claimed: Claimed) -> None:
    try:
        deliver(claimed)
    except Exception:
        log.exception("delivery %s failed; it is tried again later", claimed.delivery.id)
    finally:
        connection.close()


def deliver_due() -> int:
    """Send everything that is due now, and return when it is done; how many tries were made."""
    count = 0
    while taken := claim_due(limit=THREADS):
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(_deliver_safely, taken))
        count += len(taken)
    return count


def run_forever(stop: threading.Event) -> None:
    """Send until `stop`; looks once a sweep period, and at once while there is more."""
    sender = Sender()
    period = settings.AGENTCORE_OPTIONS.sweep_period
    while not stop.is_set():
        try:
            if sender.step():
                sender.settle(0.05)
                continue
        except Exception:
            log.exception("the outbox could not be read; tried again")
        finally:
            connection.close()
        stop.wait(period * random.uniform(0.75, 1.25))  # noqa: S311  (jitter)
    sender.close()
