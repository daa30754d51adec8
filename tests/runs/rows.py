"""Rows in any state, for tests of the rules of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, models, transaction

from agentcore.lifecycle import ACTION_TERMINAL, RUN_RESUMES, RUN_TERMINAL
from approvals.models import Approval, ApprovalVote
from runs.models import (
    ActionJournal,
    AgentVersion,
    Attempt,
    Callback,
    Event,
    Evidence,
    Incident,
    KeyOwner,
    Ledger,
    Reconciliation,
    Run,
    Turn,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
NEEDS_STOP_REASON = frozenset({"INCOMPLETE", "FAILED", "CANCELLED", "CANCELLING"})


@contextmanager
def unguarded() -> Iterator[None]:
    """Triggers off for this block; needs a superuser and an open transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = origin")


def _insert(model: type[models.Model], defaults: dict[str, Any], values: dict[str, Any]) -> Any:
    row = model(**{**defaults, **values})
    with unguarded():
        row.save(force_insert=True)
    return row


def make_agent_version(**values: Any) -> AgentVersion:
    defaults = {
        "name": "desk",
        "version": "1",
        "digest": uuid4().hex,
        "spec": {},
        "created_at": NOW,
    }
    return _insert(AgentVersion, defaults, values)


def make_run(state: str = "DISPATCHING_TOOLS", **values: Any) -> Run:
    """A run in `state` with the columns that the check constraints ask for; fence 1."""
    if "agent_version" not in values:
        values["agent_version"] = make_agent_version()
    defaults = {
        "tenant": "acme",
        "principal": "token:desk",
        "scopes": ["refunds"],
        "input": {"order": "A-1"},
        "state": state,
        "resume_to": "COMPILING_CONTEXT" if state in RUN_RESUMES else None,
        "stop_reason": "CANCEL" if state in NEEDS_STOP_REASON else None,
        "reason": "ended" if state in RUN_TERMINAL else "",
        "revision": 5,
        "fence": 1,
        "wake_at": NOW,
        "max_turns": 12,
        "max_actions": 20,
        "deadline_at": NOW + timedelta(minutes=30),
        "event_seq": 5,
        "output": {"text": "done"} if state in RUN_TERMINAL else None,
        "code_version": "test",
        "created_at": NOW,
        "ended_at": NOW if state in RUN_TERMINAL else None,
    }
    return _insert(Run, defaults, values)


def make_action(run: Run, state: str = "READY", **values: Any) -> ActionJournal:
    """A write in `state` with every column that may be null or blank filled in."""
    defaults = {
        "run": run,
        "tenant": run.tenant,
        "turn": 1,
        "ordinal": 0,
        "call_id": "call_0",
        "tool": "refund_desk.submit_refund",
        "tool_version": "1",
        "effect": "WRITE",
        "contract": "KEY",
        "arguments": {"order_id": "A-1"},
        "params_hash": "p" * 64,
        "fingerprint": "f" * 64,
        "intent_key": "i" * 64,
        "generation": 0,
        "idempotency_key": "k" * 64,
        "state": state,
        "revision": 3,
        "fence": 1,
        "result": {"refund": "R-1"},
        "observation": "refunded",
        "first_sent_at": NOW,
        "created_at": NOW,
        "ended_at": NOW if state in ACTION_TERMINAL else None,
    }
    return _insert(ActionJournal, defaults, values)


def make_attempt(action: ActionJournal, **values: Any) -> Attempt:
    """A finished attempt; pass `outcome=None, ended_at=None` for an open one."""
    defaults = {
        "run_id": action.run_id,
        "turn": 1,
        "action": action,
        "kind": "TOOL",
        "n": 1,
        "fence": 1,
        "worker": uuid4(),
        "idempotency_key": "k" * 64,
        "fingerprint": "f" * 64,
        "input_revision": 4,
        "send_by": NOW,
        "started_at": NOW,
        "outcome": "SUCCESS",
        "result": {"refund": "R-1"},
        "ended_at": NOW,
    }
    return _insert(Attempt, defaults, values)


def make_turn(run: Run, **values: Any) -> Turn:
    defaults = {
        "run": run,
        "number": 1,
        "model": "scripted",
        "manifest": {},
        "request_sha256": "a" * 64,
        "response_id": "resp_1",
        "output": "[]",
        "decision": "FINAL",
        "text": "done",
        "usage": {},
        "code_version": "test",
        "created_at": NOW,
        "decided_at": NOW,
    }
    return _insert(Turn, defaults, values)


def make_event(run: Run, **values: Any) -> Event:
    defaults = {
        "run": run,
        "seq": 1,
        "type": "run.created",
        "actor": "test",
        "revision_before": 0,
        "revision_after": 1,
        "data": {},
        "txn": uuid4(),
        "hash": "h" * 64,
        "created_at": NOW,
    }
    return _insert(Event, defaults, values)


def make_key_owner(action: ActionJournal, **values: Any) -> KeyOwner:
    defaults = {
        "tenant": "acme",
        "tool": action.tool,
        "intent_key": uuid4().hex,
        "generation": 0,
        "action": action,
        "fingerprint": "f" * 64,
        "created_at": NOW,
        "released_at": NOW,
    }
    return _insert(KeyOwner, defaults, values)


def make_incident(action: ActionJournal, **values: Any) -> Incident:
    defaults = {
        "run_id": action.run_id,
        "action": action,
        "kind": "CONTRADICTION",
        "detail": "another reference",
        "created_at": NOW,
    }
    return _insert(Incident, defaults, values)


def make_reconciliation(action: ActionJournal, **values: Any) -> Reconciliation:
    defaults = {
        "run_id": action.run_id,
        "action": action,
        "verdict": "STILL_UNKNOWN",
        "person": "user:grace",
        "evidence": "the dashboard is down",
        "action_revision": 2,
        "sends": 1,
        "from_state": "UNKNOWN",
        "to_state": "UNKNOWN",
        "created_at": NOW,
    }
    return _insert(Reconciliation, defaults, values)


def make_callback(action: ActionJournal | None, **values: Any) -> Callback:
    """A settled callback; pass `did="", settled_at=None` for a parked one."""
    defaults = {
        "source": "payments",
        "event_id": uuid4().hex,
        "body_sha256": "b" * 64,
        "word": "SUCCEEDED",
        "idempotency_key": "k" * 64,
        "sent_at": NOW,
        "created_at": NOW,
        "action": action,
        "did": "SUCCEED",
        "settled_at": NOW,
    }
    return _insert(Callback, defaults, values)


def make_evidence(action: ActionJournal, **values: Any) -> Evidence:
    defaults = {
        "run_id": action.run_id,
        "turn": action.turn,
        "action": action,
        "source": f"{action.tool}@1",
        "sha256": "e" * 64,
        "verified": True,
        "observed_at": NOW,
        "created_at": NOW,
    }
    return _insert(Evidence, defaults, values)


def make_ledger(attempt: Attempt, **values: Any) -> Ledger:
    defaults = {
        "run_id": attempt.run_id,
        "attempt": attempt,
        "turn": attempt.turn,
        "entry": "RESERVE",
        "model": "scripted",
        "input_tokens": 100,
        "output_tokens": 10,
        "created_at": NOW,
    }
    return _insert(Ledger, defaults, values)


def make_approval(state: str = "PENDING", **values: Any) -> Approval:
    defaults = {
        "tenant": "acme",
        "run_id": uuid4(),
        "action_id": uuid4(),
        "state": state,
        "tool": "refund_desk.submit_refund",
        "tool_version": "1",
        "policy_version": "1",
        "rule": "always",
        "arguments": {"order_id": "A-1"},
        "params_hash": "p" * 64,
        "impact": {},
        "requester": "token:desk",
        "expires_at": NOW + timedelta(hours=4),
        "created_at": NOW,
        "decided_at": NOW,
        "consumed_at": NOW,
        "supersedes": uuid4(),
        "standing": uuid4(),
        "validation": {"ok": True},
    }
    return _insert(Approval, defaults, values)


def make_vote(approval: Approval, **values: Any) -> ApprovalVote:
    defaults = {
        "approval": approval,
        "voter": "user:1",
        "decision": "APPROVE",
        "params_hash": "p" * 64,
        "created_at": NOW,
    }
    return _insert(ApprovalVote, defaults, values)


def make_full_row(table: str) -> UUID | int:
    """One live row of `table` with every column set that a rule looks at; its id."""
    from tests.runs.control_rows import ALONE

    if table in ALONE:
        pk: UUID | int = ALONE[table]().pk
        return pk
    run = make_run(stop_reason="BUDGET", failure={"layer": "runtime"})
    if table == "runs_run":
        return run.pk
    if table == "runs_turn":
        return make_turn(run).pk
    if table == "runs_event":
        return make_event(run).pk
    action = make_action(run)
    makers: dict[str, Any] = {
        "runs_attempt": lambda: make_attempt(action, lost_at=NOW),
        "runs_keyowner": lambda: make_key_owner(action),
        "runs_incident": lambda: make_incident(action),
        "runs_evidence": lambda: make_evidence(action),
        "runs_ledger": lambda: make_ledger(make_attempt(action)),
        "runs_reconciliation": lambda: make_reconciliation(action),
        "runs_callback": lambda: make_callback(action),
        "runs_actionjournal": lambda: action,
    }
    return makers[table]().pk
