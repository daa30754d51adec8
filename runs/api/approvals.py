"""Approvals: the questions to people, and the decisions about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Q
from pydantic import Field, JsonValue, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.lifecycle import ApprovalState
from approvals.models import Approval as ApprovalRow
from runs import listing, services
from runs.api import docs
from runs.api.actions import shown_arguments
from runs.api.asking import (
    answer_once,
    body_of,
    id_in_query,
    id_of,
    missing,
    no_parameters,
    once_of,
    page_and,
    words,
)
from runs.api.auth import caller_of, user_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Question, Shape, example

STATES = tuple(str(state).lower() for state in ApprovalState)
CHOICES: dict[str, Literal["APPROVE", "REJECT"]] = {"approve": "APPROVE", "reject": "REJECT"}


class DecisionCreate(Question):
    """What a person says about one question. `params_hash` is that of the approval as shown."""

    model_config = example(decision="reject", params_hash="0" * 64, reason="Too much.")

    decision: Literal["approve", "reject"]
    params_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    reason: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="Needed to reject: the model is shown it."
    )


class VoteShape(Shape):
    by: str
    decision: str
    reason: str | None
    at: datetime


class Approval(Shape):
    """One question to a person about one action, bound to the hash of its arguments."""

    id: str
    object: Literal["approval"]
    state: str
    action: str
    run: str
    tool: str
    tool_version: str
    arguments: JsonValue = Field(description="Fields that the tool keeps secret are redacted.")
    params_hash: str
    policy: str
    policy_version: str
    role: str | None
    required_count: int
    decisions: list[VoteShape]
    allowed_decisions: list[str]
    impact: JsonValue = Field(description="What the system of record said it would change.")
    requester: str
    expires_at: datetime
    created_at: datetime
    decided_at: datetime | None
    consumed_at: datetime | None


class ApprovalList(ListShape[Approval]):
    """Approvals, newest first."""


class Decision(Shape):
    """What stands after a decision. `already`: the same was said before, nothing was written."""

    object: Literal["decision"]
    approval: str
    action: str
    run: str
    approval_state: str
    action_state: str
    votes: int
    required_count: int
    already: bool


def approval_json(row: ApprovalRow) -> dict[str, Any]:
    """An approval as its JSON says it; its votes should be loaded."""
    impact = row.impact if isinstance(row.impact, dict) else {}
    shape = Approval(
        id=public_id("appr", row.id),
        object="approval",
        state=row.state.lower(),
        action=public_id("act", row.action_id),
        run=public_id("run", row.run_id),
        tool=row.tool,
        tool_version=row.tool_version,
        arguments=shown_arguments(row.tool, row.arguments),
        params_hash=row.params_hash,
        policy=row.rule,
        policy_version=row.policy_version,
        role=row.role or None,
        required_count=row.required_count,
        decisions=[
            VoteShape(
                by=vote.voter,
                decision=vote.decision.lower(),
                reason=vote.reason or None,
                at=vote.created_at,
            )
            for vote in sorted(row.votes.all(), key=lambda vote: vote.id)
        ],
        allowed_decisions=list(CHOICES) if row.state == ApprovalState.PENDING else [],
        impact=impact.get("preview"),
        requester=row.requester,
        expires_at=row.expires_at,
        created_at=row.created_at,
        decided_at=row.decided_at,
        consumed_at=row.consumed_at,
    )
    return shape.model_dump(mode="json")


def decision_json(decision: services.Decision) -> dict[str, Any]:
    shape = Decision(
        object="decision",
        approval=public_id("appr", decision.approval_id),
        action=public_id("act", decision.action_id),
        run=public_id("run", decision.run_id),
        approval_state=str(decision.approval_state).lower(),
        action_state=str(decision.action_state).lower(),
        votes=decision.votes,
        required_count=decision.required,
        already=decision.already,
    )
    return shape.model_dump(mode="json")


def _approval_or_404(request: Request, text: str) -> ApprovalRow:
    wanted = id_of("appr", text, what="approval")
    rows = listing.approvals_seen_by(caller_of(request)).prefetch_related("votes")
    row = rows.filter(id=wanted).first()
    if row is None:
        raise missing("approval")
    return row


class ApprovalsView(ApiView):
    """`/approvals`"""

    scopes = {"GET": "approvals:read"}

    @docs.operation(
        "list_approvals",
        summary="List approvals, newest first",
        tag="approvals",
        params=[
            *docs.PAGE,
            docs.query("state", f"Of: {', '.join(STATES)}; several with commas."),
            docs.query("run", "Only those of this run.", {"type": "string"}),
        ],
        ok={200: (ApprovalList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request, "state", "run")
        rows = listing.approvals_seen_by(caller_of(request)).prefetch_related("votes")
        if states := words(request, "state", STATES):
            rows = rows.filter(state__in=[word.upper() for word in states])
        if (run := id_in_query(request, "run", "run")) is not None:
            rows = rows.filter(run_id=run)
        after = cursor_of(page, lambda text: parse_id("appr", text))
        follows = None if after is None else Q(id__lt=after)
        found, more = listing.page(rows.order_by("-id"), follows, page.limit)
        return Response(list_json([approval_json(row) for row in found], more))


class ApprovalView(ApiView):
    """`/approvals/{id}`"""

    scopes = {"GET": "approvals:read"}

    @docs.operation(
        "get_approval",
        summary="Get an approval",
        tag="approvals",
        params=[docs.id_in_path("approval_id", "appr")],
        ok={200: (Approval, "The approval.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        return Response(approval_json(_approval_or_404(request, approval_id)))


class DecisionsView(ApiView):
    """`/approvals/{id}/decisions`"""

    scopes = {"POST": "approvals:decide"}

    @docs.operation(
        "decide_approval",
        summary="Approve or reject",
        description="Records one vote. At the quorum the run goes on with exactly these arguments; "
        "one rejection ends the question, and the model is told the reason. Who asked for the run "
        "may not decide. The same caller saying the same again is answered, not refused.",
        tag="approvals",
        once=True,
        request=DecisionCreate,
        params=[docs.id_in_path("approval_id", "appr")],
        ok={201: (Decision, "What stands now.")},
        problems={
            403: "`self_approval_forbidden`, `role_missing`",
            404: "`not_found`",
            409: "`approval_decided`, `approval_stale`, `run_not_waiting`",
            410: "`approval_expired`",
        },
    )
    def post(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        once = once_of(
            request,
            route=f"/api/v1/approvals/{approval_id}/decisions",
            answer=lambda decision: (201, decision_json(decision)),
        )
        asked = body_of(request, DecisionCreate)
        row = _approval_or_404(request, approval_id)
        return answer_once(
            once,
            lambda guard: services.decide_approval(
                approval_id=row.id,
                params_hash=asked.params_hash,
                decision=CHOICES[asked.decision],
                decider=user_of(request).decider,
                reason=asked.reason,
                within=guard,
            ),
        )
