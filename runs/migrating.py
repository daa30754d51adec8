"""A migration may take as long as its table is large: no limit of a request applies to it."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate

LIFTED = ("statement_timeout", "idle_in_transaction_session_timeout")
"""`lock_timeout` stays: a migration that waits for a lock stops every reader behind it."""


def connect(sender: Any) -> None:
    """Lift the limits around each `migrate`; `sender` is the app config that says so once."""
    pre_migrate.connect(_lift, sender=sender)
    post_migrate.connect(_restore, sender=sender)


def _lift(*, using: str, **_: Any) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("; ".join(f"SET {name} = 0" for name in LIFTED))


def _restore(*, using: str, **_: Any) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("; ".join(f"RESET {name}" for name in LIFTED))
