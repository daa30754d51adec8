"""The JSON of the API: these models check what comes in, render what goes out, are the schema."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from runs.api.status import ActionType, PublicStatus

Name = Annotated[str, StringConstraints(min_length=1, max_length=120)]


class Shape(BaseModel):
    """A body of an answer. Optional members are present and null unless they say otherwise."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class Question(BaseModel):
    """A body of a request: no member that is not named, no coercion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


def example(**values: Any) -> ConfigDict:
    """The settings of a `Question` that shows how it is asked."""
    extra: Any = {"examples": [values]}
    return ConfigDict(extra="forbid", strict=True, json_schema_extra=extra)


# --- requests ---------------------------------------------------------------------------------


RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def time_in(text: str) -> datetime | None:
    """The time of an RFC 3339 text, in UTC, which PostgreSQL takes whatever the offset was."""
    if RFC3339.fullmatch(text):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text).astimezone(UTC)
    return None


def moment(value: object) -> object:
    """RFC 3339 text with an offset, as UTC; `strict` alone would want a datetime object."""
    if isinstance(value, str) and (found := time_in(value)) is not None:
        return found
    raise PydanticCustomError("not_a_time", "Send a time as in 2030-01-31T12:00:00Z")


Tokens = Annotated[int, Field(ge=1000, le=10**12, description="Input and output of all calls.")]
PriorityWord = Literal["high", "normal", "low"]
Cost = Annotated[
    str,
    StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})? USD$"),
    Field(description="Money for the model, such as `0.50 USD`.", examples=["0.50 USD"]),
]


class BudgetRequest(Question):
    """Limits for this run. They may only lower those of the agent."""

    max_turns: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_actions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_tokens: Tokens | None = None
    max_cost: Cost | None = None
    deadline_at: Annotated[AwareDatetime, BeforeValidator(moment)] | None = None


class Reason(Question):
    """A body that only says why."""

    model_config = example(reason="The customer called.")

    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class RunCreate(Question):
    """A request to start a run."""

    model_config = example(
        agent="refund_desk",
        input={"order_id": "ORD-1001", "message": "It arrived broken.", "amount": "20.00 EUR"},
        metadata={"order": "1001"},
    )

    agent: Name = Field(description="The name of a declared agent.")
    version: Name | None = Field(
        default=None, description="Refuse the run unless the agent has this version now."
    )
    input: JsonValue = Field(description="The task, as the input model of the agent says.")
    metadata: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ] = Field(default_factory=dict, max_length=16, description="Texts of the caller; kept as sent.")
    dedupe_key: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="A business key: at most one run with it is open in a tenant at a time.",
    )
    on_behalf_of: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="Your own id of the person this is done for; kept for the audit."
    )
    session: Annotated[str, StringConstraints(pattern=r"^sess_[0-9a-f]{32}$")] | None = Field(
        default=None, description="The session this run continues."
    )
    session_conflict: Literal["reject", "queue"] = Field(
        default="reject",
        description="While the session has an open run: refuse this one, or start it after that.",
    )
    start_at: Annotated[AwareDatetime, BeforeValidator(moment)] | None = Field(
        default=None, description="Not before this time, which must lie before the deadline."
    )
    webhook_endpoint: Annotated[str, StringConstraints(pattern=r"^whep_[0-9a-f]{32}$")] | None = (
        Field(
            default=None,
            description="Tell this endpoint of the run's events, and no other.",
        )
    )
    budget: BudgetRequest | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=366 * 86_400)] | None = Field(
        default=None,
        description="Seconds from now to the deadline of the run; may only lower the agent's. With "
        "`budget.deadline_at` the earlier one counts.",
    )
    priority: PriorityWord = Field(
        default="normal",
        description="Which new runs begin first. Runs that have begun go before all of them.",
    )
    dry_run: bool = Field(
        default=False,
        description="Reads run, writes do not: each is judged, previewed where its tool can, and "
        "ends as `voided` with the reason `DRY_RUN`. Nobody is asked to approve one.",
    )


# --- answers ----------------------------------------------------------------------------------


class RequiredAction(Shape):
    """What a person has to do before the run goes on."""

    type: ActionType
    ids: list[str] = Field(description="Ids of approvals, of actions, or (operator) of the run.")
    expires_at: datetime | None


class IncompleteDetails(Shape):
    reason: str


class RunError(Shape):
    """Why a run failed. `code` is the stop reason, `layer` what broke."""

    code: str
    layer: str
    message: str


class Usage(Shape):
    """Tokens of all model calls so far, as the provider counted them."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


class BudgetLimits(Shape):
    """null: there is no such limit."""

    max_turns: int
    max_actions: int
    max_tokens: int | None
    max_cost: str | None
    deadline_at: datetime


class BudgetUsed(Shape):
    """`tokens` and `cost` as they were booked; what a call in flight may use is not in them. With
    what children used; of turns and actions also what open ones hold."""

    turns: int
    actions: int
    tokens: int
    cost: str


class Budget(Shape):
    limits: BudgetLimits
    used: BudgetUsed


class Links(Shape):
    self: str
    events: str


class Run(Shape):
    """A run: one task from the request to its terminal state."""

    id: str
    object: Literal["run"]
    status: PublicStatus
    status_reason: str | None
    agent: str
    agent_version: str
    input: JsonValue
    output: JsonValue
    business_outcome: str | None = Field(
        description="What the run came to for the business, in one word; a downstream's later word "
        "may change it (`run.business_result`)."
    )
    required_action: RequiredAction | None
    incomplete_details: IncompleteDetails | None
    error: RunError | None
    usage: Usage
    budget: Budget
    turns: int
    actions_summary: dict[str, int] = Field(
        description="Number of actions by state (lower case); a state without actions is left out."
    )
    requester: str
    on_behalf_of: str | None
    priority: PriorityWord
    dry_run: bool = Field(description="True: no write of this run is executed.")
    session: str | None
    retry_of: str | None
    parent: str | None = Field(description="The run that asked for this one, an agent for another.")
    children: list[str] = Field(description="The runs that this one asked for, oldest first.")
    dedupe_key: str | None
    metadata: dict[str, str]
    revision: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime
    trace_id: str | None
    links: Links


class Actor(Shape):
    type: str
    id: str


class Event(Shape):
    """What one transaction did to a run. `seq` has no gaps; the order is that of `seq`."""

    id: str
    object: Literal["event"]
    seq: int
    type: str
    created_at: datetime
    actor: Actor
    run: str
    parent: str | None = Field(description="The run that asked for this one, an agent for another.")
    root: str | None = Field(
        description="The run above all of these that somebody asked for; null for that one itself."
    )
    data: dict[str, Any] = Field(
        description="`transitions`: list of {object, id, from, to, cause, step?}, in order."
    )
    revision_before: int
    revision_after: int


Item = TypeVar("Item", bound=BaseModel)


class ListShape(Shape, Generic[Item]):
    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class RunList(ListShape[Run]):
    """Runs, newest first."""


class EventList(ListShape[Event]):
    """Events of a run, oldest first."""


class ProblemField(Shape):
    pointer: str = Field(description="JSON pointer into the body; query parameters: `?name`.")
    code: str
    detail: str


class Problem(Shape):
    """An error (RFC 9457). `code` is stable; the texts may change."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[ProblemField] = Field(default_factory=list)
    run: str | None = Field(default=None, description="dedupe_open_run: the run that is open.")
