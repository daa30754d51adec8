"""Standing approvals: an answer given beforehand, explicit, within bounds, for a time, revocable.

They answer only what one person could answer at that moment: not a quorum, not an edited action,
not the repeat of an effect, and nothing of a run that has read what strangers wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from agentcore.canonical import NotCanonical, clean_text, normalize_params
from agentcore.policy import Verdict
from agentcore.thresholds import NotAThreshold, Threshold, check, within
from agentcore.values import Json
from approvals import records, selectors
from approvals.errors import ApprovalNotFound, InvalidRule, ReasonRequired
from approvals.models import Approval, StandingApproval
from runs import rights
from runs.agents import get_agent
from runs.deciding import HIGH_RISK, Decider, need
from runs.fitting import check_columns
from runs.models import ActionJournal
from runs.selectors import database_clock
from runs.view import View
from tools import registry

MAX_REASON = 500
Condition = tuple[str, str, Json]
"""Argument, operator, value."""


def grant_standing(
    *,
    by: Decider,
    tenant: str,
    tool: str,
    conditions: Sequence[Condition],
    max_uses: int | None,
    expires_at: datetime,
    reason: str,
    agent: str = "",
    principal: str = "",
) -> StandingApproval:
    """Approve beforehand what stays within `conditions`. Raises `DecisionError`.

    It needs a bound: at least one condition, or a number of uses.
    """
    need(by, HIGH_RISK, "give standing approvals")
    said = clean_text(reason.strip(), MAX_REASON)
    if not said:
        raise ReasonRequired("Say why: reviewers are shown the reason.")
    spec = registry.get(tool)
    if spec is None or not spec.effect.is_write:
        raise InvalidRule(f"There is no write tool {tool[:80]!r}; a read asks nobody.")
    if agent and get_agent(agent) is None:
        raise InvalidRule(f"There is no agent {agent[:80]!r}.")
    if max_uses is not None and max_uses < 1:
        raise InvalidRule("A number of uses is at least 1.")
    if not conditions and max_uses is None:
        raise InvalidRule("A standing approval needs a condition, or a number of uses.")
    now = database_clock()
    if expires_at <= now:
        raise InvalidRule("A standing approval ends in the future.")
    row = StandingApproval(
        tenant=tenant,
        tool=tool,
        tool_version=spec.version,
        agent=agent,
        principal=principal,
        conditions=_checked(conditions, set(spec.params_model.model_fields)),
        max_uses=max_uses,
        expires_at=expires_at,
        granted_by=by.name,
        reason=said,
        created_at=now,
    )
    check_columns(row)
    row.save(force_insert=True)
    return row


def _checked(conditions: Sequence[Condition], known: set[str]) -> list[list[Json]]:
    found = []
    for name, op, value in conditions:
        if name.split(".")[0] not in known:
            raise InvalidRule(f"There is no argument {name[:80]!r}.")
        try:
            exact = normalize_params({"value": value})["value"]
            if op == "always":
                raise NotAThreshold("a bound compares something")  # noqa: TRY301
            check(Threshold(ref="", argument=name, op=op, value=exact, reason="bound"))
        except (NotAThreshold, NotCanonical) as error:
            raise InvalidRule(f"{name}: {error}.") from None
        found.append([name, op, exact])
    return found


def revoke_standing(*, standing_id: UUID, by: Decider, reason: str) -> StandingApproval:
    """End it; what it answered and has not started is asked anew. Raises `DecisionError`."""
    need(by, HIGH_RISK, "revoke standing approvals")
    said = clean_text(reason.strip(), MAX_REASON)
    if not said:
        raise ReasonRequired("Say why: the history shows the reason.")
    with transaction.atomic(durable=True):
        records.revoke_standing(standing_id=standing_id, by=by.name, reason=said)
    row = selectors.standing(standing_id=standing_id)
    if row is None:
        raise ApprovalNotFound("There is no standing approval with this id.")
    return row


def answering(
    view: View, action: ActionJournal, verdict: Verdict, question: Approval, *, untrusted: bool
) -> StandingApproval | None:
    """The standing approval that answers `question`, or None: a person is asked.

    `untrusted`: the run has read what strangers wrote.
    """
    if verdict.count != 1 or action.edited_by or untrusted:
        return None
    rows = selectors.standing_for(
        tenant=action.tenant, tool=action.tool, version=action.tool_version
    )
    for row in rows:
        if row.agent not in ("", view.agent.name) or row.principal not in ("", view.run.principal):
            continue
        if within(row.conditions, action.arguments or {}) and rights.may_stand(
            name=row.granted_by, approval=question, run=view.run
        ):
            return row
    return None
