"""The few statements of the hot path, built once per model: no ORM between the values and SQL.

Only `transitions.py`, `keys.py` and `once.py` use it. What changes rows returns their number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, models
from django.db.models.base import ModelState
from psycopg.adapt import Transformer
from psycopg.types.json import Jsonb

Row = TypeVar("Row", bound=models.Model)
Text = tuple[str, list[Any]]
"""A statement and its values."""


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


@cache
def _blank(model: type[models.Model]) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """What a new row of a model holds where nothing is said: constants, and what is made anew."""
    constants: dict[str, Any] = {}
    made: dict[str, Callable[[], Any]] = {}
    for field in model._meta.concrete_fields:
        if field.has_default() and callable(field.default):
            made[field.attname] = field.default
        else:
            constants[field.attname] = field.get_default()
    return constants, made


def new(model: type[Row], /, **values: Any) -> Row:
    """A new row, values by the name of their attribute (`run_id`). Raises TypeError for an unknown
    one. Django's constructor took a twelfth of the time of a run for the same.
    """
    constants, made = _blank(model)
    row = model.__new__(model)
    held = row.__dict__
    held.update(constants)
    held.update({name: make() for name, make in made.items() if name not in values})
    held.update(values)
    if len(held) != len(constants) + len(made):
        unknown = sorted(values.keys() - constants.keys() - made.keys())
        raise TypeError(f"{model.__name__} has no {', '.join(unknown)}")
    held["_state"] = ModelState()
    return row


def insert(*groups: Sequence[models.Model]) -> None:
    """Insert rows: one statement for each group of one model, all in one round trip."""
    _write([_insert_text(rows) for rows in groups if rows])


def write(statement: str, values: list[Any]) -> None:
    """A statement whose result nobody needs."""
    _write([(statement, values)])


@contextmanager
def in_one_go() -> Iterator[None]:
    """Hold back what `insert` and `write` are given, and send it at the end in one round trip.

    To start a run writes three rows and the outbox, between which nothing is read. Errors come at
    the end; after an exception nothing is sent.
    """
    held: list[Text] = []
    token = _held.set(held)
    try:
        yield
    finally:
        _held.reset(token)
    _write(held)


_held: ContextVar[list[Text] | None] = ContextVar("held", default=None)


def _write(made: list[Text]) -> None:
    held = _held.get()
    if held is not None:
        held += made
    elif made:
        with connection.cursor() as cursor:
            cursor.execute(_bound(made))


def _bound(made: Sequence[Text]) -> str:
    """The statements with their values in them, as Django's cursors would send them.

    psycopg does the same, but keeps what it has read of a text only up to 50 values: a longer one
    it reads anew each time, which took 0.7 ms of the 3.9 ms of a start.
    """
    quote = Transformer.from_context(connection.connection).as_literal
    with connection.wrap_database_errors:  # as Django's cursors do: a NUL is a DataError of Django
        found = [
            text.encode() % tuple([_literal(value) or quote(value) for value in values])
            for text, values in made
        ]
    return b"; ".join(found).decode()


def _literal(value: Any) -> bytes | None:
    """The commonest values as SQL; None for all others, which psycopg quotes. There are 1,200
    values in a run of five turns, and this takes half the time."""
    if value is None:
        return b"NULL"
    kind = type(value)
    if kind is str and "'" not in value and "\\" not in value and "\0" not in value:
        return f"'{value}'".encode()
    if kind is int:
        return b"%d" % value if value >= 0 else None
    if kind is UUID:
        return f"'{value}'".encode()
    return None


def _insert_text(rows: Sequence[models.Model]) -> Text:
    model = type(rows[0])
    columns = _columns(model)
    group = "(" + ", ".join(["%s"] * len(columns)) + ")"
    values = [
        _adapt(row.__dict__[name], is_json)
        for row in rows
        for name, (_, is_json) in columns.items()
    ]
    return _insert_head(model) + ", ".join([group] * len(rows)), values


def columns_of(model: type[models.Model]) -> str:
    """The columns of a model, for a SELECT that `row_of` reads."""
    return ", ".join(f'"{column}"' for column, _ in _columns(model).values())


def row_of(model: type[Row], values: Sequence[Any]) -> Row:
    """The values of `columns_of` as a row."""
    columns = _columns(model)
    read = [
        json.loads(value) if is_json and value is not None else value
        for value, (_, is_json) in zip(values, columns.values(), strict=True)
    ]
    return model.from_db(None, list(columns), read)


def insert_new(row: models.Model) -> bool:
    """Insert a row unless a unique rule of its table has something against it."""
    text, values = _insert_text([row])
    with connection.cursor() as cursor:
        cursor.execute(f"{text} ON CONFLICT DO NOTHING", values)
        return bool(cursor.rowcount == 1)


def update(model: type[models.Model], *, where: dict[str, Any], sets: dict[str, Any]) -> int:
    """Update by equality (`None` means IS NULL); the number of rows changed."""
    statement, values = _update_text(model, where, sets)
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)


def _update_text(model: type[models.Model], where: dict[str, Any], sets: dict[str, Any]) -> Text:
    columns = _columns(model)
    assignments = ", ".join(f'"{columns[name][0]}" = %s' for name in sets)
    conditions = " AND ".join(
        f'"{columns[name][0]}" IS NULL' if value is None else f'"{columns[name][0]}" = %s'
        for name, value in where.items()
    )
    values = [_adapt(value, columns[name][1]) for name, value in sets.items()]
    values += [value for value in where.values() if value is not None]
    return f'UPDATE "{table_of(model)}" SET {assignments} WHERE {conditions}', values


class Together:
    """The writes of one transaction as one statement, each a part of its WITH.

    A guarded part must touch exactly one row. PostgreSQL carries them out in the order in which
    they were added (so the first one takes its row lock first), then the others; triggers after a
    row fire at the end, when all is written.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[Any] = []
        self._guarded: list[str] = []
        self._before: list[Text] = []

    def before(self, statement: str, values: list[Any]) -> None:
        """A statement of its own that goes first, in the same round trip: takes a lock."""
        self._before.append((statement, values))

    def check(self, query: str, values: list[Any]) -> None:
        """Guarded: a query that must find one row."""
        self._add((query, values), guarded=True, returning=False)

    def insert(self, rows: Sequence[models.Model]) -> None:
        """Rows of one model."""
        self._add(_insert_text(rows), guarded=False)

    def insert_new(self, row: models.Model) -> None:
        """Guarded: a row that no unique rule of its table has anything against."""
        text, values = _insert_text([row])
        self._add((f"{text} ON CONFLICT DO NOTHING", values), guarded=True)

    def update(
        self, model: type[models.Model], *, where: dict[str, Any], sets: dict[str, Any]
    ) -> None:
        """Guarded: one row, found by equality (`None` means IS NULL)."""
        self._add(_update_text(model, where, sets), guarded=True)

    def _add(self, made: Text, *, guarded: bool, returning: bool = True) -> None:
        name = f"w{len(self._parts)}"
        text, values = made
        if guarded:
            self._guarded.append(name)
            text += " RETURNING 1" if returning else ""
        self._parts.append(f"{name} AS ({text})")
        self._values += values

    def run(self) -> bool:
        """Write; False when a guard did not hold, and then the transaction must not be kept."""
        counts = " + ".join(f"(SELECT count(*) FROM {name})" for name in self._guarded)
        text = f"WITH {', '.join(self._parts)} SELECT {counts}"
        with connection.cursor() as cursor:
            cursor.execute(_bound([*self._before, (text, self._values)]))
            for _ in self._before:
                cursor.nextset()
            return bool(cursor.fetchone()[0] == len(self._guarded))
