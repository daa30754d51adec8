"""Health pages and the headers of every response."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client


def test_healthz_asks_nobody(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_is_ready_with_both_servers(client: Client) -> None:
    response = client.get("/readyz")
    assert response.json()["checks"] == {"database": "ok", "broker": "ok"}
    assert response.status_code == 200


@pytest.mark.django_db
def test_readyz_names_what_is_down(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"database": "ok", "broker": "down"}


@pytest.mark.parametrize("path", ["/healthz", "/admin/login/", "/no-such-page"])
@pytest.mark.django_db
def test_every_response_carries_the_strict_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.django_db
def test_static_files_are_served_without_collecting_them(client: Client) -> None:
    response = client.get("/static/admin/css/base.css")
    assert response.status_code == 200
    response.close()


@pytest.mark.django_db
def test_the_server_bounds_our_waits() -> None:
    shown = {}
    with connection.cursor() as cursor:
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            cursor.execute(f"SHOW {name}")
            shown[name] = cursor.fetchone()[0]
    assert shown == {
        "statement_timeout": "30s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "10s",
    }
    assert connection.settings_dict["OPTIONS"]["pool"]["max_size"] == 8
