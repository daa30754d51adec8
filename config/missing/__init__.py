"""A database engine for a process that was given no database: it says so at the first query.

Commands that need none (`check`, `makemigrations`, `--help`) work with it.
"""

from __future__ import annotations

NO_DATABASE = (
    "no database is configured: set DATABASE_URL (postgres://user:password@host:5432/name), or "
    "start the embedded servers of this checkout with `make run` and try again"
)
NO_BROKER = (
    "no broker is configured: set REDIS_URL (redis://:password@host:6379/0), or start the "
    "embedded servers of this checkout with `make run` and try again"
)
