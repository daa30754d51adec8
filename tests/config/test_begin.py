"""BEGIN travels with the first statement of a transaction, and nothing else is different."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, IntegrityError, ProgrammingError, connection, transaction
from psycopg import IsolationLevel
from psycopg.pq import Trace, TransactionStatus

from runs.models import AgentVersion
from tests.runs.rows import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def _sent() -> Iterator[list[str]]:
    """The queries that libpq sends on this thread's connection, whole, in their order."""
    connection.ensure_connection()
    raw = connection.connection.pgconn
    found: list[str] = []
    with tempfile.NamedTemporaryFile("r") as file:
        raw.trace(os.open(file.name, os.O_WRONLY | os.O_APPEND))
        raw.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield found
        finally:
            raw.untrace()
        for line in file:
            side, _, kind, *rest = line.rstrip("\n").split("\t")
            if side == "F" and kind == "Query":
                found.append(rest[0].strip().strip('"'))


def _status() -> TransactionStatus:
    status: TransactionStatus = connection.connection.pgconn.transaction_status
    return status


def _one(sql: str, *values: object) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return cursor.fetchone()[0]


def test_a_transaction_is_as_many_messages_as_it_has_statements_and_one() -> None:
    with _sent() as sent:
        with transaction.atomic():
            assert _one("SELECT 1") == 1
            assert _one("SELECT %s::text", "a'b%") == "a'b%"
            assert _status() == TransactionStatus.INTRANS
        assert _one("SELECT 2") == 2
    assert sent == ["BEGIN; SELECT 1", "SELECT 'a''b%'::text", "COMMIT", "SELECT 2"]


def test_values_rows_and_counts_are_those_of_the_statement() -> None:
    make_run()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT %s::text, n FROM generate_series(1, 3) n", ["x"])
        assert cursor.rowcount == 3
        assert [column.name for column in cursor.description] == ["text", "n"]
        assert cursor.fetchall() == [("x", 1), ("x", 2), ("x", 3)]
        assert cursor.nextset() is None
    with transaction.atomic():
        assert AgentVersion.objects.filter(name="nobody").update(version="2") == 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1; SELECT 2")
        assert (cursor.fetchone(), cursor.nextset(), cursor.fetchone()) == ((1,), True, (2,))


def test_a_first_statement_that_fails_fails_the_transaction() -> None:
    version = make_run().agent_version
    with transaction.atomic():
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO runs_agentversion SELECT * FROM runs_agentversion WHERE id = %s",
                [version.pk],
            )
        assert _status() == TransactionStatus.INERROR
        with pytest.raises(DatabaseError, match="aborted"):
            _one("SELECT 1")
        transaction.set_rollback(True)
    assert _status() == TransactionStatus.IDLE
    assert _one("SELECT 1") == 1


def test_after_a_first_statement_that_cannot_be_read_the_next_one_is_in_a_transaction() -> None:
    """PostgreSQL has read neither it nor its BEGIN."""
    make_run()
    with transaction.atomic():
        with pytest.raises(ProgrammingError):
            _one("SELEKT 1")
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_run SET reason = 'x', revision = revision + 1")
        assert _status() == TransactionStatus.INTRANS
        transaction.set_rollback(True)
    assert _one("SELECT count(*) FROM runs_run WHERE reason = 'x'") == 0


def test_a_savepoint_can_be_first_and_what_runs_after_the_commit_does() -> None:
    done: list[str] = []
    with transaction.atomic():
        with transaction.atomic():
            transaction.on_commit(lambda: done.append("kept"))
            assert _one("SELECT 1") == 1
        with transaction.atomic():
            transaction.on_commit(lambda: done.append("lost"))
            transaction.set_rollback(True)
        assert done == []
    assert done == ["kept"]


def test_what_does_not_go_through_execute_is_in_the_transaction_as_well() -> None:
    make_run()
    with transaction.atomic():
        assert len(list(AgentVersion.objects.iterator(chunk_size=1))) == 1
        assert _status() == TransactionStatus.INTRANS
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany("SELECT %s", [["a"], ["b"]])
        assert _status() == TransactionStatus.INTRANS
    with transaction.atomic(), connection.cursor() as cursor:
        with cursor.copy("COPY (SELECT 1) TO STDOUT") as copy:
            assert [bytes(part) for part in copy] == [b"1\n"]
        assert _status() == TransactionStatus.INTRANS


def test_a_transaction_with_an_isolation_of_its_own_gets_it() -> None:
    connection.ensure_connection()
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE
    try:
        with transaction.atomic():
            assert _one("SHOW transaction_isolation") == "serializable"
    finally:
        connection.connection.isolation_level = None
    with transaction.atomic():
        assert _one("SHOW transaction_isolation") == "read committed"
