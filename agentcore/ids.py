"""Identifiers: UUIDv7, so that rows sort by age."""

from __future__ import annotations

from uuid import UUID

import uuid_utils


def new_id() -> UUID:
    """A fresh UUIDv7 as a standard `uuid.UUID`."""
    return UUID(bytes=uuid_utils.uuid7().bytes)
