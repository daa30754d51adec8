"""Exceptions as words: a machine word for the record, one safe line for people."""

from __future__ import annotations

from agentcore.values import Json
from tools.arguments import redacted
from tools.errors import InvalidArguments, ReplyUnreadable, ToolError
from tools.limits import TookTooLong
from tools.spec import ToolSpec
from tools.storable import NotStorable, TooLarge, one_line
from tools.types import REDACTED

TRANSIENT = "transient:"
"""Prefix of the error class of a read that may well succeed when it is tried again."""

_MIN_SECRET = 4  # shorter values would blank out half of any sentence


def is_transient(error_class: str) -> bool:
    """Whether a read that failed so may be tried again at once."""
    return error_class.startswith(TRANSIENT)


def error_word(exc: BaseException) -> str:
    """The machine word of an exception: `read_timeout`, `http_500`, `exception:ValueError`."""
    if isinstance(exc, ToolError | ReplyUnreadable):
        return one_line(exc.error_class, limit=60) or type(exc).__name__
    if isinstance(exc, InvalidArguments):
        return "stored_arguments"
    words: tuple[tuple[type[BaseException], str], ...] = (
        (TookTooLong, "timeout"),
        (TimeoutError, "timeout"),
        (ConnectionRefusedError, "connection_refused"),
        (ConnectionResetError, "connection_reset"),
        (BrokenPipeError, "connection_reset"),
        (TooLarge, "TOO_LARGE"),
        (NotStorable, "RESULT_UNREADABLE"),
    )
    for kind, word in words:
        if isinstance(exc, kind):
            return word
    return f"exception:{type(exc).__name__}"[:60]


def describe_exception(exc: BaseException, spec: ToolSpec, arguments: dict[str, Json]) -> str:
    """One line about an exception, without the values of secret and redacted parameters."""
    try:
        text = getattr(exc, "detail", "") or f"{type(exc).__name__}: {exc}"
        text = str(text)
    except Exception:  # noqa: BLE001  (an exception whose own text fails is still an exception)
        text = type(exc).__name__
    for value in _hidden_values(spec, arguments):
        text = text.replace(value, REDACTED)
    return one_line(text)


def _hidden_values(spec: ToolSpec, arguments: dict[str, Json]) -> list[str]:
    shown = redacted(spec=spec, arguments=arguments)
    hidden = [str(value) for name, value in arguments.items() if shown.get(name) != value]
    return sorted((value for value in hidden if len(value) >= _MIN_SECRET), key=len, reverse=True)
