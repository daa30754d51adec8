"""Reading requests: query parameters, bodies, ids, and the key that makes a request happen once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.http import HttpResponse
from pydantic import BaseModel, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.values import Json
from runs import listing
from runs.api import idempotency
from runs.api.auth import caller_of, user_of
from runs.api.ids import parse_id
from runs.api.pagination import Page, invalid_query, page_of, refuse_unknown
from runs.api.schemas import time_in
from runs.models import Run
from runs.once import Answer, Guard, Once, answered_once
from runs.refusals import Refused
from runs.starting import Caller, refused_fields

Body = TypeVar("Body", bound=BaseModel)
_ETAG = re.compile(r'(?:W/)?"rev-(0|[1-9][0-9]{0,17})"')


def body_of(request: Request, shape: type[Body]) -> Body:
    """The body as `shape`. Raises `Refused` (invalid_input) with a pointer for each fault."""
    try:
        return shape.model_validate(request.data)
    except ValidationError as error:
        raise refused_fields(error) from None


def id_of(prefix: str, text: str, *, what: str) -> UUID:
    """The UUID in a public id of a path. Raises `Refused` (not_found) for anything else."""
    found = parse_id(prefix, text)
    if found is None:
        raise missing(what)
    return found


def missing(what: str) -> Refused:
    """`not_found`: also the answer about what another tenant has."""
    return Refused(
        code="not_found", detail=f"There is no {what} with this id that the caller may see."
    )


def run_or_404(request: Request, text: str) -> Run:
    """The run of a path, with its agent version. Raises `Refused` (not_found)."""
    run_id = id_of("run", text, what="run")
    run = listing.run_of(caller=caller_of(request), run_id=run_id)
    if run is None:
        raise missing("run")
    return run


def expected_revision(request: Request) -> int | None:
    """The revision that `If-Match` asks for, or None. Raises `Refused` (revision_mismatch)."""
    header = request.META.get("HTTP_IF_MATCH", "").strip()
    if header in ("", "*"):
        return None
    match = _ETAG.fullmatch(header)
    if match is None:
        raise Refused(
            code="revision_mismatch",
            detail='If-Match must be the ETag of the run, such as "rev-17", or be left out.',
        )
    return int(match[1])


# --- query parameters ------------------------------------------------------------------------


def page_and(request: Request, *names: str, metadata: bool = False) -> Page:
    """The page asked for; refuses every parameter but `after`, `limit` and `names`."""
    return page_of(request.query_params, names, metadata=metadata)


def no_parameters(request: Request, *allowed: str) -> None:
    refuse_unknown(request.query_params, allowed)


def words(request: Request, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """`name=a,b` as words of `allowed`; empty when the parameter is left out."""
    text = request.query_params.get(name)
    if text is None:
        return ()
    found = tuple(dict.fromkeys(text.split(",")))
    if not set(found) <= set(allowed):
        raise invalid_query(name, "unknown_value", f"must be of: {', '.join(allowed)}.")
    return found


def names_of(request: Request, name: str) -> tuple[str, ...]:
    """`name=a,b` as free words."""
    text = request.query_params.get(name)
    found = tuple(dict.fromkeys(part for part in (text or "").split(",") if part))
    if text is not None and not found:
        raise invalid_query(name, "empty", "must name something, or be left out.")
    return found


def text_of(request: Request, name: str) -> str:
    """One text; "" when left out."""
    text: str | None = request.query_params.get(name)
    if text == "":
        raise invalid_query(name, "empty", "must be a text, or be left out.")
    return text or ""


def moment_of(request: Request, name: str) -> datetime | None:
    """A time of RFC 3339."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = time_in(text)
    if found is not None:
        return found
    raise invalid_query(name, "not_a_time", "must be a time as in 2030-01-31T12:00:00Z.")


def id_in_query(request: Request, name: str, prefix: str) -> UUID | None:
    """A public id; None when left out."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = parse_id(prefix, text)
    if found is None:
        raise invalid_query(name, "not_an_id", f"must be {prefix}_ and 32 hex digits.")
    return found


def number_of(request: Request, name: str, *, most: int) -> int:
    """A whole number from 0 to `most`; 0 when left out."""
    text = request.query_params.get(name)
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= most:
        return int(text)
    raise invalid_query(name, "out_of_range", f"must be a whole number from 0 to {most}.")


def metadata_of(request: Request) -> dict[str, str]:
    """`metadata[key]=value` parameters."""
    return {
        name[len("metadata[") : -1]: request.query_params[name]
        for name in request.query_params
        if name.startswith("metadata[") and name.endswith("]")
    }


# --- once ------------------------------------------------------------------------------------


def once_of(
    request: Request, *, route: str, answer: Callable[[Any], tuple[int, Json]], key: str = ""
) -> Once:
    """The key of this request, bound to its caller, `route` and body."""
    user = user_of(request)
    caller: Caller = user.caller
    return Once(
        principal=f"{caller.tenant}/{caller.principal}",
        method=request.method or "",
        route=route,
        key=key or idempotency.key_of(request),
        body_sha256=idempotency.body_sha256(request.data),
        answer=answer,
        tenant=caller.tenant,
        token=user.remembered_by,
    )


def answer_once(once: Once, act: Callable[[Guard], object]) -> Response:
    """Run a use case once and answer, or give the stored answer again."""
    return respond(answered_once(once=once, act=act))


def respond(answer: Answer, **headers: str) -> Response:
    if answer.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(answer.body, status=answer.status, headers=headers)


def respond_at_once(answer: Answer, **headers: str) -> HttpResponse:
    """As `respond`, written here instead of by a renderer: a twentieth of the time of a start."""
    if answer.replayed:
        headers["Idempotency-Replayed"] = "true"
    text = json.dumps(answer.body, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(
        text, status=answer.status, content_type="application/json", headers=headers
    )
