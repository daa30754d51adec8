"""Thresholds of the policy that operators set: added with a reason, retired with a reason."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import transaction

from agentcore.canonical import NotCanonical, clean_text, normalize_params
from agentcore.thresholds import NotAThreshold, check
from agentcore.values import Json
from approvals.errors import ApprovalNotFound, InvalidRule, ReasonRequired
from runs import controls
from runs.control_models import PolicyThreshold
from runs.deciding import Decider, need
from runs.fitting import check_columns
from runs.selectors import database_clock
from tools import registry

PERMISSION = "runs.manage_policy"
MAX_REASON = 500


def add_threshold(
    *,
    by: Decider,
    tool: str,
    reason: str,
    argument: str = "",
    op: str = "always",
    value: Json = None,
    verdict: str = "ASK",
    role: str = "",
    quorum: int = 1,
    ttl: timedelta | None = None,
    tenant: str = "",
) -> PolicyThreshold:
    """Make the policy stricter for one tool, from now on. Raises `DecisionError`.

    What was approved under the policy before is asked anew when it is about to start.
    """
    need(by, PERMISSION, "set thresholds")
    spec = registry.get(tool)
    if spec is None or not spec.effect.is_write:
        raise InvalidRule(f"There is no write tool {tool[:80]!r}; a read asks nobody.")
    if argument and argument.split(".", maxsplit=1)[0] not in spec.params_model.model_fields:
        known = ", ".join(spec.params_model.model_fields)
        raise InvalidRule(f"{tool} has no argument {argument[:80]!r}; it has: {known}.")
    if verdict not in ("ASK", "DENY"):
        raise InvalidRule("A threshold asks (ASK) or refuses (DENY).")
    try:
        row = PolicyThreshold(
            tenant=tenant,
            tool=tool,
            argument=argument,
            op=op,
            value=normalize_params({"value": value})["value"],
            verdict=verdict,
            role=role,
            quorum=quorum,
            ttl_seconds=None if ttl is None else round(ttl.total_seconds()),
            reason=clean_text(reason.strip(), MAX_REASON),
            created_by=by.name,
        )
        check_columns(row)
        check(controls.threshold_of(row))
    except (NotAThreshold, NotCanonical) as error:
        raise InvalidRule(f"This threshold cannot be: {error}.") from None
    with transaction.atomic(durable=True):
        controls.change()
        row.created_at = database_clock()
        row.save(force_insert=True)
    return row


def retire_threshold(*, threshold_id: UUID, by: Decider, reason: str) -> PolicyThreshold:
    """The threshold no longer applies. One that is retired stays so. Raises `DecisionError`."""
    need(by, PERMISSION, "set thresholds")
    said = clean_text(reason.strip(), MAX_REASON)
    if not said:
        raise ReasonRequired("Say why: the history shows the reason.")
    with transaction.atomic(durable=True):
        controls.change()
        live = PolicyThreshold.objects.filter(pk=threshold_id, retired_at=None)
        live.update(retired_at=database_clock(), retired_by=by.name, retire_reason=said)
        row = PolicyThreshold.objects.filter(pk=threshold_id).first()
    if row is None:
        raise ApprovalNotFound("There is no threshold with this id.")
    return row
