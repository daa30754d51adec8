"""What a use case answers when it refuses: one exception with a machine code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field. `pointer` is a JSON pointer into the request body (RFC 6901)."""

    pointer: str
    code: str
    detail: str


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """A request that was understood and refused. Nothing was written.

    `code` is the machine word; `detail` says what to do; `context` holds public facts of the
    refusal (for example the id of the run that is already open).
    """

    def __init__(
        self,
        *,
        code: str,
        detail: str,
        errors: Iterable[FieldError] = (),
        retry_after: int | None = None,
        context: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after
        self.context = context or {}


def invalid(pointer: str, code: str, detail: str) -> Refused:
    """`invalid_input` for one field."""
    return Refused(
        code="invalid_input",
        detail=detail if not pointer else f"{pointer}: {detail}",
        errors=[FieldError(pointer, code, detail)],
    )


class Revised(Protocol):
    """What has a revision: a run."""

    revision: int


def check_revision(row: Revised, expected: int | None) -> None:
    """Raises `Refused` (revision_mismatch) when the row has moved on; None expects nothing."""
    if expected is not None and row.revision != expected:
        raise Refused(
            code="revision_mismatch",
            detail=f"The run has revision {row.revision} now, not {expected}. Read it again and "
            "decide anew.",
        )
