"""The rules of `agentcore/lifecycle.py` and the frozen columns, as PostgreSQL triggers.

`render(app=...)` returns the SQL text. `python -m runs.db_rules` freezes it in
the file of `FROZEN_IN`, which is what a migration runs; tests compare that file and
the live catalog with what is rendered here. Once a version is released, a changed rule is a new
migration with a new file, and `FROZEN_IN` names that one.

A rule about what may change is a trigger whose WHEN clause keeps it away from nearly all legal
writes. Moves, rules about two rows and what must hold within one (`db_checks.py`) need a function.
Every refusal has SQLSTATE 23514 and the name of its rule as its constraint.

PostgreSQL reads the text of a condition anew for each statement that fires its trigger, and of a
CHECK for each that writes to its table, which took a fifth of its time. So a rule about an UPDATE
names the columns that can break it: nothing gets past it, as no trigger changes a row and only what
a statement sets can be another value. So a WHEN clause is short and leaves it to the function to
compare many columns. And so the hot tables have no CHECKs but one function each, which plpgsql
keeps for a session.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentcore.lifecycle import action_pairs, approval_pairs, run_pairs
from runs import db_functions
from runs.db_checks import CHECKS, COUNTS
from runs.db_columns import (
    ACTION,
    ACTION_AFTER_END,
    APPROVAL,
    ATTEMPT,
    ATTEMPT_OUTCOME,
    CALLBACK,
    KEY_OWNER,
    RUN,
    RUN_FROZEN_AT_END,
    RUN_SLICE,
    STANDING,
    THRESHOLD,
    TURN,
    TURN_DECISION,
    Columns,
)
from runs.db_rule import Rule, changed, listed

APPS = ("approvals", "runs")
FROZEN_IN = {
    "approvals": "approvals/migrations/sql/0004_rules.sql",
    "runs": "runs/migrations/sql/0015_rules.sql",
}
"""The frozen text of each app, relative to the project's root."""

NO_DELETE = {
    "approvals": ("approvals_approval", "approvals_standingapproval"),
    "runs": (
        "runs_run",
        "runs_actionjournal",
        "runs_attempt",
        "runs_turn",
        "runs_keyowner",
        "runs_incident",
        "runs_callback",
        "runs_policythreshold",
    ),
}
APPEND_ONLY = {
    "approvals": ("approvals_approvalvote",),
    "runs": (
        "runs_event",
        "runs_agentversion",
        "runs_reconciliation",
        "runs_evidence",
        "runs_ledger",
        "runs_switchchange",
        "runs_auditanchor",
        "runs_auditentry",
    ),
}
FILLFACTOR = {"approvals": (), "runs": ("runs_run", "runs_actionjournal", "runs_attempt")}
"""Rows that are rewritten often: free space on each page keeps their updates HOT."""


def column_rules(columns: Columns) -> list[Rule]:
    """The triggers for frozen, write-once and growing columns of one table."""
    table, short = columns.table, columns.table.split("_", 1)[1]
    rules = [
        Rule(
            table,
            f"{short}_frozen",
            "UPDATE",
            changed(columns.frozen),
            "a frozen column never changes",
            columns.frozen,
        )
    ]
    written = [
        *((name, f"OLD.{name} IS NOT NULL") for name in columns.once),
        *((name, f"OLD.{name} <> ''") for name in columns.once_blank),
    ]
    if written:
        when = "\n  OR ".join(
            f"({was_set} AND OLD.{name} IS DISTINCT FROM NEW.{name})" for name, was_set in written
        )
        names = tuple(name for name, _ in written)
        says = "a column that is written once never changes again"
        rules.append(Rule(table, f"{short}_once", "UPDATE", when, says, names))
    if columns.growing:
        when = "\n  OR ".join(f"NEW.{name} < OLD.{name}" for name in columns.growing)
        says = "a counter never goes back"
        rules.append(Rule(table, f"{short}_grows", "UPDATE", when, says, columns.growing))
    return rules


def move_rules(table: str, *, first: Iterable[str]) -> list[Rule]:
    """The triggers for the state of one table: first state, legal moves."""
    short = table.split("_", 1)[1]
    moved = "OLD.state IS DISTINCT FROM NEW.state"
    return [
        Rule(
            table,
            f"{short}_first",
            "INSERT",
            f"NEW.state NOT IN ({listed(first)})",
            "a row cannot begin in this state",
        ),
        Rule(table, f"{short}_move", UPDATE_STATE, moved, "illegal move", function=f"{short}_move"),
    ]


UPDATE_STATE = "UPDATE OF state"
ENDED = "OLD.ended_at IS NOT NULL"
"""In a terminal state, as `run_ended_iff_terminal` and `action_ended_iff_terminal` say, and much
shorter than the list of states."""


def run_rules() -> list[Rule]:
    return [
        *move_rules("runs_run", first=["QUEUED"]),
        Rule(
            "runs_run",
            "run_fresh",
            "INSERT",
            "NEW.fence <> 0 OR NEW.lease_worker IS NOT NULL OR NEW.stop_reason IS NOT NULL",
            "a run begins without fence, lease and stop reason",
        ),
        *column_rules(RUN),
        _whole("runs_run"),
        Rule(
            "runs_run",
            "run_ended",
            "UPDATE",
            ENDED,
            "a terminal run keeps its end",
            RUN_FROZEN_AT_END,
            function="refuse_changed",
        ),
        Rule(
            "runs_run",
            "run_settled",
            "UPDATE OF ended_at",
            "OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL",
            "a run cannot end with an action that has not",
            function="run_settled",
            after=True,
        ),
        Rule(
            "runs_run",
            "run_descends",
            "INSERT",
            "NEW.parent_id IS NOT NULL",
            "a child run begins with its parent's action, under a parent that is not stopping",
            function="run_descends",
            after=True,
        ),
        Rule(
            "runs_run",
            "run_slice_kept",
            "UPDATE",
            f"OLD.parent_id IS NOT NULL AND (\n  {changed(RUN_SLICE)})",
            "a child run keeps its slice of the budget",
            RUN_SLICE,
        ),
    ]


def _whole(table: str) -> Rule:
    """What would be CHECKs of a hot table. Its name comes last, as CHECKs do after triggers."""
    name = f"{table.split('_', 1)[1]}_whole"
    return Rule(table, name, "INSERT OR UPDATE", "", "a row fits its own state", function=name)


def action_first_states() -> set[str]:
    """PROPOSED and what one accepted move makes of it: decision and verdict are one commit."""
    return {"PROPOSED"} | {str(new) for old, new in action_pairs() if old == "PROPOSED"}


def action_rules() -> list[Rule]:
    table = "runs_actionjournal"
    ended = tuple(c for c in ACTION.names if c not in (*ACTION.frozen, *ACTION_AFTER_END))
    started = "an action starts only under the current fence of a run that is not stopping"
    return [
        *move_rules(table, first=action_first_states()),
        *column_rules(ACTION),
        _whole(table),
        Rule(
            table,
            "actionjournal_ended",
            "UPDATE",
            ENDED,
            "a terminal action takes nothing but its observation",
            ended,
            function="refuse_changed",
        ),
        Rule(
            table,
            "actionjournal_joins",
            "INSERT",
            "NEW.ended_at IS NULL AND NEW.state <> 'RUNNING'",
            "a terminal run takes no new action",
            ("lives",),
            function="run_allows",
            after=True,
        ),
        Rule(
            table,
            "actionjournal_begins",
            "INSERT",
            "NEW.state = 'RUNNING'",
            started,
            ("starts",),
            function="run_allows",
            after=True,
        ),
        Rule(
            table,
            "actionjournal_starts",
            UPDATE_STATE,
            "OLD.state IS DISTINCT FROM NEW.state AND NEW.state = 'RUNNING'",
            started,
            ("starts",),
            function="run_allows",
            after=True,
        ),
    ]


def attempt_rules() -> list[Rule]:
    table = "runs_attempt"
    return [
        *column_rules(ATTEMPT),
        _whole(table),
        Rule(
            table,
            "attempt_outcome_once",
            "UPDATE",
            "OLD.outcome IS NOT NULL",
            "the outcome of an attempt is written once",
            (*ATTEMPT_OUTCOME, "lost_at"),
            function="refuse_changed",
        ),
        Rule(
            table,
            "attempt_outcome_whole",
            "UPDATE",
            "NEW.outcome IS NULL",
            "the outcome of an attempt is written whole",
            ATTEMPT_OUTCOME,
            function="refuse_changed",
        ),
        Rule(
            table,
            "attempt_starts",
            "INSERT",
            "NEW.kind IN ('MODEL', 'TOOL')",
            "a call starts only under the current fence of a run that is not stopping",
            ("starts",),
            function="run_allows",
            after=True,
        ),
        Rule(
            table,
            "attempt_asks",
            "INSERT",
            "NEW.kind NOT IN ('MODEL', 'TOOL')",
            "a call is made only under the current fence of a live run",
            ("fenced",),
            function="run_allows",
            after=True,
        ),
    ]


def turn_rules() -> list[Rule]:
    return [
        *column_rules(TURN),
        Rule(
            "runs_turn",
            "turn_decided",
            "UPDATE",
            "OLD.decided_at IS NOT NULL",
            "a decision is written once",
            TURN_DECISION,
            function="refuse_changed",
        ),
    ]


def _kept(app: str) -> list[Rule]:
    """Rows that are never deleted, and tables that only grow."""
    rules = [
        Rule(table, f"{table.split('_', 1)[1]}_kept", "DELETE", "", "a row is never deleted")
        for table in NO_DELETE[app]
    ]
    for table in APPEND_ONLY[app]:
        short = table.split("_", 1)[1]
        says = "the table is append-only"
        rules.append(Rule(table, f"{short}_append_only", "UPDATE OR DELETE", "", says))
        # Only a test database sets this, so that a test can empty its tables.
        when = "current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on'"
        rules.append(Rule(table, f"{short}_not_emptied", "TRUNCATE", when, says))
    return rules


def rules(*, app: str) -> list[Rule]:
    """Every trigger of `app` ("runs" or "approvals"), in the order of the SQL text."""
    if app == "approvals":
        moves = move_rules("approvals_approval", first=["PENDING"])
        return [*moves, *column_rules(APPROVAL), *column_rules(STANDING), *_kept(app)]
    return [
        *run_rules(),
        *action_rules(),
        *attempt_rules(),
        *turn_rules(),
        *column_rules(KEY_OWNER),
        *column_rules(CALLBACK),
        *column_rules(THRESHOLD),
        *_kept(app),
    ]


def functions(*, app: str) -> dict[str, str]:
    """The trigger functions of `app`: name -> SQL."""
    if app == "approvals":
        return {
            "approvals_refuse": db_functions.refuse(app=app),
            "approvals_approval_move": db_functions.move(
                table="approvals_approval", pairs=approval_pairs(), revised=False
            ),
        }
    return {
        "runs_refuse": db_functions.refuse(app=app),
        "runs_refuse_changed": db_functions.refuse_changed(app=app),
        "runs_run_move": db_functions.move(table="runs_run", pairs=run_pairs()),
        "runs_actionjournal_move": db_functions.move(
            table="runs_actionjournal", pairs=action_pairs()
        ),
        **{
            f"{table}_whole": db_functions.whole(table=table, checks=checks, counts=COUNTS[table])
            for table, checks in CHECKS.items()
        },
        "runs_run_settled": db_functions.run_settled(),
        "runs_run_allows": db_functions.run_allows(),
        "runs_run_descends": db_functions.run_descends(),
    }


def render(*, app: str) -> str:
    """The whole SQL text of `app`: functions, triggers, storage parameters."""
    head = f"-- Rules of {app}. Written by `python -m runs.db_rules`; not edited by hand.\n"
    storage = "".join(f"ALTER TABLE {table} SET (fillfactor = 80);\n" for table in FILLFACTOR[app])
    parts = [head, *functions(app=app).values(), *(rule.sql() for rule in rules(app=app)), storage]
    return "\n".join(part for part in parts if part)


def render_reverse(*, app: str) -> str:
    """The SQL that takes the rules of `app` away again."""
    return "\n".join(f"DROP FUNCTION {name} CASCADE;" for name in functions(app=app))


def main() -> None:
    """Freeze today's rules in the files of the newest migration."""
    root = Path(__file__).resolve().parent.parent
    for app, name in FROZEN_IN.items():
        (root / name).write_text(render(app=app), encoding="utf-8")


if __name__ == "__main__":
    main()
