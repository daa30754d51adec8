"""Webhook endpoints and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Q
from pydantic import Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from runs import listing
from runs.api import docs
from runs.api.asking import (
    body_of,
    id_in_query,
    id_of,
    missing,
    no_parameters,
    page_and,
    words,
)
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.ids import event_id, parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Question, Shape, example
from runs.refusals import Refused
from runs.rest_models import WebhookDelivery, WebhookEndpoint
from runs.webhooks import endpoints
from runs.webhooks.outbox import EVENT_TYPES
from runs.webhooks.signing import secret_of

STATUSES = ("pending", "delivered", "dead")
Url = Annotated[str, StringConstraints(min_length=8, max_length=2000)]
Description = Annotated[str, StringConstraints(max_length=200)]
EventType = Literal[
    "*",
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
]
Events = Annotated[list[EventType], Field(max_length=len(EVENT_TYPES) + 1)]


class EndpointCreate(Question):
    """A new endpoint. Its address must be public and use https."""

    model_config = example(url="https://example.com/hook", events=["run.completed", "run.failed"])

    url: Url
    description: Description = ""
    events: Events = Field(default=["*"], description="`*` means every type.")


class EndpointChange(Question):
    """What to change; members that are left out stay."""

    url: Url | None = None
    description: Description | None = None
    events: Events | None = None
    enabled: bool | None = Field(default=None, description="false stops deliveries.")


class Endpoint(Shape):
    """Where deliveries go. Messages are signed as in Standard Webhooks."""

    id: str
    object: Literal["webhook_endpoint"]
    url: str
    description: str
    events: list[str]
    enabled: bool
    disabled_reason: str | None
    created_by: str
    created_at: datetime
    previous_secret_until: datetime | None


class EndpointWithSecret(Endpoint):
    """An endpoint with its secret, which is shown this once."""

    secret: str


class EndpointList(ListShape[Endpoint]):
    """Endpoints, newest first."""


class Delivery(Shape):
    """One event for one endpoint. `dead`: the tries are used up; it can be sent again."""

    id: str
    object: Literal["webhook_delivery"]
    endpoint: str
    event: str = Field(description="Also the `webhook-id` of the message, at every try.")
    run: str
    type: str
    status: Literal["pending", "delivered", "dead"]
    tries: int
    next_try_at: datetime | None
    last_try_at: datetime | None
    last_status: int | None
    last_error: str | None
    created_at: datetime
    ended_at: datetime | None


class DeliveryList(ListShape[Delivery]):
    """Deliveries, newest first."""


def endpoint_json(row: WebhookEndpoint, *, secret: bool = False) -> dict[str, Any]:
    """An endpoint as its JSON says it; with the secret where it was just made."""
    values: dict[str, Any] = {
        "id": public_id("whep", row.id),
        "object": "webhook_endpoint",
        "url": row.url,
        "description": row.description,
        "events": row.events,
        "enabled": row.disabled_at is None,
        "disabled_reason": row.disabled_reason or None,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "previous_secret_until": row.previous_until,
    }
    if secret:
        return EndpointWithSecret(**values, secret=secret_of(row)).model_dump(mode="json")
    return Endpoint(**values).model_dump(mode="json")


def delivery_json(row: WebhookDelivery) -> dict[str, Any]:
    shape = Delivery(
        id=public_id("whd", row.id),
        object="webhook_delivery",
        endpoint=public_id("whep", row.endpoint_id),
        event=event_id(row.run_id, row.seq),
        run=public_id("run", row.run_id),
        type=row.type,
        status=row.status.lower(),
        tries=row.tries,
        next_try_at=row.next_try_at if row.status == "PENDING" else None,
        last_try_at=row.last_try_at,
        last_status=row.last_status,
        last_error=row.last_error or None,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
    return shape.model_dump(mode="json")


class WholeTenantView(ApiView):
    """Webhooks tell of the runs of every agent, so they are for callers of the whole tenant: a
    token that is bound to some agents neither makes nor sees any of them."""

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        if caller_of(request).agents:
            raise Refused(
                code="agent_forbidden",
                detail="Webhooks tell of the runs of every agent, and the token is for some only. "
                "Use one that is bound to no agent.",
            )


ENDPOINT_ID = docs.id_in_path("endpoint_id", "whep")


def _found(row: WebhookEndpoint | None) -> WebhookEndpoint:
    if row is None:
        raise missing("webhook endpoint")
    return row


class EndpointsView(WholeTenantView):
    """`/webhook_endpoints`"""

    scopes = {"GET": "webhooks:read", "POST": "webhooks:write"}

    @docs.operation(
        "list_webhook_endpoints",
        summary="List the webhook endpoints",
        tag="webhooks",
        params=docs.PAGE,
        ok={200: (EndpointList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request)
        after = cursor_of(page, lambda text: parse_id("whep", text))
        rows = WebhookEndpoint.objects.filter(
            tenant=caller_of(request).tenant, deleted_at__isnull=True
        ).order_by("-id")
        follows = None if after is None else Q(id__lt=after)
        found, more = listing.page(rows, follows, page.limit)
        return Response(list_json([endpoint_json(row) for row in found], more))

    @docs.operation(
        "create_webhook_endpoint",
        summary="Make a webhook endpoint",
        description="The secret is in this answer and in no other.",
        tag="webhooks",
        session=False,
        request=EndpointCreate,
        ok={201: (EndpointWithSecret, "The endpoint with its secret.")},
    )
    def post(self, request: Request) -> Response:
        no_parameters(request)
        asked = body_of(request, EndpointCreate)
        row = endpoints.create_endpoint(
            caller=caller_of(request),
            url=asked.url,
            description=asked.description,
            events=asked.events,
        )
        return Response(endpoint_json(row, secret=True), status=201)


class EndpointView(WholeTenantView):
    """`/webhook_endpoints/{id}`"""

    scopes = {"GET": "webhooks:read", "PATCH": "webhooks:write", "DELETE": "webhooks:write"}

    @docs.operation(
        "get_webhook_endpoint",
        summary="Get a webhook endpoint",
        tag="webhooks",
        params=[ENDPOINT_ID],
        ok={200: (Endpoint, "The endpoint.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        no_parameters(request)
        wanted = id_of("whep", endpoint_id, what="webhook endpoint")
        rows = WebhookEndpoint.objects.filter(tenant=caller_of(request).tenant)
        return Response(endpoint_json(_found(rows.filter(id=wanted, deleted_at=None).first())))

    @docs.operation(
        "change_webhook_endpoint",
        summary="Change a webhook endpoint",
        tag="webhooks",
        session=False,
        request=EndpointChange,
        params=[ENDPOINT_ID],
        ok={200: (Endpoint, "The endpoint as it is now.")},
        problems={404: "`not_found`"},
    )
    def patch(self, request: Request, endpoint_id: str) -> Response:
        no_parameters(request)
        asked = body_of(request, EndpointChange)
        row = endpoints.change_endpoint(
            caller=caller_of(request),
            endpoint_id=id_of("whep", endpoint_id, what="webhook endpoint"),
            change=endpoints.EndpointChange(**asked.model_dump()),
        )
        return Response(endpoint_json(_found(row)))

    @docs.operation(
        "delete_webhook_endpoint",
        summary="Delete a webhook endpoint",
        description="Nothing more is sent to it. Its deliveries stay to be read.",
        tag="webhooks",
        session=False,
        params=[ENDPOINT_ID],
        ok={204: (None, "It is gone.")},
        problems={404: "`not_found`"},
    )
    def delete(self, request: Request, endpoint_id: str) -> Response:
        no_parameters(request)
        wanted = id_of("whep", endpoint_id, what="webhook endpoint")
        if not endpoints.delete_endpoint(caller=caller_of(request), endpoint_id=wanted):
            raise missing("webhook endpoint")
        return Response(status=204)


class RotateView(WholeTenantView):
    """`/webhook_endpoints/{id}/rotate_secret`"""

    scopes = {"POST": "webhooks:write"}

    @docs.operation(
        "rotate_webhook_secret",
        summary="Make a new secret",
        description="The secret before stays valid for 24 hours: messages carry both signatures.",
        tag="webhooks",
        session=False,
        params=[ENDPOINT_ID],
        ok={200: (EndpointWithSecret, "The endpoint with its new secret.")},
        problems={404: "`not_found`"},
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        no_parameters(request)
        wanted = id_of("whep", endpoint_id, what="webhook endpoint")
        row = endpoints.rotate_secret(caller=caller_of(request), endpoint_id=wanted)
        return Response(endpoint_json(_found(row), secret=True))


class DeliveriesView(WholeTenantView):
    """`/webhook_deliveries`"""

    scopes = {"GET": "webhooks:read"}

    @docs.operation(
        "list_webhook_deliveries",
        summary="List deliveries, newest first",
        tag="webhooks",
        params=[
            *docs.PAGE,
            docs.query("status", f"Of: {', '.join(STATUSES)}; several with commas."),
            docs.query("endpoint", "Only those to this endpoint."),
            docs.query("run", "Only those about this run."),
        ],
        ok={200: (DeliveryList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request, "status", "endpoint", "run")
        rows = WebhookDelivery.objects.filter(tenant=caller_of(request).tenant)
        if statuses := words(request, "status", STATUSES):
            rows = rows.filter(status__in=[word.upper() for word in statuses])
        if (endpoint := id_in_query(request, "endpoint", "whep")) is not None:
            rows = rows.filter(endpoint_id=endpoint)
        if (run := id_in_query(request, "run", "run")) is not None:
            rows = rows.filter(run_id=run)
        after = cursor_of(page, lambda text: parse_id("whd", text))
        found, more = _newest_first(rows, after, page.limit)
        return Response(list_json([delivery_json(row) for row in found], more))


def _newest_first(rows: Any, after: Any, limit: int) -> tuple[list[WebhookDelivery], bool]:
    """Deliveries in the order of (created_at, id), newest first; their ids are random."""
    if after is not None:
        last = rows.filter(id=after).values_list("created_at", flat=True).first()
        if last is None:
            return [], False
        rows = rows.filter(Q(created_at__lt=last) | Q(created_at=last, id__lt=after))
    return listing.page(rows.order_by("-created_at", "-id"), None, limit)


class RedeliverView(WholeTenantView):
    """`/webhook_deliveries/{id}/redeliver`"""

    scopes = {"POST": "webhooks:write"}

    @docs.operation(
        "redeliver",
        summary="Send a delivery again",
        description="With the same `webhook-id`, from the first try of the schedule on.",
        tag="webhooks",
        session=False,
        params=[docs.id_in_path("delivery_id", "whd")],
        ok={202: (Delivery, "It will be sent.")},
        problems={404: "`not_found`"},
    )
    def post(self, request: Request, delivery_id: str) -> Response:
        no_parameters(request)
        wanted = id_of("whd", delivery_id, what="webhook delivery")
        row = endpoints.redeliver(caller=caller_of(request), delivery_id=wanted)
        if row is None:
            raise missing("webhook delivery")
        return Response(delivery_json(row), status=202)
