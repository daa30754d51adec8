"""Reads of approvals."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Now

from agentcore.lifecycle import ApprovalState
from approvals.models import Approval, ApprovalVote, StandingApproval


def find(*, approval_id: UUID) -> Approval | None:
    """One approval, unlocked; None when there is none."""
    return Approval.objects.filter(pk=approval_id).first()


def locked(*, approval_id: UUID) -> Approval:
    """One approval under its row lock; the caller already holds the run and the action."""
    return Approval.objects.select_for_update(no_key=True).get(pk=approval_id)


def waiting(*, limit: int) -> list[Approval]:
    """Open questions, the one that runs out first on top; at most `limit`."""
    open_ones = Approval.objects.filter(state=ApprovalState.PENDING).prefetch_related("votes")
    return list(open_ones.order_by("expires_at", "id")[:limit])


def of_actions(*, action_ids: Iterable[UUID]) -> list[Approval]:
    """Every approval ever asked for these actions, oldest first, with its votes."""
    rows = Approval.objects.filter(action_id__in=list(action_ids))
    return list(rows.prefetch_related("votes").order_by("id"))


def of_run(*, run_id: UUID) -> list[Approval]:
    """Every approval of a run, oldest first, with its votes."""
    return list(Approval.objects.filter(run_id=run_id).prefetch_related("votes").order_by("id"))


def votes(*, approval_id: UUID) -> list[ApprovalVote]:
    """The votes of one approval, oldest first."""
    return list(ApprovalVote.objects.filter(approval_id=approval_id).order_by("id"))


def standing_for(*, tenant: str, tool: str, version: str) -> list[StandingApproval]:
    """The standing approvals of one version of a tool that may still be used, oldest first."""
    live = StandingApproval.objects.filter(
        Q(max_uses=None) | Q(uses__lt=F("max_uses")),
        tenant=tenant,
        tool=tool,
        tool_version=version,
        revoked_at=None,
        expires_at__gt=Now(),
    )
    return list(live.order_by("created_at", "id"))


def standing(*, standing_id: UUID) -> StandingApproval | None:
    """One standing approval, unlocked; None when there is none."""
    return StandingApproval.objects.filter(pk=standing_id).first()


def neighbours(*, approval: Approval) -> tuple[UUID | None, UUID | None]:
    """The open questions after and before this one in the order of the queue."""
    rows = Approval.objects.filter(state=ApprovalState.PENDING).exclude(pk=approval.pk)
    at, key = approval.expires_at, approval.pk
    later = rows.filter(Q(expires_at__gt=at) | Q(expires_at=at, id__gt=key))
    earlier = rows.filter(Q(expires_at__lt=at) | Q(expires_at=at, id__lt=key))
    return (
        later.order_by("expires_at", "id").values_list("pk", flat=True).first(),
        earlier.order_by("-expires_at", "-id").values_list("pk", flat=True).first(),
    )
