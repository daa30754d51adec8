"""Trying a task again: a new run that shares the intents of the first one.

Reached as `runs.services.retry_run`. The new run has the input of the old one, the limits that its
request had lowered, and the same scope of business intents, so what the old run did is not done
again, and what it left unknown is not sent anew.
"""

from __future__ import annotations

from uuid import UUID

from agentcore.values import Priority
from runs import selectors, transitions
from runs.models import Run
from runs.once import Within
from runs.refusals import Refused
from runs.selectors import Begun
from runs.starting import BudgetRequest, StartRun

RETRYABLE = ("FAILED", "INCOMPLETE")


def retry_request(run: Run) -> StartRun:
    """What a retry of `run` asks for: its task, in its line of tries."""
    return StartRun(
        agent=run.agent_version.name,
        input=run.input,
        metadata=run.metadata,
        dedupe_key=run.dedupe_key,
        on_behalf_of=run.on_behalf_of,
        session=run.session_id,
        webhook_endpoint=run.webhook_endpoint_id,
        retry_of=first_of(run),
        budget=_lowered_limits(run),
        ttl=run.deadline_at - run.created_at,
        clamped=True,
        priority=Priority(run.priority),
        dry_run=run.dry_run,
    )


def _lowered_limits(run: Run) -> BudgetRequest:
    """What the request for `run` had lowered below its agent version; the rest is left to the
    version that the retry gets, also what a resume had raised.
    """
    declared = run.agent_version.spec.get("budget") or {}
    return BudgetRequest(
        max_turns=_if_below(run.max_turns, declared.get("turns")),
        max_actions=_if_below(run.max_actions, declared.get("actions")),
        max_tokens=_if_below(run.max_tokens, declared.get("tokens")),
        max_cost=_if_below(run.max_cost, declared.get("cost")),
    )


def _if_below(limit: int | None, declared: int | None) -> int | None:
    return limit if limit is not None and (declared is None or limit < declared) else None


def first_of(run: Run) -> UUID:
    """The first run of a line of tries."""
    found: UUID = run.retry_of_id or run.id
    return found


def check_retryable(run_id: UUID) -> None:
    """Lock the run in the open transaction; raises `Refused` unless it may be tried again now."""
    run, _ = transitions.lock_run(run_id)
    if run.state not in RETRYABLE:
        raise Refused(
            code="run_not_retryable",
            detail=f"Only a failed or incomplete run can be tried again, not one that is "
            f"{run.state.lower()}.",
        )
    if run.parent_id is not None:
        raise Refused(
            code="run_not_retryable",
            detail=f"run_{run.parent_id.hex} asked for it and has its outcome. Try that one again.",
        )
    line = Run.objects.filter(retry_of_id=first_of(run), ended_at__isnull=True)
    open_one = line.values_list("id", flat=True).first()
    if open_one is not None:
        known = f"run_{open_one.hex}"
        raise Refused(
            code="run_not_retryable",
            detail=f"{known} tries it again already.",
            context={"run": known},
        )


class Retried:
    """`Within` of a start that checks, inside its transaction, the run that is tried again."""

    def __init__(self, run_id: UUID, inner: Within | None) -> None:
        self._run_id = run_id
        self._inner = inner

    def begin(self) -> Begun:
        begun = self._inner.begin() if self._inner else selectors.begun()
        check_retryable(self._run_id)
        return begun

    def end(self, outcome: Run, *, run_id: UUID | None) -> None:
        if self._inner:
            self._inner.end(outcome, run_id=run_id)
