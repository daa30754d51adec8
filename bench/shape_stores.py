"""How the Celery shapes store a stage: the row of the run moves on and an event is appended.

`psycopg`: three statements in a transaction. `one statement`: the same in one. `ORM`: the run
locked, changed and saved by Django. `ORM conditional`: moved by an update that asks for its
revision.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.floor_psycopg import move, move_at_once
from bench.stub.texts import written


@dataclass(frozen=True)
class Write:
    """One stage of a run that is at `revision`."""

    run: str
    revision: int
    turn: int
    kind: str
    payload: dict[str, Any]


_local = threading.local()


def _connection() -> psycopg.Connection:
    if not hasattr(_local, "connection"):
        url = os.environ["FLOOR_DATABASE_URL"]
        _local.connection = psycopg.connect(url, autocommit=True)
    made: psycopg.Connection = _local.connection
    return made


def _transaction(write: Write) -> None:
    move(_connection(), write.run, write.kind, write.turn, written(write.payload))


def _at_once(write: Write) -> None:
    move_at_once(
        _connection(),
        run=write.run,
        revision=write.revision,
        kind=write.kind,
        turn=write.turn,
        payload=written(write.payload),
    )


def _orm(write: Write) -> None:
    from django.db import transaction

    from bench.shape_rows import RunRow

    with transaction.atomic():
        row = RunRow.objects.select_for_update().get(pk=write.run)
        assert row.position == write.revision
        _append(write)
        row.stage, row.position, row.turn = write.kind, write.revision + 1, write.turn
        row.save(update_fields=["stage", "position", "turn", "updated_at"])


def _orm_conditional(write: Write) -> None:
    from django.db import transaction
    from django.utils import timezone

    from bench.shape_rows import RunRow

    with transaction.atomic():
        moved = RunRow.objects.filter(pk=write.run, position=write.revision).update(
            stage=write.kind,
            position=write.revision + 1,
            turn=write.turn,
            updated_at=timezone.now(),
        )
        assert moved == 1
        _append(write)


def _append(write: Write) -> None:
    from bench.shape_rows import EventRow

    EventRow.objects.create(
        run_id=write.run, position=write.revision + 1, kind=write.kind, payload=write.payload
    )


STORES: dict[str, Callable[[Write], None]] = {
    "psycopg": _transaction,
    "one statement": _at_once,
    "ORM": _orm,
    "ORM conditional": _orm_conditional,
}
"""Any other name stores nothing."""
