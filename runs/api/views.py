"""The routes: read the request, call one use case or selector, answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from pydantic import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from runs import selectors, services
from runs.api import docs, idempotency, render
from runs.api.auth import caller_of
from runs.api.base import ApiView, trace_id_of
from runs.api.ids import parse_event_id, parse_id
from runs.api.pagination import cursor_of, list_json, page_of, refuse_unknown
from runs.api.schemas import RunCreate
from runs.models import Run
from runs.refusals import Refused
from runs.selectors import RunFacts
from runs.starting import BudgetRequest, StartRun, refused_fields


class RunsView(ApiView):
    """`/runs`"""

    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @docs.start_run
    def post(self, request: Request) -> Response:
        refuse_unknown(request.query_params)
        key = idempotency.key_of(request)
        body = request.data
        asked = _start_request(body, trace_id_of(request))
        once = _once(request, key, body)
        answer = services.start_run_once(caller=caller_of(request), request=asked, once=once)
        headers = {"Location": answer.body["links"]["self"]}
        if answer.replayed:
            headers["Idempotency-Replayed"] = "true"
        return Response(answer.body, status=answer.status, headers=headers)

    @docs.list_runs
    def get(self, request: Request) -> Response:
        page = page_of(request.query_params)
        after = cursor_of(page, lambda text: parse_id("run", text))
        tenant = caller_of(request).tenant
        runs, more = selectors.runs_page(tenant=tenant, after=after, limit=page.limit)
        facts = selectors.facts_of(run_ids=[run.id for run in runs])
        return Response(list_json([render.run_json(run, facts[run.id]) for run in runs], more))


class RunView(ApiView):
    """`/runs/{id}`"""

    scopes = {"GET": "runs:read"}

    @docs.get_run
    def get(self, request: Request, run_id: str) -> Response:
        refuse_unknown(request.query_params)
        run = _run_or_404(request, run_id)
        tag = f'"rev-{run.revision}"'
        facts = selectors.facts_of(run_ids=[run.id])[run.id]
        return Response(render.run_json(run, facts), headers={"ETag": tag})


class RunEventsView(ApiView):
    """`/runs/{id}/events`"""

    scopes = {"GET": "events:read"}

    @docs.list_events
    def get(self, request: Request, run_id: str) -> Response:
        page = page_of(request.query_params)
        run = _run_or_404(request, run_id)
        after = cursor_of(page, lambda text: _seq_in(run.id, text)) or 0
        events, more = selectors.events_page(run_id=run.id, after=after, limit=page.limit)
        data = [render.event_shape(event).model_dump(mode="json") for event in events]
        return Response(list_json(data, more))


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


def _start_request(body: Any, trace_id: str) -> StartRun:
    try:
        parsed = RunCreate.model_validate(body)
    except ValidationError as error:
        raise refused_fields(error) from None
    budget = BudgetRequest(**parsed.budget.model_dump()) if parsed.budget else BudgetRequest()
    return StartRun(
        agent=parsed.agent,
        version=parsed.version,
        input=parsed.input,
        metadata=parsed.metadata,
        dedupe_key=parsed.dedupe_key or "",
        budget=budget,
        trace_id=trace_id,
    )


def _once(request: Request, key: str, body: Any) -> services.Once:
    caller = caller_of(request)
    return services.Once(
        principal=f"{caller.tenant}/{caller.principal}",
        method="POST",
        route="/api/v1/runs",
        key=key,
        body_sha256=idempotency.body_sha256(body),
        status=201,
        render=lambda run: render.run_json(run, RunFacts()),
    )


def _run_or_404(request: Request, text: str) -> Run:
    run_id = parse_id("run", text)
    run = run_id and selectors.find_run(tenant=caller_of(request).tenant, run_id=run_id)
    if not run:
        raise Refused(
            code="not_found", detail="There is no run with this id that the caller may see."
        )
    return run


def _seq_in(run_id: UUID, text: str) -> int | None:
    found = parse_event_id(text)
    return found[1] if found and found[0] == run_id else None
