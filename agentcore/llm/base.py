"""What the runtime asks of a model client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentcore.values import Json


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The text of a successful reply, not yet judged (see `decisions.parse_reply`)."""

    body: str


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """No reply. `code` is a machine word; `retry_after` the seconds the provider asked for.

    A transient failure says nothing about billing: the lost call may have been made and paid.
    """

    code: str
    detail: str
    transient: bool
    retry_after: float | None = None


class ModelClient(Protocol):
    """One outside call. Never raises, never retries: the runtime owns the retries."""

    def create(
        self,
        *,
        request: dict[str, Json],
        timeout: float,
        on_text: Callable[[str], None] | None = None,
    ) -> ModelReply | ModelFailure:
        """Send `request`; `timeout` is in seconds, for the whole call.

        `on_text` gets fragments of the answer while a streamed reply comes in: for people who
        watch, and for nothing else.
        """
        ...
