"""Events: those of one run, and the feed of all runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from runs import selectors
from runs.api import docs, render
from runs.api.asking import names_of, page_and, run_or_404
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.hub import DONE, read_pages
from runs.api.ids import parse_event_id
from runs.api.pagination import Page, cursor_of, list_json
from runs.api.schemas import EventList
from runs.feed import CursorTooOld, feed_page
from runs.models import Run
from runs.refusals import Refused
from runs.selectors import ALONE, Kin

EVENT_STREAM = "text/event-stream"
LAST_EVENT_ID = OpenApiParameter(
    name="Last-Event-ID",
    location=OpenApiParameter.HEADER,
    type=str,
    description="For a stream: the `id` of the last event that was read.",
)


class RunEventsView(ApiView):
    """`/runs/{id}/events`"""

    scopes = {"GET": "events:read"}

    @docs.operation(
        "list_run_events",
        summary="List the events of a run, oldest first",
        description="Every event is one transaction of the runtime on the run. With `Accept: "
        "text/event-stream` the log is streamed from `Last-Event-ID` (a `seq`) or `after` on: "
        "nothing is left out or repeated across any number of connections. A run that has ended is "
        "replayed, then `event: done` follows. A server without ASGI replays and closes; the "
        "client comes back by itself.",
        tag="events",
        params=[docs.RUN_ID, LAST_EVENT_ID, *docs.PAGE],
        ok={200: (EventList, "One page.")},
        stream="Events as `id`, `event` and `data` lines.",
        problems={404: "`not_found`", 410: "`event_cursor_expired`"},
    )
    def get(self, request: Request, run_id: str) -> Response | HttpResponse:
        page = page_and(request)
        run = run_or_404(request, run_id)
        if wants_stream(request):
            return _replay(run, _cursor(request, run, page))
        after = cursor_of(page, lambda text: _seq_in(run.id, text)) or 0
        events, more = selectors.events_page(run_id=run.id, after=after, limit=page.limit)
        kin = Kin(run.parent_id, run.root_id)
        return Response(list_json([render.event_json(event, kin) for event in events], more))


class EventsView(ApiView):
    """`/events`"""

    scopes = {"GET": "events:read"}

    @docs.operation(
        "list_events",
        summary="List the events of all runs, oldest first",
        description="A feed without gaps over 30 days, in the order of time; inside one run that "
        "is the order of `seq`. Ask again with `after` until `has_more` is false, then from time "
        "to time.",
        tag="events",
        params=[*docs.PAGE, docs.query("type", "Types of events, with commas.")],
        ok={200: (EventList, "One page.")},
        problems={410: "`event_cursor_expired`"},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request, "type")
        after = cursor_of(page, parse_event_id)
        types = names_of(request, "type")
        try:
            events, more = feed_page(
                caller=caller_of(request), after=after, types=types, limit=page.limit
            )
        except CursorTooOld:
            raise Refused(
                code="event_cursor_expired",
                detail="The feed does not hold this event any more. Begin again without `after`.",
            ) from None
        kin = selectors.kin_of(run_ids=[event.run_id for event in events])
        shown = [render.event_json(event, kin.get(event.run_id, ALONE)) for event in events]
        return Response(list_json(shown, more))


# --- event streams -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admission:
    """A stream that may be opened: the log of `run_id` after `after`."""

    run_id: UUID
    after: int


def wants_stream(request: Request) -> bool:
    return EVENT_STREAM in request.META.get("HTTP_ACCEPT", "").lower()


def admit(request: HttpRequest, run_id: str) -> Admission | HttpResponse:
    """Check a request for a stream as every request is checked; the refusal, or what to stream."""
    answer = _gate(request, run_id=run_id)
    admission = getattr(answer, "admission", None)
    return admission if isinstance(admission, Admission) else answer


class _AdmissionView(ApiView):
    """Answers with what a stream may show; `admit` alone calls it."""

    scopes = {"GET": "events:read"}

    def get(self, request: Request, run_id: str) -> Response:
        page = page_and(request)
        run = run_or_404(request, run_id)
        response = Response({})
        response.admission = Admission(run.id, _cursor(request, run, page))  # type: ignore[attr-defined]
        return response


def _gate(request: HttpRequest, *, run_id: str) -> HttpResponse:
    """The answer of the plain route's checks, with the session of the admin site read before."""
    view = _AdmissionView.as_view()

    def answer(inner: HttpRequest) -> HttpResponse:
        response: Any = view(inner, run_id=run_id)
        return response.render()  # type: ignore[no-any-return]

    whole: Any = SessionMiddleware(AuthenticationMiddleware(answer))(request)
    return whole  # type: ignore[no-any-return]


def _cursor(request: Request, run: Run, page: Page) -> int:
    """Where a stream begins. Raises `Refused` for a cursor that the run's log does not have."""
    header = request.META.get("HTTP_LAST_EVENT_ID", "").strip()
    if header:
        seq = int(header) if header.isascii() and header.isdigit() and len(header) < 19 else -1
    elif page.after is not None and page.after.isascii() and page.after.isdigit():
        seq = int(page.after[:18])
    else:
        seq = cursor_of(page, lambda text: _seq_in(run.id, text)) or 0
    if not 0 <= seq <= run.event_seq:
        raise Refused(
            code="event_cursor_expired",
            detail="The run has no event with this number. Begin again without Last-Event-ID.",
        )
    return seq


def _replay(run: Run, after: int) -> HttpResponse:
    """What is there after the cursor, and no more: this server does not hold connections."""
    page = read_pages([(run.id, after)])[run.id, after]
    body = b"retry: 1000\n\n" + page.chunk + (DONE if page.ended else b"")
    return HttpResponse(body, content_type=f"{EVENT_STREAM}; charset=utf-8")


def _seq_in(run_id: UUID, text: str) -> int | None:
    found = parse_event_id(text)
    return found[1] if found and found[0] == run_id else None
