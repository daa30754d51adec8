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
from runs.editing import Edited
from runs.once import Guard
from runs.refusals import invalid

STATES = tuple(str(state).lower() for state in ApprovalState)
CHOICES: dict[str, Literal["APPROVE", "REJECT", "RESPOND"]] = {
    "approve": "APPROVE",
    "reject": "REJECT",
    "respond": "RESPOND",
}


class DecisionCreate(Question):
    """What a person says about one question. `params_hash` is that of the approval as shown."""

    model_config = example(decision="reject", params_hash="0" * 64, reason="Too much.")

    decision: Literal["approve", "reject", "respond", "edit"]
    params_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    reason: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="Needed to reject (the model is shown it) and to edit."
    )
    message: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="`respond`: the answer that the model gets in place of the tool's."
    )
    arguments: dict[str, JsonValue] | None = Field(
        default=None, description="`edit`: the arguments to change; the others stay."
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
    policy_reason: str | None
    high_risk: bool = Field(description="Deciding it takes the permission for that.")
    role: str | None = Field(description="Several groups with commas: one is in each of them.")
    required_count: int
    decisions: list[VoteShape]
    allowed_decisions: list[str]
    impact: JsonValue = Field(description="What the system of record said it would change.")
    requester: str
    editor: str | None = Field(description="Who changed the arguments; decides nothing about them.")
    supersedes: str | None = Field(description="The question before this one.")
    claimed_by: str | None
    claimed_until: datetime | None
    revalidation: JsonValue = Field(description="What the check at the start of the action said.")
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
    edited_action: str | None = Field(description="`edit`: the action in the place of this one.")


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
        policy_reason=row.policy_reason or None,
        high_risk=row.high_risk,
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
        allowed_decisions=[*CHOICES, "edit"] if row.state == ApprovalState.PENDING else [],
        impact=impact.get("preview"),
        requester=row.requester,
        editor=row.editor or None,
        supersedes=public_id("appr", row.supersedes) if row.supersedes else None,
        claimed_by=row.claimed_by or None,
        claimed_until=row.claimed_until,
        revalidation=row.validation,
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
        edited_action=None,
    )
    return shape.model_dump(mode="json")


def _edited_json(edited: Edited, required: int) -> dict[str, Any]:
    return Decision(
        object="decision",
        approval=public_id("appr", edited.old_approval_id),
        action=public_id("act", edited.old_action_id),
        run=public_id("run", edited.run_id),
        approval_state="voided",
        action_state="voided",
        votes=0,
        required_count=required,
        already=False,
        edited_action=public_id("act", edited.action_id),
    ).model_dump(mode="json")


def approval_or_404(request: Request, text: str) -> ApprovalRow:
    """The approval of a path, with its votes. Raises `Refused` (not_found)."""
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
        return Response(approval_json(approval_or_404(request, approval_id)))


class DecisionsView(ApiView):
    """`/approvals/{id}/decisions`"""

    scopes = {"POST": "approvals:decide"}

    @docs.operation(
        "decide_approval",
        summary="Approve, reject, respond or edit",
        description="Records one vote. At the quorum the run goes on with exactly these arguments; "
        "one rejection ends the question, and the model is told the reason; `respond` ends it, "
        "too, and gives the model the message as the answer to its call. `edit` puts an action "
        "with other arguments in its place, which asks anew: who edited does not decide it. Who "
        "asked for the run may not decide. The same caller saying the same again is answered, not "
        "refused.",
        tag="approvals",
        once=True,
        request=DecisionCreate,
        params=[docs.id_in_path("approval_id", "appr")],
        ok={201: (Decision, "What stands now.")},
        problems={
            403: "`self_approval_forbidden`, `role_missing`",
            404: "`not_found`",
            409: "`approval_decided`, `approval_stale`, `run_not_waiting`",
            422: "`invalid_arguments`",
            410: "`approval_expired`",
        },
    )
    def post(self, request: Request, approval_id: str) -> Response:
        no_parameters(request)
        asked = body_of(request, DecisionCreate)
        _check(asked)
        row = approval_or_404(request, approval_id)
        once = once_of(
            request,
            route=f"/api/v1/approvals/{approval_id}/decisions",
            answer=lambda made: (201, _answer(made, row)),
        )
        return answer_once(once, lambda guard: _decide(request, row, asked, guard))


def _answer(made: services.Decision | Edited, row: ApprovalRow) -> dict[str, Any]:
    if isinstance(made, Edited):
        return _edited_json(made, row.required_count)
    return decision_json(made)


def _check(asked: DecisionCreate) -> None:
    """What each decision needs. Raises `Refused`."""
    if asked.decision == "respond" and not asked.message.strip():
        raise invalid("/message", "missing", "write the answer that the model is to be given.")
    if asked.decision == "edit" and not asked.arguments:
        raise invalid("/arguments", "missing", "say which arguments to change.")


def _decide(request: Request, row: ApprovalRow, asked: DecisionCreate, guard: Guard) -> object:
    person = user_of(request).decider
    if asked.decision == "edit":
        return services.edit_action(
            approval_id=row.id,
            params_hash=asked.params_hash,
            arguments=asked.arguments or {},
            editor=person,
            reason=asked.reason,
            within=guard,
        )
    return services.decide_approval(
        approval_id=row.id,
        params_hash=asked.params_hash,
        decision=CHOICES[asked.decision],
        decider=person,
        reason=asked.message if asked.decision == "respond" else asked.reason,
        within=guard,
    )
