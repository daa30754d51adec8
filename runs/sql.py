"""The few statements of the hot path, built once per model: no ORM between the values and SQL.

Only `transitions.py`, `keys.py` and `once.py` write with it; what changes rows returns their
number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections, models
from django.db.models.base import ModelState
from psycopg import errors
from psycopg.types.json import Jsonb

from runs import prepared
from runs.literals import bound

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


def row(statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The one row of a query whose text is always the same: each connection prepares it."""
    with connection.cursor() as cursor, _prepared([(statement, [*values])]) as (first, calls):
        cursor.execute(bound([*first, *calls]))
        for _ in first:
            cursor.nextset()
        found: tuple[Any, ...] = cursor.fetchone()
        return found


def rows(made: Sequence[Text]) -> list[list[tuple[Any, ...]]]:
    """The rows of each of several statements whose texts are always the same, in one message: a
    transaction of its own, of which nothing is kept after an error. None may be open."""
    with connection.cursor() as cursor, _prepared(made) as (first, calls):
        try:
            cursor.execute(bound([("BEGIN", []), *first, *calls, ("COMMIT", [])]))
        except BaseException:
            _roll_back()
            raise
        for _ in range(1 + len(first)):
            cursor.nextset()
        return [(cursor.fetchall(), cursor.nextset())[0] for _ in calls]


@contextmanager
def in_one_go(*, commit: bool = False) -> Iterator[None]:
    """Hold back what `insert` and `write` are given, and send it at the end in one round trip.

    To start a run writes three rows and the outbox, between which nothing is read. Errors come at
    the end; after an exception nothing is sent. `commit`: these are the last writes of the
    transaction, and its COMMIT goes along; Django then finds nothing left to commit.
    """
    with held_back() as held:
        yield
    if not held:
        return
    last = _commit() if commit else []
    rows = [item for item in held if " VALUES " in item[0]]
    rest = [item for item in held if " VALUES " not in item[0]]
    with connection.cursor() as cursor, _prepared(rows) as (first, calls):
        cursor.execute(bound([*first, *calls, *rest, *last]))


@contextmanager
def held_back() -> Iterator[list[Text]]:
    """What `insert` and `write` are given meanwhile is not sent but put into the yielded list."""
    held: list[Text] = []
    token = _held.set(held)
    try:
        yield held
    finally:
        _held.reset(token)


@contextmanager
def _prepared(made: Sequence[Text]) -> Iterator[tuple[list[Text], list[Text]]]:
    """What has to go first, and `made` as calls of prepared statements."""
    calls = [prepared.call(connection.connection, text) for text, _ in made]
    pairs = zip(calls, made, strict=True)
    try:
        yield (
            [(text, []) for call in calls for text in call.first],
            [(call.text(len(values)), values) for call, (_, values) in pairs],
        )
    except Exception as error:
        for call in calls:
            call.failed(error)
        raise


def _commit(*, alone: bool = False) -> list[Text]:
    """COMMIT, where the open transaction is all that it would end."""
    outermost = alone or (connection.in_atomic_block and not connection.savepoint_ids)
    return [("COMMIT", [])] if outermost else []


def _roll_back() -> None:
    """Leave a transaction that Django does not know of."""
    try:
        connection.connection.rollback()
    except Exception:  # noqa: BLE001  (whatever it is, nobody else may get this connection)
        connection.close()


_held: ContextVar[list[Text] | None] = ContextVar("held", default=None)


def _write(made: list[Text]) -> None:
    held = _held.get()
    if held is not None:
        held += made
    elif made:
        with connection.cursor() as cursor:
            cursor.execute(bound(made))


@cache
def _getter(model: type[models.Model]) -> tuple[Callable[[Any], tuple[Any, ...]], list[int]]:
    """What takes the values out of a row's `__dict__`, and the places of those that are JSON."""
    columns = _columns(model)
    return itemgetter(*columns), [n for n, (_, json) in enumerate(columns.values()) if json]


def _insert_text(rows: Sequence[models.Model]) -> Text:
    """NULL and '' stand in the text: a third of all values, which then cost nothing."""
    model = type(rows[0])
    take, json_at = _getter(model)
    groups: list[str] = []
    values: list[Any] = []
    for row in rows:
        found = list(take(row.__dict__))
        for n in json_at:
            found[n] = _adapt(found[n], True)
        places = ["NULL" if v is None else "''" if v == "" else "%s" for v in found]
        groups.append(f"({', '.join(places)})")
        values += [v for v in found if v is not None and v != ""]
    return _insert_head(model) + ", ".join(groups), values


@cache
def columns_of(model: type[models.Model], *, without: tuple[str, ...] = ()) -> str:
    """The columns of a model, for a SELECT that `row_of` reads."""
    named = _columns(model).items()
    return ", ".join(f'"{column}"' for name, (column, _) in named if name not in without)


def row_of(model: type[Row], values: Sequence[Any], *, without: tuple[str, ...] = ()) -> Row:
    """The values of `columns_of` as a row; what is left out is read when it is asked for."""
    columns = _columns(model)
    names = [name for name in columns if name not in without] if without else list(columns)
    read = [
        json.loads(value) if columns[name][1] and value is not None else value
        for name, value in zip(names, values, strict=True)
    ]
    row = model.__new__(model)  # as in `new`: the constructor takes most of the time of a claim
    row.__dict__.update(zip(names, read, strict=True))
    state = row.__dict__["_state"] = ModelState()
    state.adding, state.db = False, connection.alias
    return row


def select(
    model: type[Row], rest: str, values: list[Any], *, without: tuple[str, ...] = ()
) -> list[Row]:
    """Rows of a model, `rest` being what stands after its table. The ORM takes three times as long
    for the few rows of a claim, most of it for the text of the query."""
    with connection.cursor() as cursor:
        columns = columns_of(model, without=without)
        cursor.execute(f'SELECT {columns} FROM "{table_of(model)}" {rest}', values)
        return [row_of(model, found, without=without) for found in cursor.fetchall()]


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
    asked = tuple([(name, value is None) for name, value in where.items()])
    text, json_names = _update_made(model, asked, tuple(sets))
    values = [
        _adapt(value, name in json_names) if json_names else value for name, value in sets.items()
    ]
    values += [value for value in where.values() if value is not None]
    return text, values


@cache
def _update_made(
    model: type[models.Model], where: tuple[tuple[str, bool], ...], sets: tuple[str, ...]
) -> tuple[str, frozenset[str]]:
    """The text, and which of `sets` are JSON. `where`: (name, whether it has to be NULL)."""
    columns = _columns(model)
    assignments = ", ".join(f'"{columns[name][0]}" = %s' for name in sets)
    conditions = " AND ".join(
        f'"{columns[name][0]}" {"IS NULL" if is_null else "= %s"}' for name, is_null in where
    )
    text = f'UPDATE "{table_of(model)}" SET {assignments} WHERE {conditions}'
    return text, frozenset(name for name in sets if columns[name][1])


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
        """Write, in the open transaction; False when a guard did not hold, and then it must not be
        kept."""
        call = prepared.call(connection.connection, self._text(strict=False))
        before = [*[(first, []) for first in call.first], *self._before]
        with connection.cursor() as cursor:
            self._send(cursor, before, call, [])
            return bool(cursor.fetchone()[0] == len(self._guarded))

    def run_to_the_end(self, *, last: Sequence[Text]) -> bool:
        """Write, then `last`, and COMMIT, all in one message; False when a guard did not hold.

        In an open transaction it ends it (not in one with savepoints, which is not ours to end);
        else it is one of its own, and nothing of it is kept after False or an error. Django's way
        around a transaction takes a twelfth of the Python of a run, waiting for COMMIT more.
        """
        db = connections[DEFAULT_DB_ALIAS]
        alone = not db.in_atomic_block
        with db.cursor() as cursor:
            call = prepared.call(db.connection, self._text(strict=True))
            begin: list[Text] = [("BEGIN", [])] if alone else []
            before = [*begin, *[(first, []) for first in call.first], *self._before]
            try:
                self._send(cursor, before, call, [*last, *_commit(alone=alone)])
            except BaseException as error:
                if alone:
                    _roll_back()
                if _is_unheld(error):
                    return False
                raise
            return True

    def _send(
        self, cursor: Any, before: Sequence[Text], call: prepared.Call, after: Sequence[Text]
    ) -> None:
        this = (call.text(len(self._values)), self._values)
        try:
            cursor.execute(bound([*before, this, *after]))
        except BaseException as error:
            if not _is_unheld(error):
                call.failed(error)
            raise
        for _ in before:
            cursor.nextset()

    def _text(self, *, strict: bool) -> str:
        """`strict`: a guard that does not hold is an error, so that what follows is not done."""
        counts = " + ".join(f"(SELECT count(*) FROM {name})" for name in self._guarded)
        parts = f"WITH {', '.join(self._parts)} SELECT "
        if not strict:
            return f"{parts}{counts}"
        wanted = len(self._guarded)
        held = f"CASE WHEN n = {wanted} THEN n ELSE ('{UNHELD}: ' || n || ' of {wanted}')::int END"
        return f"{parts}{held} FROM (SELECT {counts} AS n) AS held"


UNHELD = "agentcore: a guard of this statement does not hold"
"""Stands in the server's log as well, as the input of a cast that cannot succeed: an error that
needs no function in the database. The statement stands there, too, with its values, unless
`log_min_error_statement` says otherwise (`doctor` looks)."""


def _is_unheld(error: BaseException) -> bool:
    return isinstance(error.__cause__, errors.InvalidTextRepresentation) and UNHELD in str(error)
