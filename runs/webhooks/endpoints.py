"""Use cases about endpoints and deliveries. Each is one durable transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runs.refusals import Refused, invalid
from runs.rest_models import WebhookDelivery, WebhookEndpoint
from runs.selectors import database_clock
from runs.starting import Caller
from runs.webhooks.addresses import networks_of, url_problem
from runs.webhooks.outbox import EVENT_TYPES
from runs.webhooks.signing import OVERLAP, new_salt

MOST = 20
"""Live endpoints of one tenant."""


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """What is to change; None leaves it."""

    url: str | None = None
    description: str | None = None
    events: Sequence[str] | None = None
    enabled: bool | None = None


def has_endpoint(*, caller: Caller, endpoint_id: UUID) -> bool:
    """Whether the caller's tenant has this endpoint, enabled or not."""
    rows = WebhookEndpoint.objects.filter(tenant=caller.tenant, deleted_at__isnull=True)
    return rows.filter(id=endpoint_id).exists()


def create_endpoint(
    *, caller: Caller, url: str, description: str = "", events: Sequence[str] = ("*",)
) -> WebhookEndpoint:
    """A new endpoint. Raises `Refused` (invalid_input)."""
    _check_url(url)
    with transaction.atomic(durable=True):
        now = database_clock()
        live = WebhookEndpoint.objects.filter(tenant=caller.tenant, deleted_at__isnull=True)
        if live.count() >= MOST:
            raise invalid("", "too_many", f"a tenant has at most {MOST} endpoints. Delete one.")
        return WebhookEndpoint.objects.create(
            tenant=caller.tenant,
            url=url,
            description=description,
            events=_types(events),
            salt=new_salt(),
            created_by=caller.principal,
            created_at=now,
        )


def change_endpoint(
    *, caller: Caller, endpoint_id: UUID, change: EndpointChange
) -> WebhookEndpoint | None:
    """Change an endpoint; None when the caller has none such. Raises `Refused`."""
    if change.url is not None:
        _check_url(change.url)
    fields: dict[str, Any] = {
        "url": change.url,
        "description": change.description,
        "events": None if change.events is None else _types(change.events),
    }
    sets = {name: value for name, value in fields.items() if value is not None}
    with transaction.atomic(durable=True):
        row = _locked(caller, endpoint_id)
        if row is None:
            return None
        if change.enabled is True:
            sets |= {"disabled_at": None, "disabled_reason": ""}
        elif change.enabled is False and row.disabled_at is None:
            sets |= {"disabled_at": database_clock(), "disabled_reason": "by request"}
        return _save(row, sets)


def rotate_secret(*, caller: Caller, endpoint_id: UUID) -> WebhookEndpoint | None:
    """A new secret; the one before is valid, too, for `OVERLAP`. None when there is no such."""
    with transaction.atomic(durable=True):
        row = _locked(caller, endpoint_id)
        if row is None:
            return None
        until = database_clock() + OVERLAP
        return _save(row, {"secret_version": row.secret_version + 1, "previous_until": until})


def delete_endpoint(*, caller: Caller, endpoint_id: UUID) -> bool:
    """Take an endpoint away; its deliveries stay to be read. False when there is no such."""
    with transaction.atomic(durable=True):
        row = _locked(caller, endpoint_id)
        if row is None:
            return False
        _save(row, {"deleted_at": database_clock()})
        return True


def redeliver(*, caller: Caller, delivery_id: UUID) -> WebhookDelivery | None:
    """Send a delivery again, from the first try on. None when the caller has none such.

    Raises `Refused` (invalid_input) when its endpoint is disabled or deleted.
    """
    with transaction.atomic(durable=True):
        rows = WebhookDelivery.objects.select_for_update(no_key=True, of=("self",))
        row = rows.select_related("endpoint").filter(tenant=caller.tenant, id=delivery_id).first()
        if row is None:
            return None
        if row.endpoint.deleted_at is not None or row.endpoint.disabled_at is not None:
            raise Refused(
                code="invalid_input",
                detail="The endpoint is disabled or deleted. Enable it first: PATCH enabled.",
            )
        now = database_clock()
        sets = {"status": "PENDING", "tries": 0, "next_try_at": now, "ended_at": None}
        WebhookDelivery.objects.filter(id=row.id).update(**sets)
        for name, value in sets.items():
            setattr(row, name, value)
        return row


def _locked(caller: Caller, endpoint_id: UUID) -> WebhookEndpoint | None:
    rows = WebhookEndpoint.objects.select_for_update(no_key=True)
    return rows.filter(tenant=caller.tenant, id=endpoint_id, deleted_at__isnull=True).first()


def _save(row: WebhookEndpoint, sets: dict[str, Any]) -> WebhookEndpoint:
    for name, value in sets.items():
        setattr(row, name, value)
    if sets:
        row.save(update_fields=list(sets))
    return row


def _check_url(url: str) -> None:
    problem = url_problem(url, networks_of(settings.AGENTCORE_OPTIONS.webhook_networks))
    if problem:
        raise invalid("/url", "not_allowed", problem)


def _types(events: Sequence[str]) -> list[str]:
    known = (*EVENT_TYPES, "*")
    for number, name in enumerate(events):
        if name not in known:
            raise invalid(f"/events/{number}", "unknown_type", f"must be of: {', '.join(known)}.")
    return sorted(set(events)) or ["*"]
