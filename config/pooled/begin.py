"""BEGIN in the round trip of the first statement of a transaction.

psycopg sends it alone and waits for the answer: 12 of the 41 round trips of a five-turn run.
PostgreSQL takes both in one message; when the statement fails, so does the transaction, as if BEGIN
had come before it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus


class Connection(psycopg.Connection[Any]):
    """Leaves BEGIN to the cursor that says so; for all others psycopg sends it, as ever."""

    begun_by_cursor = False

    def set_autocommit(self, value: bool) -> None:
        """As psycopg's, without its lock and its waiting: Django calls it twice a transaction."""
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            self._autocommit = bool(value)
        if self.autocommit != value:
            super().set_autocommit(value)

    def _start_query(self) -> PQGen[None]:
        if not self.begun_by_cursor:
            yield from super()._start_query()


class Cursor(base.Cursor, psycopg.ClientCursor[Any]):
    """Django's cursor, which puts BEGIN before a statement that opens a transaction.

    Server-side cursors, COPY and `executemany` go psycopg's way.
    """

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """As psycopg's. Raises its errors."""
        conn = self.connection
        if options or not (isinstance(conn, Connection) and self._opens(conn, query)):
            return super().execute(query, params, **options)
        text = query if params is None else self.mogrify(query, params)
        conn.begun_by_cursor = True
        try:
            super().execute(f"BEGIN; {text}")
        finally:
            conn.begun_by_cursor = False
        self.nextset()
        return self

    @staticmethod
    def _opens(conn: Connection, query: Any) -> bool:
        """Whether psycopg would send a plain BEGIN now. False for a transaction with an isolation
        level of its own, since that stands in its BEGIN."""
        return (
            isinstance(query, str)
            and not conn.autocommit
            and conn.pgconn.transaction_status == TransactionStatus.IDLE
            and conn.isolation_level is None
            and conn.read_only is None
            and conn.deferrable is None
        )
