"""Checks that an agent adds: of its input, of each proposed action, of its answer.

A guardrail passes, refuses with a reason, or breaks. One that breaks (raises, takes too long,
answers with something else) decides nothing: it pauses the run for a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agentcore.values import Json

Stage = Literal["input", "action", "output"]


@dataclass(frozen=True, slots=True)
class Proposed:
    """An action as a guardrail sees it, before any effect."""

    tool: str
    arguments: dict[str, Json]
    tenant: str
    principal: str
    run_input: Json


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One check. `check` gets the input (a JSON value), a `Proposed`, or the output (a JSON
    object), and returns "" to pass or the reason of a refusal.
    """

    name: str
    stage: Stage
    check: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Passed:
    """Nothing objects."""


@dataclass(frozen=True, slots=True)
class Refused:
    """`name` objects; `reason` is for the model and the operator."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """`name` could not be asked; a person has to look."""

    name: str
    reason: str


Verdict = Passed | Refused | Broken
