"""The DATABASES setting: PostgreSQL through psycopg's pool, with every wait bounded."""

from __future__ import annotations

from typing import Any

from config.addresses import parse_database_url

# The pool: 16 threads share 8 connections, since none is held during an outside call. A short
# `reconnect_timeout` makes the pool give up and start over, so that a restarted server is found
# within seconds instead of after a long back-off.
POOL = {"min_size": 0, "max_size": 8, "timeout": 8, "reconnect_timeout": 3, "max_idle": 300}

# A dead peer is noticed within about 25 s (keepalive) or 15 s (unacknowledged data).
TCP = {
    "connect_timeout": 3,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

# Limits in ms, on the server's side: a paused process cannot hold a row lock longer than 10 s.
SESSION = {
    "statement_timeout": 30_000,
    "lock_timeout": 10_000,
    "idle_in_transaction_session_timeout": 10_000,
    # Prepared statements (`runs/prepared.py`, foreign keys, triggers) are planned once a connection
    # instead of six times: all of them find their rows by a unique key.
    "plan_cache_mode": "force_generic_plan",
}


def databases(*, url: str, application_name: str, pooled: bool = True) -> dict[str, dict[str, Any]]:
    """Return Django's DATABASES for `url`; without one an engine that explains itself.

    Not `pooled`: for a command of one thread, which then hears at once why it cannot connect.

    Libpq options in the query of `url` (`?sslmode=verify-full`) win over ours.
    Raises AddressError.
    """
    if not url:
        return {"default": {"ENGINE": "config.missing", "NAME": "missing"}}
    parts = parse_database_url(url)
    session = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    options = {"application_name": application_name, **TCP, "options": session, **parts["OPTIONS"]}
    return {
        "default": {
            **parts,
            "ENGINE": "config.pooled" if pooled else "django.db.backends.postgresql",
            "OPTIONS": {**options, "pool": dict(POOL)} if pooled else options,
            "CONN_MAX_AGE": 0,  # a pool wants 0; it keeps the connections itself
            "CONN_HEALTH_CHECKS": False,  # `config.pooled` looks at each one it takes
        }
    }
