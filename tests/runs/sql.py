"""Raw SQL as an intruder would write it, past every line of our Python."""

# ruff: noqa: S608  (the tests write SQL as an intruder would)

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, connection, transaction

OTHER_VALUE = {
    "text": "{0} || 'x'",
    "character varying": "left({0} || 'x', 1) || 'y'",
    "uuid": "gen_random_uuid()",
    "bigint": "{0} + 1",
    "integer": "{0} + 1",
    "smallint": "{0} + 1",
    "jsonb": """'{{"changed": true}}'""",
    "timestamp with time zone": "{0} + interval '1 day'",
    "boolean": "NOT {0}",
}
"""SQL for a value that differs from the column's own, by type."""


def column_types(table: str) -> dict[str, str]:
    """The columns of `table` in the live catalog with their types."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s",
            [table],
        )
        return dict(cursor.fetchall())


def other_value(table: str, column: str) -> str:
    """An SQL expression that differs from what `column` holds."""
    return OTHER_VALUE[column_types(table)[column]].format(column)


def refusal(sql: str, params: list[Any] | None = None) -> str:
    """Run `sql` in a savepoint that is taken back.

    Returns the name of the trigger or constraint that refused it with SQLSTATE 23514, or "" when
    it was accepted. Any other database error is raised.
    """
    mark = transaction.savepoint()
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
    except DatabaseError as error:
        diag = getattr(error.__cause__, "diag", None)
        if diag is None or diag.sqlstate != "23514":
            raise
        return str(diag.constraint_name)
    finally:
        transaction.savepoint_rollback(mark)
    return ""


def update_refusal(table: str, row_id: object, assignments: str) -> str:
    """`refusal` of an UPDATE of one row."""
    return refusal(f"UPDATE {table} SET {assignments} WHERE id = %s", [row_id])
