"""Who may decide about an action: one set of rules for people, tokens and every entry point.

Each rule is an answer or None. Four eyes: who asked for the run, who edited the action and the
agent's own token never decide it, superusers included.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentcore.policy import LADDER
from approvals.errors import DecisionError, NotPermitted, SelfApproval
from approvals.models import Approval
from runs.models import ActionJournal, Run

PERMISSION = "approvals.decide_approval"
HIGH_RISK = "approvals.decide_high_risk"
EDIT = "approvals.edit_arguments"


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides. `roles` are group names; a superuser may act for any role, never for himself."""

    name: str
    permissions: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    is_superuser: bool = False
    is_agent: bool = False

    def has(self, permission: str) -> bool:
        return self.is_superuser or permission in self.permissions


def same_person(left: str, right: str) -> bool:
    """Whether two principals name one person; rather one too many than one too few."""
    return left.removeprefix("user:").casefold() == right.removeprefix("user:").casefold()


def roles_of(text: str) -> tuple[str, ...]:
    """The groups that an approval names: one person must be in each."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def has_role(decider: Decider, role: str) -> bool:
    """A higher step of the ladder includes the lower ones."""
    if decider.is_superuser or role in decider.roles:
        return True
    higher = LADDER[LADDER.index(role) + 1 :] if role in LADDER else ()
    return any(name in decider.roles for name in higher)


def not_own(*, approval: Approval, run: Run, decider: Decider) -> DecisionError | None:
    """Four eyes."""
    if decider.is_agent:
        return SelfApproval("An agent's own token never decides. A person must.")
    asked = (approval.requester, *requesters_of(run))
    if any(name and same_person(decider.name, name) for name in asked):
        return SelfApproval("You asked for this run. Somebody else must decide.")
    if any(same_person(decider.name, name) for name in _editors_of(approval)):
        return SelfApproval("You edited these arguments. Somebody else must decide.")
    return None


def requesters_of(run: Run) -> tuple[str, ...]:
    """Who asked for a run, "" among them. Whoever tries one again asks for it, too, but its task
    came from who asked first."""
    first = (run.root or run).retry_of
    before = (first.principal, first.on_behalf_of) if first else ()
    return (run.principal, run.on_behalf_of, *before)


def _editors_of(approval: Approval) -> list[str]:
    """Everybody who edited the call: what one changed may still stand after the next one's edit."""
    if not approval.editor:
        return []
    this = ActionJournal.objects.get(pk=approval.action_id)
    same = ActionJournal.objects.filter(run_id=this.run_id, turn=this.turn, ordinal=this.ordinal)
    return list(same.exclude(edited_by="").values_list("edited_by", flat=True))


def rights(*, approval: Approval, decider: Decider) -> DecisionError | None:
    """The permission, and the groups that the policy names."""
    if not decider.has(PERMISSION):
        return NotPermitted(f"You need the permission {PERMISSION} to decide.")
    if approval.high_risk and not decider.has(HIGH_RISK):
        return NotPermitted(f"This is high risk. You need the permission {HIGH_RISK} to decide.")
    for role in roles_of(approval.role):
        if not has_role(decider, role):
            return NotPermitted(f"The policy asks for a member of the group {role}.")
    return None


def person(*, approval: Approval, run: Run, decider: Decider) -> DecisionError | None:
    """Why this person may not decide, or None."""
    return not_own(approval=approval, run=run, decider=decider) or rights(
        approval=approval, decider=decider
    )


def need(decider: Decider, permission: str, what: str) -> None:
    """Raises `NotPermitted` unless a person (never an agent's token) has the permission."""
    if decider.is_agent:
        raise NotPermitted(f"An agent's own token never may {what}. A person must.")
    if not decider.has(permission):
        raise NotPermitted(f"You need the permission {permission} to {what}.")
