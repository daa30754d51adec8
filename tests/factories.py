"""Rows for tests, made by the product's own doors, so that every one of them is legal.

`make_run` gives a run in QUEUED; `make_waiting` one that waits for a person, with its turn, its
action, its approval and its three events. `force_state` is the one exception: it writes a state
past the triggers, for tests about what happens next.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from psycopg.types.json import Jsonb

from agentcore.canonical import params_hash, sha256_hex
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, RunState
from agentcore.values import Effect
from approvals import records
from approvals.models import Approval
from runs.approving import Decider
from runs.models import ActionJournal, AgentVersion, Run, Turn
from runs.rights import decider_now
from runs.selectors import database_clock
from runs.transitions import create_run, locked_run

TENANT = "acme"
PRINCIPAL = "token:shop-backend"
PERMISSION = "approvals.decide_approval"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Waiting:
    """A run in WAITING_APPROVAL and what it waits for."""

    run: Run
    turn: Turn
    action: ActionJournal
    approval: Approval

    def reload(self) -> Waiting:
        """The rows as they are now."""
        for row in (self.run, self.action, self.approval):
            row.refresh_from_db()
        return self


def make_agent_version(**fields: Any) -> AgentVersion:
    """An agent version of its own."""
    values = {
        "name": "refund_desk",
        "version": "1",
        "digest": sha256_hex(str(uuid4())),
        "spec": {},
        "created_at": database_clock(),
    }
    return AgentVersion.objects.create(**{**values, **fields})


def make_run(*, principal: str = PRINCIPAL, **fields: Any) -> Run:
    """A run in QUEUED with its first event."""
    now = database_clock()
    values: dict[str, Any] = {
        "tenant": TENANT,
        "agent_version": fields.pop("agent_version", None) or make_agent_version(),
        "input": {"request": "Refund order ORD-77, it arrived damaged."},
        "wake_at": now,
        "max_turns": 12,
        "max_actions": 20,
        "deadline_at": now + timedelta(minutes=30),
        "code_version": "test",
        "created_at": now,
    }
    run = Run(principal=principal, **{**values, **fields})
    with transaction.atomic():
        create_run(run, actor=principal)
    return run


def new_action(run: Run, **fields: Any) -> ActionJournal:
    """An unsaved refund of ORD-77 that asks for a person; its hash fits its arguments."""
    values: dict[str, Any] = {
        "run": run,
        "tenant": run.tenant,
        "turn": 1,
        "ordinal": 0,
        "call_id": "call_1",
        "tool": "refund_desk.submit_refund",
        "tool_version": "1",
        "effect": Effect.WRITE_IRREVERSIBLE,
        "contract": "KEY",
        "arguments": {"order_id": "ORD-77", "amount": "80.00 EUR", "reason": "damaged"},
        "resource_key": "order:ORD-77",
        "policy_verdict": "ASK",
        "policy_rule": "amount above 50.00 EUR",
        "policy_version": "1",
        "bound_version": "7",
        "state": ActionState.AWAITING_APPROVAL,
        "created_at": database_clock(),
    }
    action = ActionJournal(id=new_id(), **{**values, **fields})
    action.params_hash = action.params_hash or params_hash(
        tool=action.tool,
        tool_version=action.tool_version,
        tenant=action.tenant,
        params=action.arguments,
    )
    return action


IMPACT = {
    "summary": "Refund 80.00 EUR to Ada Lovelace for order ORD-77",
    "before": {"refunded": "0.00 EUR", "refundable": "120.00 EUR", "status": "delivered"},
    "after": {"refunded": "80.00 EUR", "refundable": "40.00 EUR", "status": "delivered"},
    "block": [],
    "version": "7",
}


def make_waiting(
    *,
    run: Run | None = None,
    action: dict[str, Any] | None = None,
    ttl: timedelta = timedelta(hours=4),
    role: str = "",
    required_count: int = 1,
    impact: dict[str, Any] | None = None,
    turn: dict[str, Any] | None = None,
    rule: str = "amount above 50.00 EUR",
) -> Waiting:
    """A run that waits for a person about one action."""
    run = run or make_run()
    with locked_run(run.pk, actor="worker:test", event="run.advanced") as draft:
        draft.move_run(RunState.COMPILING_CONTEXT)
        draft.move_run(RunState.CALLING_MODEL, turn=1)
        shown = _turn(run, draft.now, **(turn or {}))
        draft.add(shown)
    with locked_run(run.pk, actor="worker:test", event="run.advanced") as draft:
        asked = new_action(draft.run, **(action or {}))
        row = records.request(
            tenant=run.tenant,
            run_id=run.pk,
            action_id=asked.pk,
            tool=asked.tool,
            tool_version=asked.tool_version,
            policy_version=asked.policy_version,
            rule=rule,
            arguments=asked.arguments,
            params_hash=asked.params_hash,
            requester=run.principal,
            now=draft.now,
            ttl=ttl,
            resource_key=asked.resource_key,
            resource_version=asked.bound_version,
            impact=_precheck(IMPACT if impact is None else impact, draft.now),
            role=role,
            required_count=required_count,
        )
        asked.approval_id = row.pk
        draft.move_run(RunState.DISPATCHING_TOOLS)
        draft.add_action(asked)
        draft.move_run(RunState.WAITING_APPROVAL, wake_at=row.expires_at)
    return Waiting(run=draft.run, turn=shown, action=asked, approval=row).reload()


def _precheck(preview: dict[str, Any], now: datetime) -> dict[str, Any] | None:
    """A preview as the runtime stores it; None for a tool that has none."""
    return {"ok": True, "at": now.isoformat(), "preview": preview} if preview else None


def _turn(run: Run, now: Any, **fields: Any) -> Turn:
    values: dict[str, Any] = {
        "number": 1,
        "model": "gpt-test",
        "manifest": {"items": []},
        "request_sha256": sha256_hex("request"),
        "response_id": "resp_1",
        "output": "[]",
        "decision": "TOOL_CALLS",
        "text": "The order arrived damaged and is within 30 days, so I will refund 80.00 EUR.",
        "usage": {"input_tokens": 812, "output_tokens": 64},
        "code_version": "test",
        "created_at": now,
        "decided_at": now,
    }
    return Turn(run_id=run.pk, **{**values, **fields})


def force_state(row: Run | ActionJournal | Approval, **columns: Any) -> None:
    """Write columns past the triggers. Only for a state that a test needs to start from."""
    names = ", ".join(f'"{name}" = %s' for name in columns)
    values = [Jsonb(v) if isinstance(v, dict | list) else v for v in columns.values()]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            f'UPDATE "{row._meta.db_table}" SET {names} WHERE id = %s',  # noqa: S608
            [*values, row.pk],
        )
    row.refresh_from_db()


def decider(name: str = "user:grace", **fields: Any) -> Decider:
    """Somebody who may decide."""
    values: dict[str, Any] = {"permissions": frozenset({PERMISSION})}
    return Decider(name=name, **{**values, **fields})


def make_user(
    name: str = "", *, superuser: bool = False, decide: bool = True, groups: tuple[str, ...] = ()
) -> User:
    """A staff user who can see the records and, unless told otherwise, decide."""
    name = name or f"person{next(_numbers)}"
    make = User.objects.create_superuser if superuser else User.objects.create_user
    user: User = make(username=name, password="secret-for-tests", is_staff=True)
    wanted = ["view_run", "view_actionjournal", "view_approval", "view_incident"]
    wanted += ["decide_approval"] if decide else []
    user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def real_decider(
    name: str = "user:grace", *, roles: tuple[str, ...] = (), **fields: Any
) -> Decider:
    """Somebody who may decide and has an account: an approval is good while its giver has rights.

    `fields` are those of the account. The account is made when it is not there.
    """
    values = {"password": "!", "is_staff": True, **fields}
    user, _ = User.objects.get_or_create(username=name.removeprefix("user:"), defaults=values)
    names = ["decide_approval", "decide_high_risk", "edit_arguments"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
    found = decider_now(name=name, tenant=TENANT)
    assert found is not None
    return found
