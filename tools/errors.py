"""What a tool may raise, and what the package itself refuses."""

from __future__ import annotations


class ToolError(Exception):
    """An outcome that a tool states itself. `error_class` is one machine word, `detail` one line.

    `retry_after` is the number of seconds the other side asked us to wait, if it did.
    """

    default_class = "tool_error"

    def __init__(
        self, detail: str = "", *, error_class: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.error_class = error_class or self.default_class
        self.retry_after = retry_after


class NotSent(ToolError):  # noqa: N818  (the words of the design; the three read as outcomes)
    """Proven: nothing happened. Another attempt may follow."""

    default_class = "not_sent"


class Rejected(ToolError):  # noqa: N818
    """The business said no."""

    default_class = "rejected"


class Ambiguous(ToolError):  # noqa: N818
    """It may have happened."""

    default_class = "ambiguous"


class ReplyUnreadable(Exception):  # noqa: N818
    """The reply arrived whole and says success or not by its status; its body cannot be read.

    `wrote` is true for the reply to a POST, PUT, PATCH or DELETE.
    """

    def __init__(self, detail: str, *, error_class: str, status: int, wrote: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.error_class = error_class
        self.status = status
        self.wrote = wrote

    @property
    def effect_is_certain(self) -> bool:
        """A write that was answered with success; 202 only promises one."""
        return self.wrote and 200 <= self.status < 300 and self.status != 202


class InvalidArguments(Exception):  # noqa: N818
    """The model's arguments do not fit the tool. `detail` tells the model what to change."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class PolicyError(Exception):
    """A developer's function raised, ran too long or answered nonsense: the call is denied."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
