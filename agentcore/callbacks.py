"""What a downstream may send us: who it is, and its word about one effect."""

from __future__ import annotations

import base64
import binascii
import json
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from agentcore.reconciling import Word
from agentcore.values import Json

MIN_SECRET_BYTES = 24


class CallbackSource(BaseModel):
    """A downstream that may call back: its secrets, and the tools whose effects it speaks of.

    A secret is base64 of at least 24 random bytes, with or without `whsec_`; several are valid at
    once, so that they can be rotated. `tools` are names or patterns such as `refund_desk.*`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secrets: Annotated[tuple[str, ...], Field(min_length=1, max_length=5, repr=False)]
    tools: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)

    @field_validator("secrets")
    @classmethod
    def _usable(cls, secrets: tuple[str, ...]) -> tuple[str, ...]:
        for secret in secrets:
            try:
                key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
            except binascii.Error:
                raise ValueError("a secret is base64, with or without the prefix whsec_") from None
            if len(key) < MIN_SECRET_BYTES:
                raise ValueError(f"a secret holds at least {MIN_SECRET_BYTES} random bytes")
        return secrets

    def speaks_of(self, tool: str) -> bool:
        """Whether effects of this tool are its business."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)


def source_values(value: object) -> object:
    """`{source: secret}`, also as the JSON text of an environment variable, in its long form."""
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict):
        return value
    return {name: {"secrets": [it]} if isinstance(it, str) else it for name, it in value.items()}


SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,79}$")]
CallbackSources = Annotated[dict[SourceName, CallbackSource], BeforeValidator(source_values)]
"""Who may call back, by name: the option `callbacks`."""


class AboutEffect(BaseModel):
    """Which effect, by our idempotency key, the downstream's own reference, or both."""

    model_config = ConfigDict(extra="forbid")

    idempotency_key: Annotated[str, StringConstraints(max_length=64)] = ""
    reference: Annotated[str, StringConstraints(max_length=200)] = ""
    result: Json = None
    detail: Annotated[str, StringConstraints(max_length=2000)] = ""


class CallbackBody(BaseModel):
    """The body of a callback, in the payload shape of Standard Webhooks."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["effect.succeeded", "effect.failed", "effect.pending"]
    timestamp: str = ""
    data: AboutEffect

    @field_validator("data")
    @classmethod
    def _names_an_effect(cls, data: AboutEffect) -> AboutEffect:
        if not (data.idempotency_key or data.reference):
            raise ValueError("name the effect by idempotency_key or reference")
        return data

    @property
    def word(self) -> Word:
        """What the downstream says."""
        return Word(self.type.removeprefix("effect.").upper())
