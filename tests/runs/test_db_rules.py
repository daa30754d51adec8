"""Raw SQL that tries each illegal change is refused, whatever Python thinks of it."""

# ruff: noqa: S608  (the tests write SQL as an intruder would)

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection

from runs.db_columns import (
    ACTION,
    ACTION_AFTER_END,
    ATTEMPT_OUTCOME,
    GUARDED,
    RUN_FROZEN_AT_END,
    TURN_DECISION,
)
from runs.db_rules import APPEND_ONLY, NO_DELETE
from tests.runs.rows import (
    make_action,
    make_attempt,
    make_event,
    make_full_row,
    make_run,
    make_turn,
)
from tests.runs.sql import other_value, refusal, update_refusal

pytestmark = pytest.mark.django_db


def _each(kind: str) -> list[tuple[str, str]]:
    return [(columns.table, name) for columns in GUARDED for name in getattr(columns, kind)]


def _changed(table: str, row_id: object, column: str) -> str:
    return update_refusal(table, row_id, f"{column} = {other_value(table, column)}")


def _short(table: str) -> str:
    return table.split("_", 1)[1]


@pytest.mark.parametrize(("table", "column"), _each("frozen"))
def test_a_frozen_column_never_changes(table: str, column: str) -> None:
    assert _changed(table, make_full_row(table), column) == f"{_short(table)}_frozen"


@pytest.mark.parametrize(("table", "column"), _each("once") + _each("once_blank"))
def test_what_is_written_once_neither_changes_nor_goes_away(table: str, column: str) -> None:
    row_id = make_full_row(table)
    # An attempt or a turn that is complete is guarded as a whole, by a rule that fires first.
    names = {f"{_short(table)}_once", "turn_decided", "attempt_outcome_once"}
    assert _changed(table, row_id, column) in names
    blank = "''" if (table, column) in _each("once_blank") else "NULL"
    assert update_refusal(table, row_id, f"{column} = {blank}") in names


@pytest.mark.parametrize(
    ("make", "table", "assignment"),
    [
        (make_run, "runs_run", "stop_reason = 'CANCEL'"),
        (
            lambda: make_action(make_run(), idempotency_key=None, generation=None),
            "runs_actionjournal",
            "idempotency_key = 'k', generation = 0",
        ),
        (
            lambda: make_action(make_run(), first_sent_at=None),
            "runs_actionjournal",
            "first_sent_at = now()",
        ),
        (
            lambda: make_action(make_run(), "SUCCEEDED", observation=None),
            "runs_actionjournal",
            "observation = 'seen', revision = revision + 1",
        ),
        (
            lambda: make_attempt(make_action(make_run()), outcome=None, ended_at=None, result=None),
            "runs_attempt",
            "outcome = 'AMBIGUOUS', ended_at = now(), error_class = 'read_timeout'",
        ),
        (
            lambda: make_attempt(make_action(make_run()), outcome=None, ended_at=None, result=None),
            "runs_attempt",
            "lost_at = now()",
        ),
        (
            lambda: make_turn(
                make_run(), decision="", output="", response_id="", usage=None, decided_at=None
            ),
            "runs_turn",
            "decision = 'FINAL', output = '[]', response_id = 'r', decided_at = now()",
        ),
        (lambda: make_turn(make_run()), "runs_turn", "problem = 'the answer was not accepted'"),
        (lambda: make_run("COMPLETED"), "runs_run", "event_seq = 6, event_head = 'h'"),
        (lambda: make_run("COMPLETED"), "runs_run", "business_outcome = 'refund_settled'"),
    ],
)
def test_the_first_writing_is_accepted(make: Any, table: str, assignment: str) -> None:
    assert update_refusal(table, make().pk, assignment) == ""


@pytest.mark.parametrize(("table", "column"), _each("growing"))
def test_a_counter_never_goes_back(table: str, column: str) -> None:
    row_id = make_full_row(table)
    assert update_refusal(table, row_id, f"{column} = {column} - 1") == f"{_short(table)}_grows"
    assert update_refusal(table, row_id, f"{column} = {column} + 1") == ""


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("column", [c for c in RUN_FROZEN_AT_END if c != "state"])
def test_a_terminal_run_keeps_its_end(column: str) -> None:
    run = make_run("CANCELLED")
    assert _changed("runs_run", run.pk, column) == "run_ended"


@pytest.mark.requirement("R48")
@pytest.mark.parametrize(
    "column", [c for c in ACTION.names if c not in (*ACTION.frozen, *ACTION_AFTER_END, "state")]
)
def test_a_terminal_action_takes_nothing_but_its_observation(column: str) -> None:
    run = make_run()
    action = make_action(
        run,
        "VOIDED",
        ordinal=1,
        same_as=make_action(run),
        precheck={"at": "then"},
        next_probe_at=run.created_at,
    )
    # Write-once columns are null here: on a live action the first writing would be accepted.
    blank = "idempotency_key = NULL, generation = NULL, first_sent_at = NULL"
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(f"UPDATE runs_actionjournal SET {blank} WHERE id = %s", [action.pk])
        cursor.execute("SET LOCAL session_replication_role = origin")
    values = {
        "idempotency_key": "'k'",
        "generation": "1",
        "first_sent_at": "now()",
        "approval_id": "gen_random_uuid()",
        "ended_at": "now()",
    }
    value = values.get(column) or other_value("runs_actionjournal", column)
    by = update_refusal("runs_actionjournal", action.pk, f"{column} = {value}")
    assert by == "actionjournal_ended"


@pytest.mark.parametrize("column", ATTEMPT_OUTCOME)
def test_the_outcome_of_an_attempt_is_written_once_and_whole(column: str) -> None:
    done = make_attempt(make_action(make_run()), usage={})
    assert _changed("runs_attempt", done.pk, column) == "attempt_outcome_once"
    lost = "lost_at = now()"
    assert update_refusal("runs_attempt", done.pk, lost) == "attempt_outcome_once"
    values = {"late": "true", "result": "'{}'", "usage": "'{}'", "ended_at": "now()"}
    if column != "outcome":
        part = f"{column} = {values.get(column, repr('x'))}"
        open_one = make_attempt(make_action(make_run()), outcome=None, ended_at=None, result=None)
        assert update_refusal("runs_attempt", open_one.pk, part) == "attempt_outcome_whole"


@pytest.mark.parametrize("column", TURN_DECISION)
def test_a_decision_is_written_once(column: str) -> None:
    # Blank columns of a decided turn stay blank: the decision is one thing.
    blank = {"response_id": "", "output": "", "decision": "", "text": "", "usage": None}
    turn = make_turn(make_run(), **{k: v for k, v in blank.items() if k == column})
    value = {"usage": "'{}'"}.get(column) or other_value("runs_turn", column)
    by = update_refusal("runs_turn", turn.pk, f"{column} = {value}")
    assert by in {"turn_decided", "turn_once"}


@pytest.mark.parametrize("table", [t for tables in NO_DELETE.values() for t in tables])
def test_a_row_is_never_deleted(table: str) -> None:
    row_id = make_full_row(table)
    assert refusal(f"DELETE FROM {table} WHERE id = %s", [row_id]) == f"{_short(table)}_kept"


@pytest.mark.parametrize("table", [t for tables in APPEND_ONLY.values() for t in tables])
def test_an_append_only_table_refuses_update_delete_and_truncate(table: str) -> None:
    row_id = make_full_row(table)
    by = f"{_short(table)}_append_only"
    assert update_refusal(table, row_id, "created_at = now()") == by
    assert refusal(f"DELETE FROM {table} WHERE id = %s", [row_id]) == by
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL agentcore.allow_truncate = 'off'")
    assert refusal(f"TRUNCATE {table} CASCADE") == f"{_short(table)}_not_emptied"


def test_a_table_that_others_hang_on_cannot_be_emptied_either() -> None:
    make_event(make_run())
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL agentcore.allow_truncate = 'off'")
    assert refusal("TRUNCATE runs_run CASCADE").endswith("_not_emptied")


def test_a_refusal_names_table_row_and_columns() -> None:
    run = make_run()
    sql = "UPDATE runs_run SET tenant = 'b', principal = 'c' WHERE id = %s"
    with (
        pytest.raises(IntegrityError, match="tenant, principal") as caught,
        connection.cursor() as cursor,
    ):
        cursor.execute(sql, [run.pk])
    assert f"runs_run {run.pk} UPDATE refused: a frozen column never changes" in str(caught.value)


def test_every_column_of_a_guarded_table_has_exactly_one_rule() -> None:
    with connection.cursor() as cursor:
        for columns in GUARDED:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s",
                [columns.table],
            )
            live = sorted(row[0] for row in cursor.fetchall())
            assert sorted(columns.names) == live, f"give each column a rule in {columns.table}"
