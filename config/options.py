"""The options of the runtime: one frozen, checked object. An unknown key is an error.

`AGENTCORE = {...}` in the settings gives values, the environment overrides each one as
`AGENTCORE_<NAME>`, for example `AGENTCORE_SWEEP_PERIOD=0.2`. Times are seconds unless the type
says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from agentcore.callbacks import CallbackSources
from agentcore.prices import DEFAULT_PRICES, PriceTable
from agentcore.throttle import LimitTable

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
# One of ours, or `package.module:name` of a function that returns a `llm.base.ModelClient`.
ModelApi = Annotated[
    str, Field(pattern=r"^(responses|chat_completions|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")
]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]


def _duration(value: object) -> object:
    """Accept a number of seconds, also as the text an environment variable holds."""
    return timedelta(seconds=float(value)) if isinstance(value, str | int | float) else value


class Options(BaseModel):
    """What the runtime may be told. Defaults are those of a production service."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    # Django's settings ask for this at each access, and pydantic is slow to say that it is not
    # there: 180 times in a run of five turns.
    _mask_wrapped: ClassVar[bool] = True

    sweep_period: Seconds = 2.0
    beat_period: Seconds = 3.0
    worker_dead_after: Seconds = 15.0
    slice_seconds: Seconds = 5.0
    slice_calls: Count = 16
    read_cap: Count = 4
    threads: Count = 16
    approval_ttl: Annotated[timedelta, BeforeValidator(_duration)] = timedelta(hours=4)
    tool_timeout: Seconds = 20.0
    model_timeout: Seconds = 120.0
    grace_seconds: Seconds = 30.0
    call_margin: Seconds = 10.0
    claim_margin: Seconds = 30.0
    stuck_seconds: Seconds = 60.0
    stuck_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    isolate_after: Count = 2
    isolate_backoff: Seconds = 5.0
    isolate_grace: Seconds = 30.0
    poison_after: Count = 3
    hint_backoff: Seconds = 5.0
    hint_backoff_cap: Seconds = 300.0
    precheck_max_age: Seconds = 10.0
    prepared_statements: bool = True
    one_processor: bool = True
    reconcile_max_age: Annotated[timedelta, BeforeValidator(_duration)] = timedelta(hours=24)
    key_header: HeaderName = "Idempotency-Key"
    fence_header: HeaderName = "X-Agentcore-Fence"
    max_invalid_replies: Count = 3
    model_attempts: Count = 5
    stream_seconds: Seconds = 300.0
    stream_heartbeat: Seconds = 15.0
    webhook_timeout: Seconds = 15.0
    webhook_networks: str = ""
    api_reads_a_minute: Annotated[int, Field(ge=0)] = 6000
    api_writes_a_minute: Annotated[int, Field(ge=0)] = 1200
    openai_api_key: str = Field(default="", repr=False)
    openai_base_url: str = ""
    model: str = "gpt-5.2"
    model_api: ModelApi = "responses"
    stream: bool = False
    max_invalid_calls: Count = 3
    prices: PriceTable = DEFAULT_PRICES
    limits: LimitTable = ()
    event_key: bytes = Field(default=b"", repr=False)
    callbacks: CallbackSources = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.worker_dead_after < 2 * self.beat_period:
            raise ValueError(
                "worker_dead_after must be at least twice beat_period, or one late beat kills a "
                "living worker"
            )
        if self.hint_backoff > self.hint_backoff_cap:
            raise ValueError("hint_backoff must not exceed hint_backoff_cap")
        if self.approval_ttl <= timedelta(0):
            raise ValueError("approval_ttl must be positive")
        if self.reconcile_max_age <= timedelta(0):
            raise ValueError("reconcile_max_age must be positive")
        if self.key_header.lower() == self.fence_header.lower():
            raise ValueError("key_header and fence_header must differ")
        return self


class OptionsError(ValueError):
    """Options that cannot be used; the text names each one."""


def load_options(*, values: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
    """Merge `values` with the environment and check them. Raises OptionsError.

    `OPENAI_API_KEY` and `OPENAI_BASE_URL` are read too, below their AGENTCORE_ names.
    """
    merged = dict(values)
    for name in Options.model_fields:
        plain = environment.get(name.upper()) if name.startswith("openai_") else None
        given = environment.get(f"AGENTCORE_{name.upper()}") or plain
        if given:
            merged[name] = given
    try:
        return Options(**merged)
    except (ValidationError, TypeError) as error:
        raise OptionsError(_explain(error)) from None


def _explain(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return f"AGENTCORE options: {error}"
    lines = []
    for item in error.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in item["loc"]) or "options"
        said = "there is no such option" if item["type"] == "extra_forbidden" else item["msg"]
        lines.append(f"{name} (environment AGENTCORE_{name.upper()}): {said}")
    return "AGENTCORE options: " + "; ".join(lines)
