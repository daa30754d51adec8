"""Django looks for `base.DatabaseWrapper` in the package that ENGINE names.

psycopg's pool tests a connection before it gives it out, but waits 1, 2, 4 s between those it finds
broken: after a restart of the server eight of them outlast its time-out, and the process answers
nothing for longer than the server was away. Here each broken one is put back, which makes the pool
replace it, and the next is taken at once.
"""

from __future__ import annotations

import select
from typing import Any

from django.db import OperationalError
from django.db.backends.postgresql import base

from config.pooled.begin import Connection, Cursor

SPARE = 2
"""Connections that may break while they are looked at, beyond those that lie in the pool."""


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL through a pool. Set CONN_HEALTH_CHECKS to False: the test is made here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        pool = self.settings_dict["OPTIONS"].get("pool")
        if isinstance(pool, dict):
            pool.setdefault("connection_class", Connection)

    def get_connection_params(self) -> dict[str, Any]:
        """Django's, with our cursor."""
        return {**super().get_connection_params(), "cursor_factory": Cursor}

    def _set_autocommit(self, autocommit: bool) -> None:
        if self.connection.autocommit != autocommit:  # a connection of the pool has it on
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection whose server has not hung up. Raises OperationalError."""
        if self.pool is None:  # Django's own connection to the database `postgres`
            return super().get_new_connection(conn_params)
        for _ in range(self.pool.max_size + SPARE):
            connection = super().get_new_connection(conn_params)
            if not _hung_up(connection):
                return connection
            self.pool.putconn(connection)
        raise OperationalError("every connection of the pool was broken: is the server restarting?")


def _hung_up(connection: Any) -> bool:
    """Whether the server has closed it: an idle connection with something to read is suspect.

    Costs no round trip, unlike an empty query. A peer that vanished without a word is not seen:
    the next statement fails on it, after `tcp_user_timeout`.
    """
    waiter = select.poll()
    waiter.register(connection.fileno(), select.POLLIN)
    if not waiter.poll(0):
        return False
    try:
        connection.execute("")
    except Exception:  # noqa: BLE001  (whatever it is, this connection is of no use)
        return True
    return False
