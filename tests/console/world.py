"""A small installation in rows: one run of each kind that the pages are made for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from runs.models import ActionJournal, Attempt, Incident, Run, Worker
from runs.selectors import database_clock
from tests.factories import Waiting, force_state, make_run, make_waiting

LISTS = (
    "/admin/runs/run/",
    "/admin/runs/actionjournal/",
    "/admin/approvals/approval/",
    "/admin/runs/incident/",
    "/admin/runs/event/",
    "/admin/runs/webhookdelivery/",
    "/admin/runs/bulkoperation/",
)
BOARDS = (
    "/admin/",
    "/admin/review/",
    "/admin/unknown/",
    "/admin/stuck/",
    "/admin/agents/",
    "/admin/tools/",
    "/admin/policy/",
    "/admin/workers/",
    "/admin/help/",
)
TABS = ("overview", "timeline", "turns", "actions", "approvals", "cost", "raw")


@dataclass(frozen=True)
class Desk:
    """What is in the rows."""

    waiting: Waiting
    unknown: ActionJournal
    ended: Run

    def pages(self) -> list[str]:
        """The address of every page."""
        run = self.waiting.run.pk
        return [
            *BOARDS,
            *LISTS,
            f"/admin/review/{self.waiting.approval.pk}/",
            f"/admin/review/{self.waiting.approval.pk}/edit/",
            f"/admin/unknown/{self.unknown.pk}/",
            f"/admin/runs/actionjournal/{self.waiting.action.pk}/change/",
            *(f"/admin/runs/run/{run}/change/?tab={tab}" for tab in TABS),
            f"/admin/runs/run/{run}/turn/1/",
        ]


def make_desk(**action: Any) -> Desk:
    """A run that waits, one with an unknown write, one that ended, a worker that lives."""
    waiting = make_waiting(action=action or None)
    lost = make_waiting()
    now = database_clock()
    force_state(
        lost.action,
        state="UNKNOWN",
        idempotency_key="k" * 40,
        first_sent_at=(now - timedelta(minutes=4)),
        effect="WRITE",
        next_probe_at=now + timedelta(seconds=30),
        probes=1,
    )
    force_state(lost.approval, state="CONSUMED", decided_at=now, consumed_at=now)
    force_state(lost.run, state="RECONCILING")
    attempt(lost.action, outcome="AMBIGUOUS", error_class="timeout", ended_at=now)
    ended = make_run()
    force_state(ended, state="COMPLETED", ended_at=now, output={"answer": "done"})
    Incident.objects.create(run=ended, kind="KEY_CONFLICT", detail="twice", created_at=now)
    live_worker()
    return Desk(waiting, lost.action, ended)


def attempt(action: ActionJournal, **fields: Any) -> Attempt:
    now = database_clock()
    values: dict[str, Any] = {
        "run_id": action.run_id,
        "action": action,
        "turn": 1,
        "kind": "TOOL",
        "n": 1,
        "fence": action.run.fence,
        "worker": uuid4(),
        "input_revision": 1,
        "send_by": now,
        "started_at": now - timedelta(seconds=3),
    }
    return Attempt.objects.create(**{**values, **fields})


def live_worker(*, queues: tuple[str, ...] = ("compile", "model", "tools", "observe")) -> Worker:
    now = database_clock()
    return Worker.objects.create(
        id=uuid4(),
        hostname="worker-1",
        pid=100,
        queues=list(queues),
        version="1",
        started_at=now - timedelta(hours=2),
        beat_at=now,
        swept_at=now,
    )
