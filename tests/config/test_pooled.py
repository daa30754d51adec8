"""A process whose pooled connections were all cut goes on with the first request after it."""

from __future__ import annotations

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from tests.world import wait_for

KILL = "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid"
LEFT = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"


@pytest.mark.requirement("R57")
@pytest.mark.django_db(transaction=True)
def test_a_pool_of_nothing_but_broken_connections_serves_the_next_query() -> None:
    connection.close()
    pool = connection.pool
    held = [pool.getconn() for _ in range(pool.max_size)]
    pids = [one.info.backend_pid for one in held]
    for one in held:
        pool.putconn(one)
    with psycopg.connect(_url(), autocommit=True) as other:
        other.execute(KILL, [pids])
        wait_for(lambda: other.execute(LEFT, [pids]).fetchone() == (0,), seconds=10)

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] not in pids


def _url() -> str:
    database = settings.DATABASES["default"]
    return psycopg.conninfo.make_conninfo(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        password=database["PASSWORD"],
        dbname=database["NAME"],
    )
