"""What the review and run pages show, gathered from rows into plain values. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agentcore.canonical import NotCanonical, canonical_json
from agentcore.lifecycle import ApprovalState
from approvals import selectors as approvals
from approvals.errors import DecisionError
from approvals.models import Approval, ApprovalVote
from runs.approving import Decider, refusal
from runs.console import text
from runs.models import ActionJournal, Attempt, Event, Incident, Run, Turn
from runs.selectors import database_clock
from tools import registry

SOON = timedelta(minutes=15)
HIDDEN = "(hidden: the tool declares this field secret)"
MAX_EVENTS = 500


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
        return text.short(summary, 160)
    shown = redacted(approval.tool, approval.arguments)
    inside = ", ".join(f"{cell.path}={cell.text}" for cell in text.cells(shown)) if shown else ""
    return text.short(f"{verb_of(approval.tool)}({inside})", 160)


def redacted(tool: str, arguments: Any) -> Any:
    """`arguments` with the fields that the tool declares secret replaced."""
    spec = registry.get(tool)
    if spec is None or not spec.redact or not isinstance(arguments, dict):
        return arguments
    return {name: HIDDEN if name in spec.redact else item for name, item in arguments.items()}


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


def queue_rows(*, limit: int, now: datetime) -> list[QueueRow]:
    """The open questions, the one that runs out first on top."""
    return [
        QueueRow(
            approval=approval,
            impact=one_line(approval),
            votes=sum(vote.decision == "APPROVE" for vote in approval.votes.all()),
            expired=approval.expires_at <= now,
            soon=approval.expires_at <= now + SOON,
        )
        for approval in approvals.waiting(limit=limit)
    ]


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

    @property
    def is_open(self) -> bool:
        """Whether the question itself can still be decided by somebody."""
        return self.approval.state == ApprovalState.PENDING


def review_item(*, approval_id: UUID, decider: Decider) -> ReviewItem | None:
    """The page of one approval as `decider` may see it now; None when there is none."""
    approval = approvals.find(approval_id=approval_id)
    if approval is None:
        return None
    action = ActionJournal.objects.get(pk=approval.action_id)
    run = Run.objects.select_related("agent_version").get(pk=approval.run_id)
    votes = approvals.votes(approval_id=approval_id)
    now = database_clock()
    impact = preview_of(approval)
    shown = redacted(approval.tool, approval.arguments)
    return ReviewItem(
        approval=approval,
        action=action,
        run=run,
        turn=Turn.objects.filter(run=run, number=action.turn).first(),
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
    )


def _precheck_time(approval: Approval) -> datetime | None:
    """When the impact was read from the system of record."""
    at = (approval.impact or {}).get("at")
    return datetime.fromisoformat(at) if isinstance(at, str) else None


@dataclass(slots=True)
class ActionView:
    """One action with its attempts, approvals and readable arguments."""

    action: ActionJournal
    attempts: list[Attempt] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event of the timeline; `gap` is the time without events before it, where it is long."""

    event: Event
    gap: str
    moves: list[dict[str, Any]]
    rest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunPage:
    """Everything known about one run."""

    run: Run
    now: datetime
    turns: list[Turn]
    actions: list[ActionView]
    model_attempts: list[Attempt]
    approvals: list[Approval]
    timeline: list[EventLine]
    earlier_events: int
    incidents: list[Incident]


def run_page(*, run: Run) -> RunPage:
    """The rows of one run, ordered for reading. Of the events, the last `MAX_EVENTS`."""
    actions = list(run.actions.order_by("turn", "ordinal", "edit"))
    attempts = list(run.attempts.order_by("started_at", "n"))
    asked = approvals.of_run(run_id=run.pk)
    events = list(run.events.order_by("-seq")[:MAX_EVENTS])[::-1]
    return RunPage(
        run=run,
        now=database_clock(),
        turns=list(run.turns.order_by("number")),
        actions=[_action_view(action, attempts, asked) for action in actions],
        model_attempts=[attempt for attempt in attempts if attempt.action_id is None],
        approvals=asked,
        timeline=timeline(events),
        earlier_events=events[0].seq - 1 if events else 0,
        incidents=list(run.incidents.order_by("id")),
    )


def action_view(*, action: ActionJournal) -> ActionView:
    """One action with its attempts and approvals."""
    attempts = list(action.attempts.order_by("started_at", "n"))
    return _action_view(action, attempts, approvals.of_actions(action_ids=[action.pk]))


def _action_view(
    action: ActionJournal, attempts: list[Attempt], asked: list[Approval]
) -> ActionView:
    return ActionView(
        action=action,
        attempts=[attempt for attempt in attempts if attempt.action_id == action.pk],
        approvals=[approval for approval in asked if approval.action_id == action.pk],
        arguments=redacted(action.tool, action.arguments),
    )


def timeline(events: list[Event]) -> list[EventLine]:
    """Events as lines, with a gap marker where more than ten seconds passed in silence."""
    lines = []
    previous: datetime | None = None
    for event in events:
        rest = dict(event.data) if isinstance(event.data, dict) else {"data": event.data}
        moves = rest.pop("transitions", [])
        silent = event.created_at - previous if previous else timedelta(0)
        gap = text.span(silent) if silent > timedelta(seconds=10) else ""
        lines.append(EventLine(event=event, gap=gap, moves=_moves(moves), rest=rest))
        previous = event.created_at
    return lines


def _moves(moves: Any) -> list[dict[str, Any]]:
    """The moves with `source` and `target`, since a template cannot read a key named `from`."""
    known = [move for move in moves if isinstance(move, dict)] if isinstance(moves, list) else []
    return [{**move, "source": move.get("from"), "target": move.get("to")} for move in known]
