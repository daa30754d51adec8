"""Bulk operations: one verb for many runs, shown first, then confirmed by its count."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Count, Q
from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from runs import bulk
from runs.api import docs
from runs.api.asking import answer_once, body_of, id_of, missing, no_parameters, once_of
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.schemas import Question, Reason, Shape, example, moment
from runs.api.status import PublicStatus
from runs.listing import RunFilter
from runs.rest_models import BulkOperation

Moment = Annotated[AwareDatetime, BeforeValidator(moment)]


class BulkFilter(Question):
    """Which runs; what is left out does not narrow. At least one member is needed."""

    status: list[PublicStatus] = Field(default_factory=list, max_length=8)
    agent: list[Annotated[str, StringConstraints(min_length=1, max_length=80)]] = Field(
        default_factory=list, max_length=20
    )
    has: list[Literal["unknown", "pending_approval"]] = Field(default_factory=list, max_length=2)
    session: Annotated[str, StringConstraints(pattern=r"^sess_[0-9a-f]{32}$")] | None = None
    created_at__gte: Moment | None = None
    created_at__lt: Moment | None = None
    metadata: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ] = Field(default_factory=dict, max_length=16)


class BulkCreate(Question):
    """A verb and the runs it is for. With `dry_run` it is only shown and cannot be started."""

    model_config = example(verb="cancel", filter={"status": ["queued"]}, dry_run=True)

    verb: Literal["cancel", "pause", "resume", "retry"]
    filter: BulkFilter
    reason: Annotated[str, StringConstraints(max_length=500)] = ""
    dry_run: bool = True


class BulkStart(Question):
    """The confirmation: the token of the answer, and the number of runs as it was read."""

    confirm_token: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    confirm_count: Annotated[int, Field(ge=0, le=bulk.MOST)]


class BulkItemShape(Shape):
    run: str
    outcome: Literal["pending", "done", "refused"]
    code: str | None
    detail: str | None


class Bulk(Shape):
    """One verb for a frozen set of runs."""

    id: str
    object: Literal["bulk_operation"]
    verb: str
    status: Literal["preview", "ready", "running", "completed", "aborted"]
    filter: dict[str, Any]
    reason: str | None
    total: int
    done: int
    refused: int
    items: list[BulkItemShape]
    confirm_token: str | None = Field(description="In the answer that made it, and in no other.")
    created_by: str
    created_at: datetime
    expires_at: datetime
    started_by: str | None
    started_at: datetime | None
    ended_at: datetime | None


BULK_ID = docs.id_in_path("operation_id", "bulk")


def bulk_json(row: BulkOperation) -> dict[str, Any]:
    """A bulk operation with its items, without what starts it."""
    items = [
        BulkItemShape(
            run=public_id("run", item.run_id),
            outcome=item.outcome.lower(),
            code=item.code or None,
            detail=item.detail or None,
        )
        for item in row.items.order_by("ordinal")
    ]
    counts = row.items.aggregate(
        done=Count("id", filter=Q(outcome="DONE")), refused=Count("id", filter=Q(outcome="REFUSED"))
    )
    return Bulk(
        id=public_id("bulk", row.id),
        object="bulk_operation",
        verb=row.verb,
        status=row.status.lower(),
        filter=row.filter,
        reason=row.reason or None,
        total=row.total,
        items=items,
        confirm_token=None,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        started_by=row.started_by or None,
        started_at=row.started_at,
        ended_at=row.ended_at,
        **counts,
    ).model_dump(mode="json")


def _filter_of(asked: BulkFilter) -> RunFilter:
    return RunFilter(
        statuses=tuple(asked.status),
        agents=tuple(asked.agent),
        has=tuple(asked.has),
        session=parse_id("sess", asked.session) if asked.session else None,
        created_from=asked.created_at__gte,
        created_before=asked.created_at__lt,
        metadata=asked.metadata,
    )


class BulksView(ApiView):
    """`/bulk_operations`"""

    scopes = {"POST": "bulk:write"}

    @docs.operation(
        "create_bulk_operation",
        summary="Prepare one verb for many runs",
        description="Freezes the ids of the runs that fit now, at most 1000. Nothing happens yet. "
        "Unless it is a `dry_run` it can be started within 30 minutes, with the token of this "
        "answer and the count. The scope of the verb is needed, too.",
        tag="bulk",
        once=True,
        session=False,
        request=BulkCreate,
        ok={201: (Bulk, "The operation and its runs.")},
    )
    def post(self, request: Request) -> Response:
        no_parameters(request)
        once = once_of(
            request,
            route="/api/v1/bulk_operations",
            answer=lambda operation: (201, bulk_json(operation)),
        )
        asked = body_of(request, BulkCreate)
        wanted = _filter_of(asked.filter)
        bulk.check_narrow(wanted)
        response = answer_once(
            once,
            lambda guard: bulk.make_bulk(
                caller=caller_of(request),
                verb=asked.verb,
                wanted=wanted,
                shown_filter=asked.filter.model_dump(mode="json", exclude_defaults=True),
                reason=asked.reason,
                dry_run=asked.dry_run,
                within=guard,
            ),
        )
        body = response.data
        if body["status"] == "ready" and body["confirm_token"] is None:  # stored nowhere
            made = id_of("bulk", body["id"], what="bulk operation")
            body["confirm_token"] = bulk.token_of(made)
        return response


class BulkView(ApiView):
    """`/bulk_operations/{id}`"""

    scopes = {"GET": "bulk:write"}

    @docs.operation(
        "get_bulk_operation",
        summary="Get a bulk operation and what became of each run",
        tag="bulk",
        session=False,
        params=[BULK_ID],
        ok={200: (Bulk, "The operation.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, operation_id: str) -> Response:
        no_parameters(request)
        wanted = id_of("bulk", operation_id, what="bulk operation")
        row = bulk.operations_seen_by(caller_of(request)).filter(id=wanted).first()
        if row is None:
            raise missing("bulk operation")
        return Response(bulk_json(row))


class BulkStartView(ApiView):
    """`/bulk_operations/{id}/start`"""

    scopes = {"POST": "bulk:write"}

    @docs.operation(
        "start_bulk_operation",
        summary="Start a bulk operation",
        tag="bulk",
        once=True,
        session=False,
        request=BulkStart,
        params=[BULK_ID],
        ok={202: (Bulk, "It is running.")},
        problems={404: "`not_found`", 409: "`bulk_not_ready`"},
    )
    def post(self, request: Request, operation_id: str) -> Response:
        no_parameters(request)
        once = once_of(
            request,
            route=f"/api/v1/bulk_operations/{operation_id}/start",
            answer=lambda row: (202, bulk_json(row)),
        )
        asked = body_of(request, BulkStart)
        wanted = id_of("bulk", operation_id, what="bulk operation")

        def start(guard: Any) -> object:
            row = bulk.start_bulk(
                caller=caller_of(request),
                operation_id=wanted,
                token=asked.confirm_token,
                count=asked.confirm_count,
                within=guard,
            )
            return row or _no_such()

        return answer_once(once, start)


def _no_such() -> object:
    raise missing("bulk operation")


class BulkAbortView(ApiView):
    """`/bulk_operations/{id}/abort`"""

    scopes = {"POST": "bulk:write"}

    @docs.operation(
        "abort_bulk_operation",
        summary="Stop a bulk operation before its next run",
        tag="bulk",
        once=True,
        session=False,
        request=Reason,
        params=[BULK_ID],
        ok={200: (Bulk, "The operation.")},
        problems={404: "`not_found`"},
    )
    def post(self, request: Request, operation_id: str) -> Response:
        no_parameters(request)
        once = once_of(
            request,
            route=f"/api/v1/bulk_operations/{operation_id}/abort",
            answer=lambda row: (200, bulk_json(row)),
        )
        body_of(request, Reason)
        wanted = id_of("bulk", operation_id, what="bulk operation")
        return answer_once(
            once,
            lambda guard: (
                bulk.abort_bulk(caller=caller_of(request), operation_id=wanted, within=guard)
                or _no_such()
            ),
        )
