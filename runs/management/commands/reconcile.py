"""`manage.py reconcile`: one pass over the writes whose outcome is not known, for cron."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from agentcore.lifecycle import ActionState
from agentcore.values import AttemptKind
from runs import dispatch, worker
from runs.driver import drive
from runs.models import ActionJournal, Attempt, Run

LOOKED_AT = (ActionState.UNKNOWN, ActionState.PENDING)
STEP = "tools"
"""The only step taken here: no model is called from cron."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass came to: runs driven, runs that another process holds, runs that failed."""

    driven: int
    held: int
    failed: int


class Command(BaseCommand):
    help = (
        "Ask the downstreams about the writes whose outcome is not known (UNKNOWN) or not final"
        " (PENDING), as far as they are due, and act on the answers. One line an action: tool,"
        " idempotency key, what the newest probe said, the state before and after. Runs that a"
        " worker holds are left to it; workers and sweeps do the same work by themselves."
        " Exit code 0, or 1 when a run could not be driven."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=100, help="runs in one pass (100)")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            done = self._pass(due_runs(limit=options["limit"]))
        finally:
            worker.stop()
        text = f"{done.driven} runs reconciled, {done.held} held by a worker, {done.failed} failed"
        self.stdout.write(text)
        if done.failed:
            raise CommandError(f"{done.failed} runs could not be driven; see the messages above")

    def _pass(self, run_ids: Iterable[UUID]) -> Pass:
        driven = held = failed = 0
        for run_id in run_ids:
            before = _open_writes(run_id)
            try:
                left = drive(run_id=run_id, revision=None, inline=frozenset({STEP}))
            except Exception as error:  # noqa: BLE001  (one broken run must not keep the others)
                self.stderr.write(f"run {run_id}: {type(error).__name__}: {error}")
                failed += 1
                continue
            finally:
                connection.close()
            if left is None:
                held += 1
                continue
            driven += 1
            if left.due is not None:
                dispatch.hint(run_id=run_id, revision=left.revision, step=left.due)
            for action in before:
                self.stdout.write(_line(action))
        return Pass(driven, held, failed)


def due_runs(*, limit: int) -> list[UUID]:
    """Runs with a write that is due to be asked about, the longest due first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    runs = Run.objects.filter(
        ended_at=None,
        wake_at__lte=now,
        actions__state__in=LOOKED_AT,
        actions__ended_at=None,
    )
    return list(runs.order_by("wake_at", "id").values_list("id", flat=True).distinct()[:limit])


def _open_writes(run_id: UUID) -> list[ActionJournal]:
    rows = ActionJournal.objects.filter(run_id=run_id, state__in=LOOKED_AT)
    return list(rows.order_by("turn", "ordinal", "edit"))


def _line(before: ActionJournal) -> str:
    after = ActionJournal.objects.get(pk=before.pk)
    probe = Attempt.objects.filter(action=after, kind=AttemptKind.PROBE).order_by("n").last()
    verdict = "no probe"
    if probe is not None:
        verdict = str((probe.result or {}).get("verdict") or "no answer")
    line = f"{after.tool} {after.idempotency_key} {verdict}: {before.state} -> {after.state}"
    if after.next_probe_at is not None:
        line += f", next look {after.next_probe_at:%Y-%m-%d %H:%M:%S} UTC"
    elif after.reason:
        line += f" ({after.reason})"
    return line
