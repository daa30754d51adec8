"""Every pair of states in PostgreSQL, by raw SQL: accepted exactly as `lifecycle.py` says."""

# ruff: noqa: S608  (the tests write SQL as an intruder would)

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agentcore.lifecycle import (
    ACTION_TERMINAL,
    RUN_RESUMES,
    RUN_TERMINAL,
    ActionState,
    ApprovalState,
    RunState,
    action_pairs,
    approval_pairs,
    run_pairs,
)
from tests.runs.rows import NEEDS_STOP_REASON, make_action, make_approval, make_run
from tests.runs.sql import refusal, update_refusal

pytestmark = pytest.mark.django_db


def _targets(pairs: Iterable[tuple[str, str]], source: str) -> set[str]:
    return {new for old, new in pairs if old == source}


@pytest.mark.requirement("R2", "R3")
@pytest.mark.parametrize("source", list(RunState))
def test_run(source: RunState) -> None:
    run = make_run(source)
    refusals = {}
    for target in set(RunState) - {source}:
        ended = "now()" if target in RUN_TERMINAL else "NULL"
        resume = "'CALLING_MODEL'" if target in RUN_RESUMES else "NULL"
        stop = "'BUDGET'" if target in NEEDS_STOP_REASON else "NULL"
        refusals[target] = update_refusal(
            "runs_run",
            run.pk,
            f"state = '{target}', revision = revision + 1, resume_to = {resume}, "
            f"ended_at = {ended}, stop_reason = COALESCE(stop_reason, {stop})",
        )
    assert {t for t, by in refusals.items() if by == ""} == _targets(run_pairs(), source)
    assert set(refusals.values()) <= {"", "run_move", "run_ended"}


@pytest.mark.requirement("R2", "R48")
@pytest.mark.parametrize("source", list(ActionState))
def test_action(source: ActionState) -> None:
    action = make_action(make_run(), source)
    refusals = {}
    for target in set(ActionState) - {source}:
        ended = "now()" if target in ACTION_TERMINAL else "NULL"
        refusals[target] = update_refusal(
            "runs_actionjournal",
            action.pk,
            f"state = '{target}', revision = revision + 1, ended_at = {ended}",
        )
    assert {t for t, by in refusals.items() if by == ""} == _targets(action_pairs(), source)
    assert set(refusals.values()) <= {"", "actionjournal_move", "actionjournal_ended"}


@pytest.mark.requirement("R2")
@pytest.mark.parametrize("source", list(ApprovalState))
def test_approval(source: ApprovalState) -> None:
    approval = make_approval(source)
    refusals = {
        target: update_refusal("approvals_approval", approval.pk, f"state = '{target}'")
        for target in set(ApprovalState) - {source}
    }
    assert {t for t, by in refusals.items() if by == ""} == _targets(approval_pairs(), source)
    assert set(refusals.values()) <= {"", "approval_move"}


def _insert_refusal(table: str, row_id: object, **changed: str) -> str:
    """Insert a copy of a row under a new id with some columns changed (SQL expressions)."""
    edits = ", ".join(f"'{name}', {value}" for name, value in changed.items())
    return refusal(
        f"INSERT INTO {table} SELECT copy.* FROM {table} AS old, LATERAL jsonb_populate_record("
        f"old, jsonb_build_object('id', gen_random_uuid(), {edits})) AS copy WHERE old.id = %s",
        [row_id],
    )


def test_a_run_begins_queued() -> None:
    run = make_run("QUEUED", fence=0)
    accepted = {
        state
        for state in RunState
        if not _insert_refusal(
            "runs_run",
            run.pk,
            state=f"'{state}'",
            ended_at="now()" if state in RUN_TERMINAL else "NULL",
            resume_to="'QUEUED'" if state in RUN_RESUMES else "NULL",
        )
    }
    assert accepted == {"QUEUED"}


def test_an_action_begins_proposed_or_judged() -> None:
    action = make_action(make_run(), "PROPOSED")
    accepted = {
        state
        for state in ActionState
        if not _insert_refusal(
            "runs_actionjournal",
            action.pk,
            state=f"'{state}'",
            ordinal="7",
            ended_at="now()" if state in ACTION_TERMINAL else "NULL",
        )
    }
    assert accepted == {"PROPOSED"} | _targets(action_pairs(), "PROPOSED")
    assert accepted == {"PROPOSED", "READY", "AWAITING_APPROVAL", "DENIED", "VOIDED", "RUNNING"}


def test_an_approval_begins_pending() -> None:
    approval = make_approval()
    accepted = {
        state
        for state in ApprovalState
        if not _insert_refusal(
            "approvals_approval",
            approval.pk,
            state=f"'{state}'",
            action_id="gen_random_uuid()",
        )
    }
    assert accepted == {"PENDING"}


@pytest.mark.parametrize(
    ("column", "value"),
    [("fence", "1"), ("stop_reason", "'CANCEL'"), ("lease_worker", "gen_random_uuid()")],
)
def test_a_run_begins_without(column: str, value: str) -> None:
    run = make_run("QUEUED", fence=0)
    assert _insert_refusal("runs_run", run.pk, **{column: value}) == "run_fresh"


@pytest.mark.parametrize("table", ["runs_run", "runs_actionjournal"])
def test_a_move_raises_the_revision(table: str) -> None:
    run = make_run("DISPATCHING_TOOLS")
    row = run if table == "runs_run" else make_action(run, "READY")
    move = "state = 'OBSERVING'" if table == "runs_run" else "state = 'AWAITING_APPROVAL'"
    short = table.removeprefix("runs_")
    assert update_refusal(table, row.pk, move) == f"{short}_revision"
    assert update_refusal(table, row.pk, f"{move}, revision = revision + 1") == ""


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("target", ["INCOMPLETE", "FAILED", "CANCELLED"])
def test_a_run_that_was_not_completed_says_why(target: str) -> None:
    run = make_run("DISPATCHING_TOOLS")
    end = f"state = '{target}', revision = revision + 1, ended_at = now()"
    assert update_refusal("runs_run", run.pk, end) == "run_stop_has_reason"
    assert update_refusal("runs_run", run.pk, f"{end}, stop_reason = 'BUDGET'") == ""
