"""Identifiers: UUIDv7, so that rows sort by age."""

from __future__ import annotations

from uuid import UUID

from uuid_utils import compat


def new_id() -> UUID:
    """A fresh UUIDv7 as a standard `uuid.UUID`."""
    return compat.uuid7()
