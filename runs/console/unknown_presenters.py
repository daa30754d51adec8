"""What the pages about unknown writes show, gathered from rows into plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, Value, When

from agentcore.lifecycle import ActionState
from agentcore.reconciling import JUDGED, Send, Verdict, retained_until, settled_at
from agentcore.values import AttemptKind
from approvals.models import Approval
from runs import sends
from runs.approving import Decider
from runs.console import presenters, text
from runs.console.redaction import redacted, redactor_of
from runs.deciding import requesters_of
from runs.models import ActionJournal, Attempt, Event, Run
from runs.probing import PROBED
from runs.reconcile_models import Callback, Reconciliation
from runs.reconciliations import may_judge
from runs.selectors import database_clock
from runs.verdict_errors import VerdictError
from runs.view import spec_of
from tools.spec import ToolSpec

A = ActionState
SHOWN = (A.NEEDS_HUMAN, A.UNKNOWN, A.PENDING)
"""The states of the board, the most urgent first."""
NEIGHBOURS = 20
CHANGES = 20

GUARANTEES = {
    "KEY": "The downstream acts once for our key; a repeat gets the first answer.",
    "NATURAL": "Sending it twice has the effect of once.",
    "QUERY": "The effect can be looked up; nothing stops a second one.",
    "NONE": "The downstream promises nothing about a repeat: one attempt ever.",
}


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One line of the board."""

    action: ActionJournal
    subject: str
    impact: str
    since: datetime
    last_verdict: str
    can_probe: bool


def board_rows(*, limit: int) -> list[BoardRow]:
    """The writes whose fate is open: those that need a person on top, then the oldest."""
    rank = Case(
        *(When(state=state, then=Value(n)) for n, state in enumerate(SHOWN)),
        output_field=IntegerField(),
    )
    # By way of the live runs, of which there is an index: a run ends after its actions.
    rows = ActionJournal.objects.filter(ended_at=None, state__in=SHOWN, run__ended_at=None)
    actions = list(rows.select_related("approval").order_by(rank, "first_sent_at", "id")[:limit])
    answers = _last_answers([action.pk for action in actions])
    return [
        BoardRow(
            action=action,
            subject=subject_of(action),
            impact=impact_of(action),
            since=action.first_sent_at or action.created_at,
            last_verdict=answers.get(action.pk, ""),
            can_probe=can_probe(action),
        )
        for action in actions
    ]


def _last_answers(ids: Sequence[UUID]) -> dict[UUID, str]:
    probes = Attempt.objects.filter(
        action_id__in=ids, kind=AttemptKind.PROBE, outcome__isnull=False
    ).order_by("n")
    return {probe.action_id: answer_of(probe) for probe in probes if probe.action_id}


def answer_of(probe: Attempt) -> str:
    """What the downstream said to one probe, in one word."""
    said = probe.result if isinstance(probe.result, dict) else {}
    word = str(said.get("verdict") or probe.error_class or "no answer")
    return word if said.get("fingerprint_matches", True) else f"{word}, with other arguments"


def subject_of(action: ActionJournal) -> str:
    """What a button says it acts on: `submit_refund for order:ORD-77`."""
    verb = text.short(presenters.verb_of(action.tool), 60)
    return f"{verb} for {text.short(action.resource_key)}" if action.resource_key else verb


def impact_of(action: ActionJournal) -> str:
    """The impact in one line: what the approver saw, else the precheck, else the call itself."""
    approval: Approval | None = action.approval
    if approval is not None:
        return presenters.one_line(approval)
    preview = (action.precheck or {}).get("preview")
    if isinstance(preview, dict) and preview.get("summary"):
        return text.short(redactor_of([action]).json(preview["summary"]), 160)
    shown = redacted(action.tool, action.arguments)
    inside = ", ".join(f"{cell.path}={cell.text}" for cell in text.cells(shown)) if shown else ""
    return text.short(f"{presenters.verb_of(action.tool)}({inside})", 160)


def can_probe(action: ActionJournal) -> bool:
    """Whether the downstream can be asked about it now."""
    spec = spec_of(action)
    return action.state in PROBED and spec is not None and spec.probe_fn is not None


@dataclass(frozen=True, slots=True)
class Clock:
    """A time with what it means. `at` None: there is no such time."""

    name: str
    at: datetime | None
    words: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to the downstream with its raw answer."""

    attempt: Attempt
    answer: str


@dataclass(frozen=True, slots=True)
class UnknownItem:
    """Everything a person should see before saying what became of one write."""

    action: ActionJournal
    run: Run
    subject: str
    impact: str
    guarantee: str
    arguments: list[text.Cell]
    canonical: str
    sends: list[Attempt]
    probes: list[Probe]
    callbacks: list[Callback]
    verdicts: list[Reconciliation]
    neighbours: list[ActionJournal]
    clocks: list[Clock]
    now: datetime
    can_probe: bool
    resend_refusal: str
    asked_by: str
    refusal: VerdictError | None

    @property
    def is_open(self) -> bool:
        """Whether somebody may give a verdict."""
        return self.action.state in JUDGED


def unknown_item(*, action_id: UUID, person: Decider) -> UnknownItem | None:
    """The page of one write as `person` may see it now; None when there is none."""
    found = ActionJournal.objects.select_related("run", "run__agent_version", "approval")
    action = found.filter(pk=action_id).exclude(effect="READ").first()
    if action is None:
        return None
    now, spec, run = database_clock(), spec_of(action), action.run
    redactor = redactor_of([action])
    redactor.hide(action, "detail")
    attempts = [
        redactor.hide(attempt, "result", "detail", "reference")
        for attempt in action.attempts.order_by("started_at", "n")
    ]
    tools = [attempt for attempt in attempts if attempt.kind == AttemptKind.TOOL]
    made = sends.sends_of(tools)
    shown = redacted(action.tool, action.arguments)
    verdicts = list(action.reconciliations.order_by("created_at", "id"))
    return UnknownItem(
        action=action,
        run=run,
        subject=subject_of(action),
        impact=impact_of(action),
        guarantee=GUARANTEES.get(action.contract, ""),
        arguments=text.cells(shown) if shown else [],
        canonical=presenters.canonical_text(shown),
        sends=tools,
        probes=[Probe(a, answer_of(a)) for a in attempts if a.kind == AttemptKind.PROBE],
        callbacks=[
            redactor.hide(callback, "result", "detail")
            for callback in action.callbacks.order_by("created_at")
        ],
        verdicts=verdicts,
        neighbours=_neighbours(action),
        clocks=_clocks(action, spec, made),
        now=now,
        can_probe=can_probe(action),
        resend_refusal=sends.why_not_resend(action=action, run=run, sends=made, spec=spec, now=now),
        asked_by=_asked_by(verdicts, len(made)),
        refusal=may_judge(person=person, requesters=requesters_of(run)),
    )


def _asked_by(verdicts: Sequence[Reconciliation], made: int) -> str:
    """Who has asked for a resend that a second person may grant now."""
    last = verdicts[-1] if verdicts else None
    if last is None or last.verdict != Verdict.RESEND_SAME_KEY or last.sends != made:
        return ""
    return "" if last.agrees_with_id else last.person


def _neighbours(action: ActionJournal) -> list[ActionJournal]:
    """Other writes on the same resource, newest first."""
    if not action.resource_key:
        return []
    rows = ActionJournal.objects.filter(tenant=action.tenant, resource_key=action.resource_key)
    others = rows.exclude(pk=action.pk).exclude(effect="READ").order_by("-id")
    return list(others[:NEIGHBOURS])


def _clocks(action: ActionJournal, spec: ToolSpec | None, made: Sequence[Send]) -> list[Clock]:
    contract = spec.contract if spec else None
    settled = settled_at(sends=made, contract=contract, timeout=spec.timeout if spec else 0.0)
    kept = retained_until(contract=contract, first_sent_at=action.first_sent_at)
    late = "a request may still arrive until then; afterwards “not there” counts"
    keep = "the downstream knows our key until then; a resend before is not a second effect"
    if kept is None:
        keep = "no promise: the contract of this tool keeps no key"
    return [Clock("Settles", settled, late), Clock("Key kept until", kept, keep)]


@dataclass(frozen=True, slots=True)
class Change:
    """One event since the page was loaded that concerns the action."""

    event: Event
    words: str


def changes_since(*, action: ActionJournal, seq: int) -> list[Change]:
    """What happened to the action after event `seq` of its run, oldest first."""
    events = Event.objects.filter(run_id=action.run_id, seq__gt=seq).order_by("seq")[:200]
    found = [Change(event, words) for event in events if (words := _words(event, action))]
    return found[-CHANGES:]


def _words(event: Event, action: ActionJournal) -> str:
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
    moves = [move for move in data.get("transitions", []) if isinstance(move, dict)]
    said = [f"{m.get('from')} → {m.get('to')} ({m.get('cause')})" for m in _about(moves, action)]
    if data.get("action") == str(action.pk) and "verdict" in data:
        verdict = str(data["verdict"]).replace("_", " ").lower()
        said.insert(0, f"{data.get('person')}: {verdict}")
    if not said and data.get("action") == str(action.pk):
        said = [event.type]
    return "; ".join(said)


def _about(moves: Iterable[dict[str, Any]], action: ActionJournal) -> list[dict[str, Any]]:
    return [m for m in moves if m.get("object") == "action" and m.get("id") == str(action.pk)]
