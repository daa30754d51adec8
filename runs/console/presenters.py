"""What the review pages show, gathered from rows into plain values. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agentcore.canonical import NotCanonical, canonical_json
from agentcore.lifecycle import ApprovalState
from approvals import selectors as approvals
from approvals.errors import DecisionError
from approvals.models import Approval, ApprovalVote
from runs.approving import EDIT, Decider, refusal
from runs.console import text
from runs.console.redaction import redacted, redactor_of
from runs.models import ActionJournal, Run, Turn
from runs.selectors import database_clock
from tools import registry
from tools.guarantees import MEANING, guarantee

SOON = timedelta(minutes=15)
RECENT = 2000
"""The newest calls of all runs, among which those of one requester are counted."""


def verb_of(tool: str) -> str:
    """`refund_desk.submit_refund` -> `submit_refund`."""
    return tool.rpartition(".")[2]


def subject_of(approval: Approval) -> str:
    """What a button says it acts on: `submit_refund for order:ORD-77`."""
    verb = text.short(verb_of(approval.tool), 60)
    return f"{verb} for {text.short(approval.resource_key)}" if approval.resource_key else verb


def preview_of(approval: Approval) -> dict[str, Any]:
    """What the precheck answered (`runs/journal.py` stores it); empty when there was none."""
    preview = (approval.impact or {}).get("preview")
    return preview if isinstance(preview, dict) else {}


def one_line(approval: Approval) -> str:
    """The impact in one line: the preview's own words, else the call itself."""
    summary = preview_of(approval).get("summary")
    if summary:
        return text.short(redactor_of([approval]).json(summary), 160)
    shown = redacted(approval.tool, approval.arguments)
    inside = ", ".join(f"{cell.path}={cell.text}" for cell in text.cells(shown)) if shown else ""
    return text.short(f"{verb_of(approval.tool)}({inside})", 160)


def canonical_text(arguments: Any) -> str:
    """The RFC 8785 text of arguments; what the hash is made of."""
    try:
        return canonical_json(arguments).decode()
    except NotCanonical as error:
        return f"(no canonical form: {error})"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One line of the review queue."""

    approval: Approval
    impact: str
    votes: int
    expired: bool
    soon: bool
    claimed_by: str
    agent: str


def queue_rows(*, limit: int, now: datetime) -> list[QueueRow]:
    """The open questions, the one that runs out first on top."""
    waiting = approvals.waiting(limit=limit)
    runs = Run.objects.filter(pk__in={row.run_id for row in waiting})
    agents = {run.pk: str(run.agent_version) for run in runs.select_related("agent_version")}
    return [
        QueueRow(
            approval=approval,
            impact=one_line(approval),
            votes=sum(vote.decision == "APPROVE" for vote in approval.votes.all()),
            expired=approval.expires_at <= now,
            soon=approval.expires_at <= now + SOON,
            claimed_by=claimed_by(approval, now),
            agent=agents.get(approval.run_id, ""),
        )
        for approval in waiting
    ]


def claimed_by(approval: Approval, now: datetime) -> str:
    """Who looks at it now; empty when nobody does."""
    until = approval.claimed_until
    return approval.claimed_by if until is not None and until > now else ""


@dataclass(frozen=True, slots=True)
class Beside:
    """What else is known around one question."""

    before: Approval | None
    before_changes: list[text.Change]
    after: Approval | None
    after_changes: list[text.Change]
    same_resource: list[ActionJournal]
    same_requester: int
    following: UUID | None
    preceding: UUID | None


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """Everything a person should see before deciding about one action."""

    approval: Approval
    action: ActionJournal
    run: Run
    turn: Turn | None
    votes: list[ApprovalVote]
    yes: int
    now: datetime
    as_of: datetime | None
    impact: dict[str, Any]
    changes: list[text.Change]
    arguments: list[text.Cell]
    canonical: str
    subject: str
    refusal: DecisionError | None
    beside: Beside
    claimed_by: str
    guarantee: str
    meaning: str
    compensates: str
    repeat: dict[str, Any]
    can_edit: bool

    @property
    def is_open(self) -> bool:
        """Whether the question itself can still be decided by somebody."""
        return self.approval.state == ApprovalState.PENDING

    @property
    def is_high_risk(self) -> bool:
        """Whether one key must not be enough."""
        return self.approval.high_risk or self.action.effect == "WRITE_IRREVERSIBLE"


def review_item(*, approval_id: UUID, decider: Decider) -> ReviewItem | None:
    """The page of one approval as `decider` may see it now; None when there is none."""
    approval = approvals.find(approval_id=approval_id)
    if approval is None:
        return None
    action = ActionJournal.objects.get(pk=approval.action_id)
    run = Run.objects.select_related("agent_version").get(pk=approval.run_id)
    votes = approvals.votes(approval_id=approval_id)
    now, spec = database_clock(), registry.get(approval.tool)
    redactor = redactor_of([approval])
    impact = redactor.json(preview_of(approval))
    redactor.hide(run, "input")
    shown = redacted(approval.tool, approval.arguments)
    turn = Turn.objects.filter(run=run, number=action.turn).first()
    if turn is not None:
        turn.text = turn.said
    repeat = (approval.impact or {}).get("repeat")
    kind = guarantee(spec) if spec and hasattr(spec, "contract") else None
    return ReviewItem(
        approval=approval,
        action=action,
        run=run,
        turn=redactor.hide(turn, "text") if turn else None,
        votes=votes,
        yes=sum(vote.decision == "APPROVE" for vote in votes),
        now=now,
        as_of=_precheck_time(approval),
        impact=impact,
        changes=text.changes(impact.get("before"), impact.get("after")),
        arguments=text.cells(shown) if shown else [],
        canonical=canonical_text(shown),
        subject=subject_of(approval),
        refusal=refusal(
            approval=approval,
            action=action,
            run=run,
            decider=decider,
            params_hash=approval.params_hash,
            now=now,
        ),
        beside=_beside(approval),
        claimed_by=claimed_by(approval, now),
        guarantee=kind or "",
        meaning=MEANING[kind] if kind else "",
        compensates=getattr(spec, "compensates", "") if spec else "",
        repeat=repeat if isinstance(repeat, dict) else {},
        can_edit=spec is not None and decider.has(EDIT),
    )


def _precheck_time(approval: Approval) -> datetime | None:
    """When the impact was read from the system of record."""
    at = (approval.impact or {}).get("at")
    return datetime.fromisoformat(at) if isinstance(at, str) else None


def _beside(approval: Approval) -> Beside:
    of_run = {row.pk: row for row in approvals.of_run(run_id=approval.run_id)}
    before = of_run.get(approval.supersedes) if approval.supersedes else None
    after = next((row for row in of_run.values() if row.supersedes == approval.pk), None)
    following, preceding = approvals.neighbours(approval=approval)
    recent = ActionJournal.objects.order_by("-id").values_list("tool", "run__principal")[:RECENT]
    return Beside(
        before=before,
        before_changes=difference(before, approval) if before else [],
        after=after,
        after_changes=difference(approval, after) if after else [],
        same_resource=_same_resource(approval),
        same_requester=sum(row == (approval.tool, approval.requester) for row in recent),
        following=following,
        preceding=preceding,
    )


def difference(old: Approval, new: Approval) -> list[text.Change]:
    """The arguments of two questions side by side, what changed first."""
    return text.changes(redacted(old.tool, old.arguments), redacted(new.tool, new.arguments))


def _same_resource(approval: Approval) -> list[ActionJournal]:
    """Earlier writes on the same resource, newest first."""
    if not approval.resource_key:
        return []
    rows = ActionJournal.objects.filter(
        tenant=approval.tenant, resource_key=approval.resource_key
    ).exclude(effect="READ")
    return list(rows.exclude(pk=approval.action_id).order_by("-id")[:10])
