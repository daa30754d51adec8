"""Runs: start, list, read, cancel; the reader of the OpenAPI document."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.budgets import micros
from agentcore.values import Priority
from runs import listing, selectors, services
from runs.api import docs, render, waiting
from runs.api.actions import ActionRef, ref_of
from runs.api.asking import (
    answer_once,
    body_of,
    expected_revision,
    id_in_query,
    metadata_of,
    moment_of,
    names_of,
    no_parameters,
    number_of,
    once_of,
    page_and,
    respond_at_once,
    run_or_404,
    text_of,
    words,
)
from runs.api.auth import caller_of
from runs.api.base import ApiView, trace_id_of
from runs.api.ids import parse_id
from runs.api.pagination import cursor_of, list_json
from runs.api.remembering import RemembersCallers
from runs.api.schemas import Reason, RunCreate, RunList
from runs.api.schemas import Run as RunShape
from runs.api.started import started_json
from runs.api.status import STATUSES
from runs.listing import HAS, RunFilter
from runs.models import Run
from runs.starting import BudgetRequest, StartRun

ETAG = docs.header("ETag", '`"rev-N"`, N the revision of the run.', 200)
FILTERS = [
    docs.query("status", f"Of: {', '.join(STATUSES)}; several with commas."),
    docs.query("agent", "Names of agents, with commas."),
    docs.query("has", f"Of: {', '.join(HAS)}: only runs with such an action."),
    docs.query("session", "Only runs of this session."),
    docs.query("parent", "Only runs that this run asked for."),
    docs.query("dedupe_key", "Only runs with this business key."),
    docs.query(
        "created_at__gte", "Not older than this.", {"type": "string", "format": "date-time"}
    ),
    docs.query("created_at__lt", "Older than this.", {"type": "string", "format": "date-time"}),
]
FILTER_NAMES = tuple(item.name for item in FILTERS)


class CancelledRun(RunShape):
    """A run after a cancel. `cancelling` turns to `cancelled` when nothing is in flight."""

    in_flight_actions: list[ActionRef] = Field(
        description="Writes that were sent and cannot be stopped; their fate is found out first."
    )


class RunsView(RemembersCallers):
    """`/runs`"""

    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @docs.operation(
        "start_run",
        summary="Start a run",
        description="Commits the run and answers. Workers take it from the database; this call "
        "does not wait for them, nor for the message broker.",
        tag="runs",
        once=True,
        session=False,
        request=RunCreate,
        params=[docs.header("Location", "Path of the run.", 201)],
        ok={201: (RunShape, "The run.")},
        problems={
            403: "`agent_forbidden`",
            409: "`dedupe_open_run`, `session_busy`",
            503: "`agent_paused`",
        },
    )
    def post(self, request: Request) -> HttpResponse:
        no_parameters(request)
        once = once_of(
            request,
            route="/api/v1/runs",
            answer=lambda run: (201, started_json(run)),
        )
        asked = _start_request(body_of(request, RunCreate), trace_id_of(request))
        caller = caller_of(request)
        answer = services.start_run_once(caller=caller, request=asked, once=once)
        here: Any = answer.body
        return respond_at_once(answer, Location=here["links"]["self"])

    @docs.operation(
        "list_runs",
        summary="List runs, newest first",
        description="The runs of the caller's tenant. `metadata[key]=value` narrows the list, too.",
        tag="runs",
        params=[*docs.PAGE, *FILTERS],
        ok={200: (RunList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request, *FILTER_NAMES, metadata=True)
        runs, more = listing.runs_page(
            caller=caller_of(request),
            wanted=run_filter(request),
            after=cursor_of(page, lambda text: parse_id("run", text)),
            limit=page.limit,
        )
        return Response(list_json(runs_json(runs), more))


def run_filter(request: Request) -> RunFilter:
    """The filter that the query parameters make."""
    return RunFilter(
        statuses=words(request, "status", STATUSES),
        agents=names_of(request, "agent"),
        has=words(request, "has", tuple(HAS)),
        session=id_in_query(request, "session", "sess"),
        parent=id_in_query(request, "parent", "run"),
        dedupe_key=text_of(request, "dedupe_key"),
        created_from=moment_of(request, "created_at__gte"),
        created_before=moment_of(request, "created_at__lt"),
        metadata=metadata_of(request),
    )


def runs_json(runs: list[Run]) -> list[dict[str, Any]]:
    facts = selectors.facts_of(
        run_ids=[run.id for run in runs], parents=[run.id for run in runs if run.handoffs_lent]
    )
    return [render.run_json(run, facts[run.id]) for run in runs]


def run_json(run: Run) -> dict[str, Any]:
    """One run with its facts, read now."""
    return runs_json([run])[0]


class RunView(ApiView):
    """`/runs/{id}`"""

    scopes = {"GET": "runs:read"}

    @docs.operation(
        "get_run",
        summary="Get a run",
        description="What the run is doing now, or how it ended. With `wait` the answer comes when "
        "the status changes or the run ends, at the latest after so many seconds; with "
        "`If-None-Match` as soon as the run has another revision than that of the ETag.",
        tag="runs",
        params=[
            docs.RUN_ID,
            ETAG,
            docs.query(
                "wait",
                "Seconds to wait for a change, 0 to 30.",
                {"type": "integer", "minimum": 0, "maximum": 30, "default": 0},
            ),
            docs.IF_NONE_MATCH,
        ],
        ok={200: (RunShape, "The run."), 304: (None, "Still the revision of If-None-Match.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, run_id: str) -> Response:
        no_parameters(request, "wait")
        seconds = number_of(request, "wait", most=30)
        run = run_or_404(request, run_id)
        body = waiting.until_changed(
            run=run,
            known=request.META.get("HTTP_IF_NONE_MATCH", "").strip(),
            seconds=seconds,
            read=lambda: run_json(run_or_404(request, run_id)),
        )
        tag = waiting.tag_of(body)
        if request.META.get("HTTP_IF_NONE_MATCH", "").strip() == tag:
            return Response(status=304, headers={"ETag": tag})
        return Response(body, headers={"ETag": tag})


class CancelView(ApiView):
    """`/runs/{id}/cancel`"""

    scopes = {"POST": "runs:write"}

    @docs.operation(
        "cancel_run",
        summary="Cancel a run",
        description="Nothing new starts from now on. `cancelling` turns to `cancelled` only when "
        "nothing is in flight any more; `in_flight_actions` lists writes that cannot be stopped. "
        "Closing a connection never cancels anything.",
        tag="runs",
        once=True,
        session=False,
        request=Reason,
        params=[docs.RUN_ID, docs.IF_MATCH],
        ok={
            200: (CancelledRun, "The run has ended, by this or before."),
            202: (CancelledRun, "The run is stopping."),
        },
        problems={404: "`not_found`", 412: "`revision_mismatch`"},
    )
    def post(self, request: Request, run_id: str) -> Response:
        no_parameters(request)
        once = once_of(request, route=f"/api/v1/runs/{run_id}/cancel", answer=_cancelled)
        asked = body_of(request, Reason)
        run = run_or_404(request, run_id)
        revision = expected_revision(request)
        return answer_once(
            once,
            lambda guard: services.cancel_run(
                run_id=run.id,
                actor=caller_of(request).principal,
                reason=asked.reason,
                revision=revision,
                within=guard,
            ),
        )


def _cancelled(outcome: services.Cancellation) -> tuple[int, dict[str, Any]]:
    sent = [ref_of(action).model_dump(mode="json") for action in outcome.in_flight]
    body = {**run_json(outcome.run), "in_flight_actions": sent}
    return (200 if outcome.run.is_terminal else 202), body


class SwaggerView(SpectacularSwaggerSplitView):
    """`/docs`: Swagger UI from our own server. It styles itself inline, which the site forbids."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        response["Content-Security-Policy"] = (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        return response


def _start_request(parsed: RunCreate, trace_id: str) -> StartRun:
    asked = parsed.budget.model_dump() if parsed.budget else {}
    if asked.get("max_cost"):
        asked["max_cost"] = micros(asked["max_cost"])
    budget = BudgetRequest(**asked)
    return StartRun(
        agent=parsed.agent,
        version=parsed.version,
        input=parsed.input,
        metadata=parsed.metadata,
        dedupe_key=parsed.dedupe_key or "",
        budget=budget,
        trace_id=trace_id,
        on_behalf_of=parsed.on_behalf_of or "",
        session=parse_id("sess", parsed.session) if parsed.session else None,
        session_conflict=parsed.session_conflict,
        start_at=parsed.start_at,
        ttl=timedelta(seconds=parsed.ttl_seconds) if parsed.ttl_seconds is not None else None,
        priority=Priority(parsed.priority),
        dry_run=parsed.dry_run,
        webhook_endpoint=(
            parse_id("whep", parsed.webhook_endpoint) if parsed.webhook_endpoint else None
        ),
    )
