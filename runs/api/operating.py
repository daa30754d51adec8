"""What an operator does to a run: pause, resume, try again; and bulk operations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.budgets import micros
from runs import services
from runs.api import docs, render
from runs.api.asking import (
    answer_once,
    body_of,
    expected_revision,
    no_parameters,
    once_of,
    run_or_404,
)
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.schemas import Cost, Question, Reason, Tokens
from runs.api.schemas import Run as RunShape
from runs.api.views import run_json
from runs.models import Run
from runs.selectors import RunFacts

Limit = Annotated[int, Field(ge=1, le=10_000)]


class NewLimits(Question):
    """Limits from now on; they may also rise."""

    max_turns: Limit | None = None
    max_actions: Limit | None = None
    max_tokens: Tokens | None = None
    max_cost: Cost | None = None
    max_failures: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None, description="Calls that came to nothing."
    )


class Resume(Question):
    """How to let a run go on."""

    reason: Annotated[str, StringConstraints(max_length=500)] = ""
    budget: NewLimits | None = None


def _limits(asked: NewLimits) -> services.NewLimits:
    found = asked.model_dump()
    if asked.max_cost is not None:
        found["max_cost"] = micros(asked.max_cost)
    return services.NewLimits(**found)


def _shown(run: Run) -> tuple[int, dict[str, Any]]:
    return 200, run_json(run)


COMMAND_PROBLEMS = {
    404: "`not_found`",
    409: "`run_terminal`, `run_not_waiting`",
    412: "`revision_mismatch`",
}


class PauseView(ApiView):
    """`/runs/{id}/pause`"""

    scopes = {"POST": "runs:operate"}

    @docs.operation(
        "pause_run",
        summary="Pause a run",
        description="It stops at its next step and waits for an operator (`requires_action`). What "
        "was sent is settled all the same.",
        tag="runs",
        once=True,
        session=False,
        request=Reason,
        params=[docs.RUN_ID, docs.IF_MATCH],
        ok={200: (RunShape, "The run, paused or about to pause.")},
        problems=COMMAND_PROBLEMS,
    )
    def post(self, request: Request, run_id: str) -> Response:
        no_parameters(request)
        once = once_of(request, route=f"/api/v1/runs/{run_id}/pause", answer=_shown)
        asked = body_of(request, Reason)
        run, revision = run_or_404(request, run_id), expected_revision(request)
        return answer_once(
            once,
            lambda guard: services.pause_run(
                run_id=run.id,
                actor=caller_of(request).principal,
                reason=asked.reason,
                revision=revision,
                within=guard,
            ),
        )


class ResumeView(ApiView):
    """`/runs/{id}/resume`"""

    scopes = {"POST": "runs:operate"}

    @docs.operation(
        "resume_run",
        summary="Let a paused run go on",
        description="Whatever paused it: an operator, a limit, or that its processes died.",
        tag="runs",
        once=True,
        session=False,
        request=Resume,
        params=[docs.RUN_ID, docs.IF_MATCH],
        ok={200: (RunShape, "The run.")},
        problems={
            **COMMAND_PROBLEMS,
            409: "`run_terminal`, `run_not_waiting`, `run_not_paused`, `run_is_child`",
        },
    )
    def post(self, request: Request, run_id: str) -> Response:
        no_parameters(request)
        once = once_of(request, route=f"/api/v1/runs/{run_id}/resume", answer=_shown)
        asked = body_of(request, Resume)
        limits = _limits(asked.budget) if asked.budget else None
        run, revision = run_or_404(request, run_id), expected_revision(request)
        return answer_once(
            once,
            lambda guard: services.resume_run(
                run_id=run.id,
                actor=caller_of(request).principal,
                reason=asked.reason,
                limits=limits,
                revision=revision,
                within=guard,
            ),
        )


class RetryView(ApiView):
    """`/runs/{id}/retry`"""

    scopes = {"POST": "runs:operate"}

    @docs.operation(
        "retry_run",
        summary="Try a failed or incomplete run again",
        description="A new run with the same task. What the old one did is not done again, and "
        "what it left unknown is not sent anew. `retry_of` is the first run of the line.",
        tag="runs",
        once=True,
        session=False,
        request=Reason,
        params=[docs.RUN_ID, docs.header("Location", "Path of the new run.", 201)],
        ok={201: (RunShape, "The new run.")},
        problems={
            403: "`agent_forbidden`",
            404: "`not_found`",
            409: "`run_not_retryable`, `dedupe_open_run`, `session_busy`",
        },
    )
    def post(self, request: Request, run_id: str) -> Response:
        no_parameters(request)
        once = once_of(
            request,
            route=f"/api/v1/runs/{run_id}/retry",
            answer=lambda made: (201, render.run_json(made, RunFacts())),
        )
        body_of(request, Reason)
        run, caller = run_or_404(request, run_id), caller_of(request)
        response = answer_once(
            once, lambda guard: services.retry_run(caller=caller, run=run, within=guard)
        )
        response["Location"] = response.data["links"]["self"]
        return response
