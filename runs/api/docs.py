"""What the OpenAPI document says about each route."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from runs.api.pagination import DEFAULT_LIMIT, MAX_LIMIT
from runs.api.schemas import EventList, Problem, Run, RunCreate, RunList

PROBLEM = "application/problem+json"
WRITE_AUTH: Any = [{"bearer": []}]
READ_AUTH: Any = [{"bearer": []}, {"session": []}]

IDEMPOTENCY_KEY = OpenApiParameter(
    name="Idempotency-Key",
    location=OpenApiParameter.HEADER,
    required=True,
    type=str,
    description="1 to 255 visible characters, plain or as an RFC 8941 string. A repetition with "
    "the same body gets the first answer, with `Idempotency-Replayed: true`.",
)
RUN_ID = OpenApiParameter(
    name="run_id",
    location=OpenApiParameter.PATH,
    required=True,
    type=str,
    description="`run_` and 32 hex digits.",
)
PAGE = [
    OpenApiParameter(
        name="after",
        type=str,
        description="`last_id` of the page before; left out for the first page.",
    ),
    OpenApiParameter(
        name="limit", type=int, default=DEFAULT_LIMIT, description=f"1 to {MAX_LIMIT}."
    ),
]


def _header(name: str, description: str, *statuses: int) -> OpenApiParameter:
    return OpenApiParameter(
        name=name,
        location=OpenApiParameter.HEADER,
        type=str,
        description=description,
        response=list(statuses),
    )


def _problems(*more: tuple[int, str]) -> dict[tuple[int, str], Any]:
    common = (
        (401, "`unauthenticated`"),
        (403, "`scope_missing`"),
        (422, "`invalid_input`"),
        (503, "`database_unavailable`, with `Retry-After`"),
    )
    merged = dict(common) | dict(more)
    return {
        (status, PROBLEM): OpenApiResponse(response=Problem, description=text)
        for status, text in sorted(merged.items())
    }


start_run = extend_schema(
    operation_id="start_run",
    auth=WRITE_AUTH,
    summary="Start a run",
    description="Commits the run and answers. Workers take it from the database; this call does "
    "not wait for them, nor for the message broker.",
    tags=["runs"],
    request={"application/json": RunCreate},
    parameters=[
        IDEMPOTENCY_KEY,
        _header("Location", "Path of the run.", 201),
        _header("Idempotency-Replayed", "`true` when an earlier request made this run.", 201),
    ],
    responses={
        (201, "application/json"): OpenApiResponse(response=Run, description="The run."),
        **_problems(
            (400, "`malformed_json`, `idempotency_key_missing`"),
            (409, "`idempotency_in_progress` (with `Retry-After`), `dedupe_open_run`"),
            (413, "`body_too_large`"),
            (415, "`unsupported_media_type`"),
            (422, "`invalid_input`, `idempotency_key_reused`"),
        ),
    },
)

list_runs = extend_schema(
    operation_id="list_runs",
    auth=READ_AUTH,
    description="The runs of the caller's tenant.",
    summary="List runs, newest first",
    tags=["runs"],
    parameters=PAGE,
    responses={
        (200, "application/json"): OpenApiResponse(response=RunList, description="One page."),
        **_problems(),
    },
)

get_run = extend_schema(
    operation_id="get_run",
    auth=READ_AUTH,
    description="What the run is doing now, or how it ended.",
    summary="Get a run",
    tags=["runs"],
    parameters=[RUN_ID, _header("ETag", '`"rev-N"`, N the revision of the run.', 200)],
    responses={
        (200, "application/json"): OpenApiResponse(response=Run, description="The run."),
        **_problems((404, "`not_found`")),
    },
)

list_events = extend_schema(
    operation_id="list_events",
    auth=READ_AUTH,
    description="Every event is one transaction of the runtime on the run.",
    summary="List the events of a run, oldest first",
    tags=["runs"],
    parameters=[RUN_ID, *PAGE],
    responses={
        (200, "application/json"): OpenApiResponse(response=EventList, description="One page."),
        **_problems((404, "`not_found`")),
    },
)
