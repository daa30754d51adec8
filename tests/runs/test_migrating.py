"""A migration of a large table is not cut off by the limits of a request."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import pre_migrate


@pytest.mark.django_db
def test_no_limit_of_a_request_while_it_migrates() -> None:
    during: list[dict[str, str]] = []

    def look(**_: Any) -> None:
        during.append(_limits())

    pre_migrate.connect(look, sender=apps.get_app_config("runs"))
    try:
        call_command("migrate", verbosity=0)
    finally:
        pre_migrate.disconnect(look, sender=apps.get_app_config("runs"))

    assert during == [{"statement": "0", "lock": "10s", "idle_in_transaction_session": "0"}]
    assert _limits() == {"statement": "30s", "lock": "10s", "idle_in_transaction_session": "10s"}


def _limits() -> dict[str, str]:
    found = {}
    with connection.cursor() as cursor:
        for name in ("statement", "lock", "idle_in_transaction_session"):
            cursor.execute(f"SHOW {name}_timeout")
            found[name] = cursor.fetchone()[0]
    return found
