"""Whether those who approved may still approve: asked again when the action is about to start."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.db.models import Q
from django.db.models.functions import Now

from approvals import selectors
from approvals.models import Approval
from runs.access_models import ApiToken
from runs.deciding import HIGH_RISK, PERMISSION, Decider, person, same_person
from runs.models import Run
from runs.transitions import StaleDraft

TOKEN, USER, ROLE = "token:", "user:", "role:"
TOKEN_PERMISSIONS = {"approvals:decide": PERMISSION, "approvals:decide_high_risk": HIGH_RISK}
"""Scope of a token -> the permission of a person that it stands for."""


def decider_now(*, name: str, tenant: str) -> Decider | None:
    """A person or token with the rights of this moment; None for one that is gone."""
    if name.startswith(TOKEN):
        return _token(name, tenant)
    users = get_user_model().objects
    user = users.filter(username=name.removeprefix(USER), is_active=True).first()
    if user is None:
        return None
    return Decider(
        name=name,
        permissions=frozenset(user.get_all_permissions()),
        roles=frozenset(user.groups.values_list("name", flat=True)),
        is_superuser=user.is_superuser,
    )


def _token(name: str, tenant: str) -> Decider | None:
    """All live tokens of this name together: a renewed token is the same caller."""
    live = ApiToken.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=Now()),
        name=name.removeprefix(TOKEN),
        tenant=tenant,
        revoked_at=None,
    )
    scopes = {scope for row in live for scope in row.scopes}
    if not scopes:
        return None
    return Decider(
        name=name,
        permissions=frozenset(p for scope, p in TOKEN_PERMISSIONS.items() if scope in scopes),
        roles=frozenset(s.removeprefix(ROLE) for s in scopes if s.startswith(ROLE)),
    )


def lost(*, approval: Approval, run: Run) -> str:
    """Why the approvals do not carry the decision any more; "" while they do."""
    if approval.standing is not None:
        return _standing_lost(approval, run)
    said = [v.voter for v in selectors.votes(approval_id=approval.pk) if v.decision == "APPROVE"]
    still = [name for name in said if _may(name, approval, run)]
    if len(still) >= approval.required_count:
        return ""
    gone = ", ".join(name for name in said if name not in still) or "nobody"
    return (
        f"{len(still)} of {approval.required_count} approvals still count; "
        f"no longer allowed to decide: {gone}"
    )


def _may(name: str, approval: Approval, run: Run) -> bool:
    decider = decider_now(name=name, tenant=approval.tenant)
    return decider is not None and person(approval=approval, run=run, decider=decider) is None


def _standing_lost(approval: Approval, run: Run) -> str:
    row = selectors.standing(standing_id=approval.standing) if approval.standing else None
    if row is None or row.revoked_at is not None:
        return "the standing approval was revoked"
    if not may_stand(name=row.granted_by, approval=approval, run=run):
        return f"{row.granted_by}, who gave the standing approval, may not decide any more"
    return ""


def may_stand(*, name: str, approval: Approval, run: Run) -> bool:
    """Whether the giver of a standing approval may decide this one: also a giver is not the
    requester, and has the rights now.
    """
    if same_person(name, run.principal):
        return False
    decider = decider_now(name=name, tenant=approval.tenant)
    if decider is None or not decider.has(HIGH_RISK):
        return False
    return person(approval=approval, run=run, decider=decider) is None


def guard(approval: Approval, run: Run) -> None:
    """In the transaction that starts the action. Raises `StaleDraft`: look again."""
    problem = lost(approval=approval, run=run)
    if problem:
        raise StaleDraft(problem)
