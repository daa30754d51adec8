"""What must hold within one row of a run, an action or an attempt is refused by the name of its
rule, on INSERT and on UPDATE, whatever the other rules say."""

# ruff: noqa: S608  (the tests write SQL as an intruder would)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models, transaction

from runs.db_checks import CHECKS, COUNTS
from tests.runs.rows import make_action, make_attempt, make_run
from tests.runs.sql import column_types, refusal, update_refusal

pytestmark = pytest.mark.django_db

LEASED = "lease_worker = id, claim_token = id, call_deadline_at = now()"
BROKEN: dict[str, list[tuple[str, str]]] = {
    "runs_run": [
        ("run_state_known", "state = 'LOST'"),
        ("run_priority_known", "priority = 'now'"),
        ("run_resume_to_iff_waiting", "resume_to = 'CALLING_MODEL'"),
        ("run_resume_to_iff_waiting", "state = 'RETRY_WAIT'"),
        ("run_waiting_holds_no_lease", f"state = 'WAITING_CHILD', {LEASED}"),
        ("run_lease_is_whole", "claim_token = gen_random_uuid(), call_deadline_at = now()"),
        ("run_lease_is_whole", "lease_worker = gen_random_uuid(), call_deadline_at = now()"),
        ("run_lease_is_whole", "lease_worker = id, claim_token = id, call_deadline_at = NULL"),
        ("run_ended_iff_terminal", "ended_at = now()"),
        ("run_ended_iff_terminal", "state = 'COMPLETED'"),
        ("run_stop_has_reason", "state = 'CANCELLING', stop_reason = NULL"),
        ("run_child_is_whole", "parent_id = id, root_id = id"),
        ("run_child_is_whole", "parent_action = gen_random_uuid()"),
    ],
    "runs_actionjournal": [
        ("action_state_known", "state = 'LOST'"),
        ("action_effect_known", "effect = 'MAYBE'"),
        ("action_ended_iff_terminal", "ended_at = now()"),
        ("action_ended_iff_terminal", "state = 'SUCCEEDED'"),
        ("action_write_has_key", "state = 'RUNNING', idempotency_key = NULL"),
        ("action_write_has_key", "state = 'UNKNOWN', idempotency_key = NULL"),
        ("action_read_is_never_unknown", "effect = 'READ', state = 'NEEDS_HUMAN'"),
    ],
    "runs_attempt": [
        ("attempt_kind_known", "kind = 'CALL'"),
        ("attempt_outcome_has_time", "outcome = NULL"),
        ("attempt_outcome_has_time", "ended_at = NULL"),
    ],
}
FINE: dict[str, list[str]] = {
    "runs_run": [
        "state = 'RETRY_WAIT', resume_to = 'CALLING_MODEL'",
        LEASED,
        "call_deadline_at = now()",
        "state = 'COMPLETED', ended_at = now()",
        "state = 'CANCELLING', stop_reason = 'CANCEL'",
        "parent_id = id, root_id = id, parent_action = gen_random_uuid()",
        "max_failures = NULL, max_handoffs = 0",
    ],
    "runs_actionjournal": [
        "state = 'UNKNOWN'",
        "effect = 'READ', state = 'RUNNING', idempotency_key = NULL",
        "state = 'PROPOSED', idempotency_key = NULL, generation = NULL",
    ],
    "runs_attempt": ["outcome = NULL, ended_at = NULL", "kind = 'PROBE'"],
}


@contextmanager
def _alone(table: str) -> Iterator[None]:
    """No other trigger of `table`, so that no other rule is asked first."""
    name = f"{table.split('_', 1)[1]}_whole"
    mark = transaction.savepoint()
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {name}")
    yield
    transaction.savepoint_rollback(mark)


def _row(table: str) -> models.Model:
    if table == "runs_run":
        return make_run()
    action = make_action(make_run())
    return action if table == "runs_actionjournal" else make_attempt(action)


def _refused(table: str, assignments: str) -> str:
    row = _row(table)
    with _alone(table):
        return update_refusal(table, row.pk, assignments)


def _insert_refused(table: str, assignments: str) -> str:
    """The same, as a second row with other keys."""
    row = _row(table)
    unique = {"runs_actionjournal": "ordinal = 7", "runs_attempt": "n = 7"}.get(table, "")
    with _alone(table), connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE copied ON COMMIT DROP AS SELECT * FROM {table}")
        sets = ", ".join(part for part in ("id = gen_random_uuid()", unique, assignments) if part)
        cursor.execute(f"DELETE FROM copied WHERE id <> '{row.pk}'")
        cursor.execute(f"UPDATE copied SET {sets}")
        return refusal(f"INSERT INTO {table} SELECT * FROM copied")


@pytest.mark.requirement("R2", "R3")
@pytest.mark.parametrize(
    ("table", "name", "assignments"),
    [(table, *broken) for table, some in BROKEN.items() for broken in some],
)
def test_a_row_that_contradicts_itself_is_refused(table: str, name: str, assignments: str) -> None:
    assert _refused(table, assignments) == name
    assert _insert_refused(table, assignments) == name


@pytest.mark.parametrize(
    ("table", "assignments"), [(table, fine) for table, some in FINE.items() for fine in some]
)
def test_a_row_that_does_not_is_accepted(table: str, assignments: str) -> None:
    assert _refused(table, assignments) == ""
    assert _insert_refused(table, assignments) == ""


@pytest.mark.parametrize(
    ("table", "column"), [(table, name) for table, names in COUNTS.items() for name in names]
)
def test_a_number_below_zero_is_refused(table: str, column: str) -> None:
    assert _refused(table, f"{column} = -1") == f"{table}_{column}_check"
    assert _refused(table, f"{column} = 0") == ""


def test_every_rule_is_tried() -> None:
    assert {t: {name for name, _ in some} for t, some in BROKEN.items()} == {
        table: set(checks) for table, checks in CHECKS.items()
    }


@pytest.mark.parametrize("table", CHECKS)
def test_every_positive_number_is_counted(table: str) -> None:
    """Django would make a CHECK for each; a migration that adds one has to take it away again."""
    model: Any = apps.get_model("runs", table.split("_", 1)[1])
    positive = (models.PositiveIntegerField, models.PositiveSmallIntegerField)
    names = {f.column for f in model._meta.concrete_fields if isinstance(f, positive)}
    assert names == set(COUNTS[table]) <= set(column_types(table))


@pytest.mark.parametrize("table", CHECKS)
def test_no_check_is_read_with_each_statement(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
            [table],
        )
        assert cursor.fetchall() == []
