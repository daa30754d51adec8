"""A run that kills its process: driven in a process of its own, in the end suspended.

The rule is in `runs/isolation.py`. Here: the child process for installations without a worker for
the queue `isolate`, and the suspension with its evidence.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from django.db import connection

from agentcore import canonical
from agentcore.lifecycle import ACTION_OPEN, RUN_TERMINAL, ActionState, RunState, step_of
from runs import isolation, journal, leases, processor
from runs.driver import drive
from runs.models import Attempt, Incident, Run
from runs.steps import dispatch_tools
from runs.steps.base import far
from runs.transitions import Draft, locked_run
from runs.view import load_view
from runs.worker import WorkerIdentity

log = logging.getLogger(__name__)

POISON = "POISON"


class Children:
    """Drives isolated runs in child processes, one at a time, beside the sweep.

    `wait`: how long a run is left to a worker for the queue `isolate` before a child takes it (s).
    """

    def __init__(self, *, wait: float) -> None:
        self.wait = wait
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def start(self, run_ids: Sequence[UUID]) -> None:
        """Drive these runs one after another; the caller has seen that it is idle."""
        if run_ids:
            self._thread = threading.Thread(
                target=_each, args=(tuple(run_ids),), name="isolate", daemon=True
            )
            self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()


def _each(run_ids: Sequence[UUID]) -> None:
    for run_id in run_ids:
        code = drive_in_child(run_id)
        if code:
            log.error("the process that drove run %s alone ended with code %d", run_id, code)


def drive_in_child(run_id: UUID) -> int:
    """Drive one run in a process of its own and wait for it; the exit code, negative: a signal."""
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "django", "sweep", "--isolate-run", str(run_id)]
    with processor.anywhere():
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, check=False
        )
    return done.returncode


def drive_alone(run_id: UUID) -> bool:
    """Drive the run here, in a process that serves nothing else; whether it could be claimed."""
    try:
        return drive(run_id=run_id, revision=None) is not None
    finally:
        connection.close()


def suspend(run_id: UUID, *, worker: WorkerIdentity) -> bool:
    """SUSPENDED, with the evidence, when the run died often enough alone; False when not so.

    What it had sent is UNKNOWN from now on. A cancelling run cannot be suspended: what it has
    open goes to a person.
    """
    with locked_run(run_id, actor=worker.actor, event="run.requires_action") as draft:
        run = draft.run
        if run.state in RUN_TERMINAL or not isolation.is_spent(run.claims):
            return False
        if leases.is_live(run_id=run_id):
            return False
        claims, reason = run.claims, _evidence(run)
        draft.take_lease(worker=worker.id, token=worker.id)  # a new fence: the dead stay out
        _settle(draft, reason)
        if run.state in (RunState.CANCELLING, RunState.SUSPENDED):
            draft.set_run(reason=reason)
        else:
            resume_to = RunState(run.resume_to or run.state)
            draft.move_run(RunState.SUSPENDED, cause="poison", resume_to=resume_to, reason=reason)
        draft.release()
        draft.note(poison=reason, claims=claims)
    log.error("run %s: %s", run_id, reason)
    return True


def _settle(draft: Draft, reason: str) -> None:
    """The attempts of the dead are lost; an incident says which one was the last."""
    run, now = draft.run, draft.now
    view = load_view(run.id)
    view.run = run
    dispatch_tools.settle_lost(view, draft)
    last = _last_attempt(run)
    draft.add(
        Incident(
            run_id=run.id,
            action=last.action if last else None,
            attempt=last,
            kind=POISON,
            detail=reason,
            created_at=now,
        )
    )
    if run.state in (RunState.CANCELLING, RunState.SUSPENDED):
        # Looking was what killed it: only a person can tell.
        for action in view.in_state(ActionState.UNKNOWN, ActionState.PENDING):
            journal.needs_human(draft, action, reason=POISON, detail=reason)
    probes = [a.next_probe_at for a in view.in_state(*ACTION_OPEN) if a.next_probe_at]
    draft.set_run(wake_at=min(probes, default=far(now)))


def _last_attempt(run: Run) -> Attempt | None:
    rows = Attempt.objects.filter(run_id=run.id, outcome=None).select_related("action")
    return rows.order_by("-started_at", "-id").first()


def _evidence(run: Run) -> str:
    """Which claims, step, worker and attempt: what an operator needs to find the culprit."""
    last = _last_attempt(run)
    alone = run.claims - settings.AGENTCORE_OPTIONS.isolate_after
    step = step_of(RunState(run.state), RunState(run.resume_to) if run.resume_to else None)
    text = (
        f"{POISON}: {run.claims} claims ended without an outcome, {alone} of them in a process of"
        f" its own; step {step}, last worker {run.lease_worker or 'none'}"
    )
    if last is not None:
        what = last.action.tool if last.action else "the model"
        text += (
            f", last attempt {last.id} ({last.kind} {last.n} of {what}, turn {last.turn},"
            f" worker {last.worker})"
        )
    return canonical.clean_text(text, 2000)
