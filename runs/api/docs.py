"""What the OpenAPI document says about a route: one decorator knows what all have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from runs.api.pagination import DEFAULT_LIMIT, MAX_LIMIT
from runs.api.schemas import Problem

PROBLEM = "application/problem+json"
JSON = "application/json"
EVENTS = "text/event-stream"
TOKEN_AUTH: Any = [{"bearer": []}]
ANY_AUTH: Any = [{"bearer": []}, {"session": []}]

IDEMPOTENCY_KEY = OpenApiParameter(
    name="Idempotency-Key",
    location=OpenApiParameter.HEADER,
    required=True,
    type={"type": "string", "pattern": r'^([!#-+\--~]{1,255}|"[ !#-\[\]-~]{1,255}")$'},
    description="1 to 255 visible characters, plain or as an RFC 8941 string. A repetition with "
    "the same body gets the first answer, with `Idempotency-Replayed: true`.",
)
IF_MATCH = OpenApiParameter(
    name="If-Match",
    location=OpenApiParameter.HEADER,
    type=str,
    description='`"rev-N"`: do it only if the run still has this revision.',
)
IF_NONE_MATCH = OpenApiParameter(
    name="If-None-Match",
    location=OpenApiParameter.HEADER,
    type=str,
    description="The ETag that is known already.",
)
PAGE = [
    OpenApiParameter(
        name="after",
        type={"type": "string", "pattern": r"^[a-z]{2,5}_[0-9a-f]{32}(_[1-9][0-9]{0,17})?$"},
        description="`last_id` of the page before; left out for the first page.",
    ),
    OpenApiParameter(
        name="limit",
        type={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        description=f"1 to {MAX_LIMIT}.",
    ),
]


def id_in_path(name: str, prefix: str) -> OpenApiParameter:
    """The id of an object in the path."""
    return OpenApiParameter(
        name=name,
        location=OpenApiParameter.PATH,
        required=True,
        type={"type": "string", "pattern": f"^{prefix}_[0-9a-f]{{32}}$"},
        description=f"`{prefix}_` and 32 hex digits.",
    )


def name_in_path(name: str, description: str) -> OpenApiParameter:
    return OpenApiParameter(
        name=name,
        location=OpenApiParameter.PATH,
        required=True,
        type={"type": "string", "pattern": r"^[A-Za-z0-9_.-]{1,120}$"},
        description=description,
    )


def query(name: str, description: str, schema: Mapping[str, Any] | None = None) -> OpenApiParameter:
    return OpenApiParameter(
        name=name, type=dict(schema or {"type": "string"}), description=description
    )


def header(name: str, description: str, *statuses: int) -> OpenApiParameter:
    """A header of the answers with these statuses."""
    return OpenApiParameter(
        name=name,
        location=OpenApiParameter.HEADER,
        type=str,
        description=description,
        response=list(statuses),
    )


RUN_ID = id_in_path("run_id", "run")
REPLAYED = "`true` when an earlier request with this key was answered so."


def operation(
    name: str,
    *,
    summary: str,
    tag: str,
    ok: Mapping[int, tuple[Any, str]],
    description: str = "",
    request: Any = None,
    once: bool = False,
    session: bool = True,
    params: Sequence[OpenApiParameter] = (),
    problems: Mapping[int, str] | None = None,
    stream: str = "",
) -> Callable[[Any], Any]:
    """Document one method of a view.

    `ok`: status -> (shape or None, what it is). `problems`: status -> codes, beside those that
    every route has. `once`: the route takes an Idempotency-Key. `session`: the session of the admin
    site will do. `stream`: what the route answers as an event stream.
    """
    found: list[OpenApiParameter] = list(params)
    if once:
        found += [IDEMPOTENCY_KEY, header("Idempotency-Replayed", REPLAYED, *ok)]
    responses: dict[Any, Any] = {}
    for status, (shape, text) in ok.items():
        key = (status, JSON) if shape is not None else status
        responses[key] = OpenApiResponse(response=shape, description=text)
    if stream:
        responses[200, EVENTS] = OpenApiResponse(response=str, description=stream)
    codes = _problems(problems or {}, body=request is not None, once=once)
    for status, text in sorted(codes.items()):
        responses[status, PROBLEM] = OpenApiResponse(response=Problem, description=text)
    return extend_schema(
        operation_id=name,
        summary=summary,
        description=description or summary + ".",
        tags=[tag],
        auth=ANY_AUTH if session else TOKEN_AUTH,
        request={JSON: request} if request is not None else None,
        parameters=found,
        responses=responses,
    )


def _problems(more: Mapping[int, str], *, body: bool, once: bool) -> dict[int, str]:
    """Status -> codes of a route."""
    codes: dict[int, list[str]] = {
        401: ["`unauthenticated`"],
        403: ["`scope_missing`"],
        422: ["`invalid_input`"],
        429: ["`rate_limited`, with `Retry-After`"],
        503: ["`database_unavailable`, with `Retry-After`"],
    }
    if body:
        codes[400] = ["`malformed_json`"]
        codes[413] = ["`body_too_large`"]
        codes[415] = ["`unsupported_media_type`"]
    if once:
        codes.setdefault(400, []).append("`idempotency_key_missing`")
        codes.setdefault(409, []).append("`idempotency_in_progress` (with `Retry-After`)")
        codes[422].append("`idempotency_key_reused`")
    for status, text in more.items():
        codes.setdefault(status, []).append(text)
    return {status: ", ".join(texts) for status, texts in codes.items()}
