"""Actions: what the runs did and want to do. Arguments are shown as their tool declares."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.db.models import Q
from pydantic import Field, JsonValue
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.lifecycle import ActionState
from agentcore.values import Effect
from runs import listing
from runs.api import docs
from runs.api.asking import id_of, missing, names_of, no_parameters, page_and, run_or_404, words
from runs.api.asking import text_of as text_in
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Shape
from runs.models import ActionJournal, Attempt
from tools import registry

REDACTED = "[redacted]"
STATES = tuple(str(state).lower() for state in ActionState)
EFFECTS = tuple(str(effect).lower() for effect in Effect)


class AttemptShape(Shape):
    """One try of an outside call. An `outcome` of null is in flight, or `lost_at` says when the
    process that made it was given up."""

    id: str
    kind: str
    n: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error_class: str | None
    lost_at: datetime | None


class ActionRef(Shape):
    """An action in few words."""

    id: str
    object: Literal["action"]
    tool: str
    effect: str
    state: str
    resource_key: str | None
    first_sent_at: datetime | None


class Action(Shape):
    """One proposed tool call and its fate. `state` is that of the action machine."""

    id: str
    object: Literal["action"]
    run: str
    turn: int
    call_id: str
    tool: str
    tool_version: str
    effect: str
    contract: str | None
    arguments: JsonValue = Field(description="Fields that the tool keeps secret are redacted.")
    params_hash: str | None
    idempotency_key: str | None
    resource_key: str | None
    state: str
    reason: str | None
    detail: str | None
    policy_verdict: str | None
    policy_rule: str | None
    attempts: list[AttemptShape]
    result: JsonValue
    error_class: str | None
    downstream_ref: str | None
    approval: str | None
    preview: JsonValue = Field(description="What the system of record said it would change.")
    same_as: str | None = Field(description="The action that owns the intent, for a duplicate.")
    revision: int
    created_at: datetime
    first_sent_at: datetime | None
    next_probe_at: datetime | None
    ended_at: datetime | None


class ActionList(ListShape[Action]):
    """Actions; those of one run in the order they were proposed, else the newest first."""


def shown_arguments(tool: str, arguments: Any) -> Any:
    """`arguments` without what the tool declares secret; of an unknown tool nothing is shown."""
    spec = registry.get(tool)
    if not isinstance(arguments, dict):
        return arguments
    if spec is None:
        return dict.fromkeys(arguments, REDACTED)
    return {name: REDACTED if name in spec.redact else item for name, item in arguments.items()}


def ref_of(action: ActionJournal) -> ActionRef:
    return ActionRef(
        id=public_id("act", action.id),
        object="action",
        tool=action.tool,
        effect=action.effect.lower(),
        state=action.state.lower(),
        resource_key=action.resource_key or None,
        first_sent_at=action.first_sent_at,
    )


def action_json(action: ActionJournal, attempts: list[Attempt]) -> dict[str, Any]:
    """An action as its JSON says it."""
    precheck = action.precheck if isinstance(action.precheck, dict) else {}
    shape = Action(
        id=public_id("act", action.id),
        object="action",
        run=public_id("run", action.run_id),
        turn=action.turn,
        call_id=action.call_id,
        tool=action.tool,
        tool_version=action.tool_version,
        effect=action.effect.lower(),
        contract=action.contract.lower() or None,
        arguments=shown_arguments(action.tool, action.arguments),
        params_hash=action.params_hash or None,
        idempotency_key=action.idempotency_key,
        resource_key=action.resource_key or None,
        state=action.state.lower(),
        reason=action.reason or None,
        detail=action.detail or None,
        policy_verdict=action.policy_verdict.lower() or None,
        policy_rule=action.policy_rule or None,
        attempts=[_attempt(attempt) for attempt in attempts],
        result=action.result,
        error_class=action.error_class or None,
        downstream_ref=action.downstream_ref or None,
        approval=public_id("appr", action.approval_id) if action.approval_id else None,
        preview=precheck.get("preview"),
        same_as=public_id("act", action.same_as_id) if action.same_as_id else None,
        revision=action.revision,
        created_at=action.created_at,
        first_sent_at=action.first_sent_at,
        next_probe_at=action.next_probe_at,
        ended_at=action.ended_at,
    )
    return shape.model_dump(mode="json")


def _attempt(attempt: Attempt) -> AttemptShape:
    return AttemptShape(
        id=public_id("att", attempt.id),
        kind=attempt.kind.lower(),
        n=attempt.n,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome.lower() if attempt.outcome else None,
        error_class=attempt.error_class or None,
        lost_at=attempt.lost_at,
    )


def action_or_404(request: Request, text: str) -> ActionJournal:
    """The action of a path. Raises `Refused` (not_found)."""
    wanted = id_of("act", text, what="action")
    row = listing.actions_seen_by(caller_of(request)).filter(id=wanted).first()
    if row is None:
        raise missing("action")
    return row


def _listed(rows: list[ActionJournal], more: bool) -> Response:
    attempts = listing.attempts_of(action_ids=[row.id for row in rows])
    return Response(list_json([action_json(row, attempts[row.id]) for row in rows], more))


def _action_id(text: str) -> Any:
    return parse_id("act", text)


class RunActionsView(ApiView):
    """`/runs/{id}/actions`"""

    scopes = {"GET": "actions:read"}

    @docs.operation(
        "list_run_actions",
        summary="List the actions of a run, in the order they were proposed",
        tag="actions",
        params=[docs.RUN_ID, *docs.PAGE],
        ok={200: (ActionList, "One page.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, run_id: str) -> Response:
        page = page_and(request)
        run = run_or_404(request, run_id)
        after = cursor_of(page, _action_id)
        rows = ActionJournal.objects.filter(run_id=run.id).order_by("id")
        follows = None if after is None else Q(id__gt=after)
        return _listed(*listing.page(rows, follows, page.limit))


class ActionsView(ApiView):
    """`/actions`"""

    scopes = {"GET": "actions:read"}

    @docs.operation(
        "list_actions",
        summary="List actions, newest first",
        tag="actions",
        params=[
            *docs.PAGE,
            docs.query("state", f"Of: {', '.join(STATES)}; several with commas."),
            docs.query("effect", f"Of: {', '.join(EFFECTS)}; several with commas."),
            docs.query("tool", "Names of tools, with commas."),
            docs.query("resource_key", "What the action is about, such as `order:ORD-77`."),
            docs.query("idempotency_key", "The key that the downstream was given."),
            docs.query("downstream_ref", "The downstream's own id of the effect."),
        ],
        ok={200: (ActionList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        exact = ("resource_key", "idempotency_key", "downstream_ref")
        page = page_and(request, "state", "effect", "tool", *exact)
        rows = listing.actions_seen_by(caller_of(request))
        if states := words(request, "state", STATES):
            rows = rows.filter(state__in=[word.upper() for word in states])
        if effects := words(request, "effect", EFFECTS):
            rows = rows.filter(effect__in=[word.upper() for word in effects])
        if tools := names_of(request, "tool"):
            rows = rows.filter(tool__in=tools)
        for name in exact:
            if text := text_in(request, name):
                rows = rows.filter(**{name: text})
        after = cursor_of(page, _action_id)
        follows = None if after is None else Q(id__lt=after)
        return _listed(*listing.page(rows.order_by("-id"), follows, page.limit))


class ActionView(ApiView):
    """`/actions/{id}`"""

    scopes = {"GET": "actions:read"}

    @docs.operation(
        "get_action",
        summary="Get an action with its attempts",
        tag="actions",
        params=[docs.id_in_path("action_id", "act")],
        ok={200: (Action, "The action.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, action_id: str) -> Response:
        no_parameters(request)
        row = action_or_404(request, action_id)
        return Response(action_json(row, listing.attempts_of(action_ids=[row.id])[row.id]))
