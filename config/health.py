"""Two questions of a load balancer: does the process answer, and can it work."""

from __future__ import annotations

import logging

import redis
from django.conf import settings
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

log = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(_: HttpRequest) -> JsonResponse:
    """The process answers. Asks nobody else: a restart would not mend the database."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(_: HttpRequest) -> JsonResponse:
    """200 when database and broker answer, else 503. `checks` names each as `ok` or `down`.

    A broker that is down is reported, but runs are still accepted and driven by the sweep.
    """
    checks = {"database": _database(), "broker": _broker()}
    ready = all(value == "ok" for value in checks.values())
    body = {"status": "ok" if ready else "unavailable", "checks": checks}
    return JsonResponse(body, status=200 if ready else 503)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except (DatabaseError, InterfaceError) as error:
        log.warning("database is not ready: %s", error)
        return "down"
    return "ok"


def _broker() -> str:
    if not settings.REDIS_URL:
        return "down"
    try:
        client = redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=0.5,
            socket_connect_timeout=0.5,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        )
        with client:
            client.ping()
    except redis.RedisError as error:
        log.warning("broker is not ready: %s", error)
        return "down"
    return "ok"
