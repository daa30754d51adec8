"""The words of the runtime as frozen values, shared by every package."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

Json = Any
"""A JSON value: dict, list, str, int, bool or None. Never a float for money."""


class Effect(StrEnum):
    """What a tool does to the world."""

    READ = "READ"
    WRITE = "WRITE"
    WRITE_IRREVERSIBLE = "WRITE_IRREVERSIBLE"

    @property
    def is_write(self) -> bool:
        return self is not Effect.READ


class Priority(StrEnum):
    """Which new runs begin first. A run that has begun goes before all of them."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


# --- contracts: what the downstream guarantees about a repeated write ---------------------


@dataclass(frozen=True, slots=True)
class Key:
    """The downstream deduplicates by our idempotency key for `retention` after the first send."""

    retention: timedelta
    name = "KEY"


@dataclass(frozen=True, slots=True)
class Natural:
    """The write is absolute (a PUT, an If-Match): sending it twice has the effect of once."""

    name = "NATURAL"


@dataclass(frozen=True, slots=True)
class Query:
    """The effect can be looked up by our reference; a send may stay invisible for `settle`."""

    settle: timedelta
    name = "QUERY"


@dataclass(frozen=True, slots=True)
class NoContract:
    """Nothing is guaranteed: one attempt ever, approval by default."""

    name = "NONE"


Contract = Key | Natural | Query | NoContract


# --- attempts and their outcomes ----------------------------------------------------------


class AttemptKind(StrEnum):
    """Which outside call an attempt is one try of."""

    MODEL = "MODEL"
    TOOL = "TOOL"
    PROBE = "PROBE"
    PRECHECK = "PRECHECK"
    POSTCONDITION = "POSTCONDITION"


class OutcomeKind(StrEnum):
    """What is known after one outside call."""

    SUCCESS = "SUCCESS"
    NO_EFFECT = "NO_EFFECT"  # proven: nothing happened; another attempt may follow
    REFUSED = "REFUSED"  # the business said no
    AMBIGUOUS = "AMBIGUOUS"  # it may have happened
    PENDING = "PENDING"  # accepted, not final


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The result of one attempt, ready to be stored.

    `result` is JSON; `error_class` a short machine word (`read_timeout`, `RESULT_UNREADABLE`);
    `detail` one line for people; `reference` the downstream's own id of the effect.
    """

    kind: OutcomeKind
    result: Json = None
    error_class: str = ""
    detail: str = ""
    reference: str = ""
    retry_after: float | None = None  # seconds, as the other side asked


# --- probes: read-only questions about an effect ------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """The effect exists. `fingerprint_matches=False` means: with other arguments."""

    result: Json
    reference: str = ""
    fingerprint_matches: bool = True


@dataclass(frozen=True, slots=True)
class Absent:
    """The downstream says it has never seen our key."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The downstream is still working on it."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The question could not be answered now."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The downstream has our key or reference with other arguments than ours."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class NotDone:
    """The downstream's own final word: it knows the request, refused it and will not do it."""

    detail: str = ""


ProbeVerdict = Found | Absent | Pending | Inconclusive | Conflict | NotDone


# --- the model's proposal -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call of a reply, as received: `name` the wire name, `arguments` raw text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; zero where it did not say."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def as_json(self) -> dict[str, Json]:
        """As it is stored: `dataclasses.asdict` took 1 % of the Python of a run."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Preview:
    """What a write would do, read from the system of record for a reviewer.

    `version` identifies the state of the resource that was read; a write bound to it is refused
    when the resource moved on. A non-empty `block` refuses the write.
    """

    summary: str
    before: dict[str, Json] = field(default_factory=dict)
    after: dict[str, Json] = field(default_factory=dict)
    block: tuple[str, ...] = ()
    version: str = ""
