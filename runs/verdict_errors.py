"""Why a verdict was not recorded. The message says what the person can do next."""

from __future__ import annotations

from approvals.errors import DecisionError


class VerdictError(DecisionError):
    """The verdict was not recorded and nothing was written.

    `code` is for machines, `status` is the HTTP status an entry point answers with.
    """

    def __init__(self, code: str, message: str, *, status: int = 409) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
