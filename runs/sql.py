"""The few statements of the hot path, built once per model: no ORM between the values and SQL.

Only `transitions.py` and `journal.py` use it. Every statement's row count is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import connection, models
from psycopg.types.json import Jsonb


@cache
def _columns(model: type[models.Model]) -> dict[str, tuple[str, bool]]:
    """Attribute name -> (column, is JSON) of every stored field, database-made keys left out."""
    return {
        field.attname: (str(field.column), isinstance(field, models.JSONField))
        for field in model._meta.concrete_fields
        if not isinstance(field, models.AutoField)
    }


@cache
def _insert_head(model: type[models.Model]) -> str:
    names = ", ".join(f'"{column}"' for column, _ in _columns(model).values())
    return f'INSERT INTO "{table_of(model)}" ({names}) VALUES '


def table_of(model: type[models.Model]) -> str:
    return str(model._meta.db_table)


def _adapt(value: Any, is_json: bool) -> Any:
    return Jsonb(value) if is_json and value is not None else value


def insert(rows: Sequence[models.Model]) -> None:
    """Insert rows of one model with one statement."""
    if not rows:
        return
    model = type(rows[0])
    columns = _columns(model)
    group = "(" + ", ".join(["%s"] * len(columns)) + ")"
    values = [
        _adapt(getattr(row, name), is_json)
        for row in rows
        for name, (_, is_json) in columns.items()
    ]
    with connection.cursor() as cursor:
        cursor.execute(_insert_head(model) + ", ".join([group] * len(rows)), values)


def update(model: type[models.Model], *, where: dict[str, Any], sets: dict[str, Any]) -> int:
    """Update by equality (`None` means IS NULL); the number of rows changed."""
    columns = _columns(model)
    assignments = ", ".join(f'"{columns[name][0]}" = %s' for name in sets)
    conditions = " AND ".join(
        f'"{columns[name][0]}" IS NULL' if value is None else f'"{columns[name][0]}" = %s'
        for name, value in where.items()
    )
    values = [_adapt(value, columns[name][1]) for name, value in sets.items()]
    values += [value for value in where.values() if value is not None]
    statement = f'UPDATE "{table_of(model)}" SET {assignments} WHERE {conditions}'
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
