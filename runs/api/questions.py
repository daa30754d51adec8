"""Who looks at a question, and passing it on to a higher group."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from runs import services
from runs.api import docs
from runs.api.approvals import approval_or_404
from runs.api.asking import answer_once, body_of, no_parameters, once_of
from runs.api.auth import user_of
from runs.api.base import ApiView
from runs.api.ids import public_id
from runs.api.schemas import Question, Shape, example
from runs.claiming import Escalated

APPROVAL_ID = docs.id_in_path("approval_id", "appr")


class Claim(Shape):
    """Others see who looks at a question; they may decide it all the same."""

    object: Literal["claim"]
    approval: str
    by: str
    until: datetime


class EscalationCreate(Question):
    """Why a higher group is asked. `params_hash` is that of the approval as shown."""

    model_config = example(params_hash="0" * 64, reason="Above what I may decide.")

    params_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    role: Annotated[str, StringConstraints(min_length=1, max_length=80)] | None = Field(
        default=None, description="A higher group; left out: the next step."
    )


class Escalation(Shape):
    """The old question is voided; the new one asks a higher group."""

    object: Literal["escalation"]
    approval: str = Field(description="The new question.")
    supersedes: str
    action: str
    run: str
    role: str


class ClaimView(ApiView):
    """`/approvals/{id}/claim`"""

    scopes = {"POST": "approvals:decide", "DELETE": "approvals:decide"}

    @docs.operation(
        "claim_approval",
        summary="Say that you are looking at a question",
        description="For 15 minutes; the same again renews it. It reserves nothing but attention.",
        tag="approvals",
        params=[APPROVAL_ID],
        ok={200: (Claim, "The claim.")},
        problems={404: "`not_found`", 409: "`already_claimed`, `approval_stale`"},
    )
    def post(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        row, person = approval_or_404(request, approval_id), user_of(request).decider
        made = services.claim_approval(approval_id=row.id, by=person)
        shape = Claim(
            object="claim",
            approval=public_id("appr", made.approval_id),
            by=made.by,
            until=made.until,
        )
        return Response(shape.model_dump(mode="json"))

    @docs.operation(
        "release_approval",
        summary="Give the own claim back",
        tag="approvals",
        params=[APPROVAL_ID],
        ok={204: (None, "There is no claim of the caller.")},
        problems={404: "`not_found`"},
    )
    def delete(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        row, person = approval_or_404(request, approval_id), user_of(request).decider
        services.release_approval(approval_id=row.id, by=person)
        return Response(status=204)


class EscalateView(ApiView):
    """`/approvals/{id}/escalate`"""

    scopes = {"POST": "approvals:decide"}

    @docs.operation(
        "escalate_approval",
        summary="Ask a higher group instead",
        description="The same question with its impact and a new time, to a group above those that "
        "are asked already.",
        tag="approvals",
        once=True,
        request=EscalationCreate,
        params=[APPROVAL_ID],
        ok={201: (Escalation, "The new question.")},
        problems={
            403: "`self_approval_forbidden`, `role_missing`",
            404: "`not_found`",
            409: "`approval_decided`, `approval_stale`, `nothing_higher`, `run_not_waiting`",
            410: "`approval_expired`",
        },
    )
    def post(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        route = f"/api/v1/approvals/{approval_id}/escalate"
        once = once_of(request, route=route, answer=_escalated)
        asked = body_of(request, EscalationCreate)
        row, person = approval_or_404(request, approval_id), user_of(request).decider
        return answer_once(
            once,
            lambda guard: services.escalate_approval(
                approval_id=row.id,
                params_hash=asked.params_hash,
                by=person,
                reason=asked.reason,
                role=asked.role or "",
                within=guard,
            ),
        )


def _escalated(made: Escalated) -> tuple[int, dict[str, Any]]:
    return 201, Escalation(
        object="escalation",
        approval=public_id("appr", made.approval_id),
        supersedes=public_id("appr", made.old_approval_id),
        action=public_id("act", made.action_id),
        run=public_id("run", made.run_id),
        role=made.role,
    ).model_dump(mode="json")
