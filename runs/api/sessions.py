"""Sessions: the runs of one conversation, and what was said in them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Q
from pydantic import Field, JsonValue, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from runs import listing, services
from runs.api import docs
from runs.api.asking import answer_once, body_of, id_of, missing, no_parameters, once_of, page_and
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Question, RunList, Shape, example
from runs.api.views import runs_json
from runs.models import Run
from runs.rest_models import Session as SessionRow

SESSION_ID = docs.id_in_path("session_id", "sess")
ITEM_CURSOR = docs.query(
    "after",
    "`last_id` of the page before; left out for the first page.",
    {"type": "string", "pattern": r"^item_[0-9a-f]{32}_[12]$"},
)
_ITEM = re.compile(r"item_([0-9a-f]{32})_([12])")


class SessionCreate(Question):
    """A new session."""

    model_config = example(metadata={"case": "77"})

    agent: Annotated[str, StringConstraints(min_length=1, max_length=80)] | None = Field(
        default=None, description="Only runs of this agent may join."
    )
    metadata: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ] = Field(default_factory=dict, max_length=16)


class Session(Shape):
    """Groups the runs of one conversation. At most one of them works at a time."""

    id: str
    object: Literal["session"]
    agent: str | None
    metadata: dict[str, str]
    created_by: str
    created_at: datetime


class SessionList(ListShape[Session]):
    """Sessions, newest first."""


class SessionItem(Shape):
    """What was asked of one run of the session, or what it answered."""

    id: str
    object: Literal["session_item"]
    run: str
    role: Literal["user", "assistant"]
    content: JsonValue
    created_at: datetime


class SessionItemList(ListShape[SessionItem]):
    """Items, oldest first: the question of each run, and its answer once it has ended."""


def session_json(row: SessionRow) -> dict[str, Any]:
    return Session(
        id=public_id("sess", row.id),
        object="session",
        agent=row.agent or None,
        metadata=row.metadata,
        created_by=row.created_by,
        created_at=row.created_at,
    ).model_dump(mode="json")


def items_of(run: Run) -> list[dict[str, Any]]:
    """The one or two items of a run."""
    found = [("user", run.input, run.created_at)]
    if run.ended_at is not None and run.output is not None:
        found.append(("assistant", run.output, run.ended_at))
    return [
        SessionItem(
            id=f"item_{run.id.hex}_{number}",
            object="session_item",
            run=public_id("run", run.id),
            role=role,
            content=content,
            created_at=at,
        ).model_dump(mode="json")
        for number, (role, content, at) in enumerate(found, start=1)
    ]


def _session_or_404(request: Request, text: str) -> SessionRow:
    wanted = id_of("sess", text, what="session")
    row = listing.session_of(caller=caller_of(request), session_id=wanted)
    if row is None:
        raise missing("session")
    return row


class SessionsView(ApiView):
    """`/sessions`"""

    scopes = {"GET": "sessions:read", "POST": "sessions:write"}

    @docs.operation(
        "list_sessions",
        summary="List sessions, newest first",
        tag="sessions",
        params=docs.PAGE,
        ok={200: (SessionList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request)
        after = cursor_of(page, lambda text: parse_id("sess", text))
        rows = listing.sessions_seen_by(caller_of(request)).order_by("-id")
        follows = None if after is None else Q(id__lt=after)
        found, more = listing.page(rows, follows, page.limit)
        return Response(list_json([session_json(row) for row in found], more))

    @docs.operation(
        "create_session",
        summary="Make a session",
        tag="sessions",
        once=True,
        session=False,
        request=SessionCreate,
        ok={201: (Session, "The session.")},
        problems={403: "`agent_forbidden`"},
    )
    def post(self, request: Request) -> Response:
        no_parameters(request)
        once = once_of(
            request, route="/api/v1/sessions", answer=lambda row: (201, session_json(row))
        )
        asked = body_of(request, SessionCreate)
        return answer_once(
            once,
            lambda guard: services.create_session(
                caller=caller_of(request),
                agent=asked.agent or "",
                metadata=asked.metadata,
                within=guard,
            ),
        )


class SessionView(ApiView):
    """`/sessions/{id}`"""

    scopes = {"GET": "sessions:read", "DELETE": "sessions:write"}

    @docs.operation(
        "get_session",
        summary="Get a session",
        tag="sessions",
        params=[SESSION_ID],
        ok={200: (Session, "The session.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, session_id: str) -> Response:
        no_parameters(request)
        return Response(session_json(_session_or_404(request, session_id)))

    @docs.operation(
        "delete_session",
        summary="Delete a session",
        description="Its runs stay; none can join any more.",
        tag="sessions",
        session=False,
        params=[SESSION_ID],
        ok={204: (None, "It is gone.")},
        problems={404: "`not_found`", 409: "`session_busy`"},
    )
    def delete(self, request: Request, session_id: str) -> Response:
        no_parameters(request)
        services.delete_session(session=_session_or_404(request, session_id))
        return Response(status=204)


class SessionRunsView(ApiView):
    """`/sessions/{id}/runs`"""

    scopes = {"GET": "runs:read"}

    @docs.operation(
        "list_session_runs",
        summary="List the runs of a session, newest first",
        tag="sessions",
        params=[SESSION_ID, *docs.PAGE],
        ok={200: (RunList, "One page.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, session_id: str) -> Response:
        page = page_and(request)
        row = _session_or_404(request, session_id)
        found, more = listing.runs_page(
            caller=caller_of(request),
            wanted=listing.RunFilter(session=row.id),
            after=cursor_of(page, lambda text: parse_id("run", text)),
            limit=page.limit,
        )
        return Response(list_json(runs_json(found), more))


class SessionItemsView(ApiView):
    """`/sessions/{id}/items`"""

    scopes = {"GET": "runs:read"}

    @docs.operation(
        "list_session_items",
        summary="List what was said in a session, oldest first",
        tag="sessions",
        params=[SESSION_ID, ITEM_CURSOR, docs.PAGE[1]],
        ok={200: (SessionItemList, "One page.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, session_id: str) -> Response:
        page = page_and(request)
        row = _session_or_404(request, session_id)
        after = cursor_of(page, _item_place)
        rows = listing.runs_seen_by(caller_of(request)).filter(session_id=row.id).order_by("id")
        if after is not None:
            rows = rows.filter(id__gte=after[0])
        runs = list(rows[: page.limit + 2])
        items = [item for run in runs for item in items_of(run)]
        if after is not None:
            last = f"item_{after[0].hex}_{after[1]}"
            items = [item for item in items if item["id"] > last]
        return Response(list_json(items[: page.limit], len(items) > page.limit))


def _item_place(text: str) -> tuple[UUID, int] | None:
    match = _ITEM.fullmatch(text)
    return (UUID(hex=match[1]), int(match[2])) if match else None
