"""Reconciliations: what people establish about writes whose fate is not known, and probes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.db.models import Q
from pydantic import Field, JsonValue, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.reconciling import Ground, Verdict
from runs import listing, services
from runs.api import docs
from runs.api.actions import action_or_404
from runs.api.asking import answer_once, body_of, no_parameters, once_of, page_and
from runs.api.auth import user_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Question, Reason, Shape, example
from runs.probing import Asked
from runs.reconcile_models import Reconciliation as ReconciliationRow
from runs.reconciliations import MAX_EVIDENCE, PERMISSION, Recorded

VERDICTS = {str(verdict).lower(): verdict for verdict in Verdict}
GROUNDS = {str(ground).lower(): ground for ground in Ground}
ACTION_ID = docs.id_in_path("action_id", "act")
MONTH = 30 * 24 * 3600

VerdictWord = Literal[
    "effect_exists", "effect_does_not_exist", "resend_same_key", "abandon", "still_unknown"
]
GroundWord = Literal["key_closed", "downstream_refused", "absent_after_settling"]
Link = Annotated[str, StringConstraints(pattern=r"^https?://", max_length=500)]


class VerdictCreate(Question):
    """What a person says became of a write. `revision` is that of the action as it was read."""

    model_config = example(
        verdict="effect_exists",
        revision=4,
        reason="Refund re_31 is in the payment service's ledger.",
        downstream_ref="re_31",
    )

    verdict: VerdictWord
    revision: Annotated[int, Field(ge=0)]
    reason: Annotated[str, StringConstraints(min_length=1, max_length=MAX_EVIDENCE)] = Field(
        description="What you know, and how: it is kept as evidence."
    )
    evidence: list[Link] = Field(
        default_factory=list, max_length=1, description="A link to what shows it."
    )
    downstream_ref: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="`effect_exists`: the downstream's own id of the effect."
    )
    result: JsonValue = Field(
        default=None, description="`effect_exists`: what the model is told that the call returned."
    )
    ground: GroundWord | None = Field(
        default=None, description="`effect_does_not_exist`: why it cannot still happen."
    )
    next_probe_in: Annotated[int, Field(ge=1, le=MONTH)] | None = Field(
        default=None, description="`still_unknown`: seconds until the downstream is asked again."
    )


class Reconciliation(Shape):
    """One verdict of one person. Two that agree are needed to send a write again."""

    id: str
    object: Literal["reconciliation"]
    action: str
    run: str
    verdict: str
    by: str
    reason: str
    evidence: list[str]
    ground: str | None
    downstream_ref: str | None
    result: JsonValue
    next_probe_at: datetime | None
    agrees_with: str | None = Field(description="The verdict of the first person, for a resend.")
    action_revision: int
    from_state: str
    to_state: str
    created_at: datetime


class ReconciliationList(ListShape[Reconciliation]):
    """Verdicts on one action, oldest first."""


class VerdictShape(Shape):
    """What stands after a verdict. `already`: the same was said before, nothing was written."""

    object: Literal["verdict"]
    reconciliation: str
    action: str
    run: str
    verdict: str
    action_state: str
    action_revision: int
    waits_for_second_person: bool
    already: bool


class Probe(Shape):
    """The downstream is asked what became of the write, from `due_at` on."""

    object: Literal["probe"]
    action: str
    run: str
    due_at: datetime


def reconciliation_json(row: ReconciliationRow) -> dict[str, Any]:
    return Reconciliation(
        id=public_id("rec", row.id),
        object="reconciliation",
        action=public_id("act", row.action_id),
        run=public_id("run", row.run_id),
        verdict=row.verdict.lower(),
        by=row.person,
        reason=row.evidence,
        evidence=[row.evidence_link] if row.evidence_link else [],
        ground=row.ground.lower() or None,
        downstream_ref=row.downstream_ref or None,
        result=row.result,
        next_probe_at=row.next_probe_at,
        agrees_with=public_id("rec", row.agrees_with_id) if row.agrees_with_id else None,
        action_revision=row.action_revision,
        from_state=row.from_state.lower(),
        to_state=row.to_state.lower(),
        created_at=row.created_at,
    ).model_dump(mode="json")


def _recorded(recorded: Recorded) -> tuple[int, dict[str, Any]]:
    return 201, VerdictShape(
        object="verdict",
        reconciliation=public_id("rec", recorded.reconciliation_id),
        action=public_id("act", recorded.action_id),
        run=public_id("run", recorded.run_id),
        verdict=str(recorded.verdict).lower(),
        action_state=str(recorded.action_state).lower(),
        action_revision=recorded.action_revision,
        waits_for_second_person=recorded.waits_for_second,
        already=recorded.already,
    ).model_dump(mode="json")


def _asked(asked: Asked) -> tuple[int, dict[str, Any]]:
    return 202, Probe(
        object="probe",
        action=public_id("act", asked.action_id),
        run=public_id("run", asked.run_id),
        due_at=asked.due_at,
    ).model_dump(mode="json")


class ProbeView(ApiView):
    """`/actions/{id}/probe`"""

    scopes = {"POST": "reconciliations:write"}

    @docs.operation(
        "probe_action",
        summary="Ask the downstream now what became of a write",
        description="Instead of at `next_probe_at`. A worker asks; a probe changes nothing there.",
        tag="reconciliations",
        once=True,
        request=Reason,
        params=[ACTION_ID],
        ok={202: (Probe, "It will be asked.")},
        problems={404: "`not_found`", 409: "`action_not_unknown`, `no_probe`"},
    )
    def post(self, request: Request, action_id: str) -> Response:
        no_parameters(request)
        once = once_of(request, route=f"/api/v1/actions/{action_id}/probe", answer=_asked)
        body_of(request, Reason)
        action = action_or_404(request, action_id)
        decider = user_of(request).decider
        # Who has this route's scope may ask, also without the right to give a verdict.
        person = replace(decider, permissions=decider.permissions | {PERMISSION})
        return answer_once(
            once,
            lambda guard: services.ask_probe(action_id=action.id, person=person, within=guard),
        )


class ReconciliationsView(ApiView):
    """`/actions/{id}/reconciliations`"""

    scopes = {"GET": "actions:read", "POST": "reconciliations:decide"}

    @docs.operation(
        "list_reconciliations",
        summary="List what people said about a write, oldest first",
        tag="reconciliations",
        params=[ACTION_ID, *docs.PAGE],
        ok={200: (ReconciliationList, "One page.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, action_id: str) -> Response:
        page = page_and(request)
        action = action_or_404(request, action_id)
        after = cursor_of(page, lambda text: parse_id("rec", text))
        rows = ReconciliationRow.objects.filter(action_id=action.id).order_by("id")
        follows = None if after is None else Q(id__gt=after)
        found, more = listing.page(rows, follows, page.limit)
        return Response(list_json([reconciliation_json(row) for row in found], more))

    @docs.operation(
        "reconcile_action",
        summary="Say what became of a write",
        description="For an action that is `unknown` or `needs_human`. The first verdict on a "
        "revision wins. A resend takes two people, and is made by a worker with the same key. Who "
        "asked for the run gives no verdict.",
        tag="reconciliations",
        once=True,
        request=VerdictCreate,
        params=[ACTION_ID],
        ok={201: (VerdictShape, "What stands now.")},
        problems={
            403: "`self_reconciliation_forbidden`",
            404: "`not_found`",
            409: "`action_not_unknown`, `action_changed`, `absence_not_proven`, "
            "`resend_refused`, `second_person_required`",
        },
    )
    def post(self, request: Request, action_id: str) -> Response:
        no_parameters(request)
        route = f"/api/v1/actions/{action_id}/reconciliations"
        once = once_of(request, route=route, answer=_recorded)
        asked = body_of(request, VerdictCreate)
        action, person = action_or_404(request, action_id), user_of(request).decider
        wait = asked.next_probe_in
        return answer_once(
            once,
            lambda guard: services.record_verdict(
                action_id=action.id,
                action_revision=asked.revision,
                verdict=VERDICTS[asked.verdict],
                person=person,
                evidence_text=asked.reason,
                downstream_ref=asked.downstream_ref or "",
                result=asked.result,
                evidence_link=asked.evidence[0] if asked.evidence else "",
                ground=GROUNDS[asked.ground] if asked.ground else None,
                next_probe_in=timedelta(seconds=wait) if wait is not None else None,
                within=guard,
            ),
        )
