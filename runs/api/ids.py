"""Public ids: a prefix that names the type, and the hex digits of the UUID."""

from __future__ import annotations

import re
from uuid import UUID

_HEX = re.compile(r"[0-9a-f]{32}")
_EVENT = re.compile(r"evt_([0-9a-f]{32})_([1-9][0-9]{0,17})")


def public_id(prefix: str, value: UUID) -> str:
    """`run_0199…`: prefix, underscore, 32 hex digits."""
    return f"{prefix}_{value.hex}"


def parse_id(prefix: str, text: str) -> UUID | None:
    """The UUID in a public id of this type, or None when `text` is not one."""
    head, _, digits = text.partition("_")
    if head != prefix or not _HEX.fullmatch(digits):
        return None
    return UUID(hex=digits)


def event_id(run_id: UUID, seq: int) -> str:
    """`evt_<run>_<seq>`: stable, and enough to find its place in the run's events."""
    return f"evt_{run_id.hex}_{seq}"


def parse_event_id(text: str) -> tuple[UUID, int] | None:
    """(run id, seq) of a public event id, or None when `text` is not one."""
    match = _EVENT.fullmatch(text)
    return (UUID(hex=match[1]), int(match[2])) if match else None
