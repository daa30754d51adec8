"""Declaring agents, and freezing a declaration as the version that a run uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError
from pydantic import BaseModel

from agentcore import canonical
from agentcore.budgets import Budget
from agentcore.compaction import ContextPolicy
from agentcore.guardrails import Guardrail
from agentcore.languages import ENGLISH, Language, languages_of
from agentcore.policy import POLICY_VERSION
from agentcore.progress import NoProgress
from agentcore.values import Effect
from runs import calling
from runs.calling import AgentTool
from runs.models import AgentVersion
from tools import registry
from tools.spec import ToolSpec

__all__ = [
    "AgentDeclaration",
    "AgentTool",
    "agent",
    "all_agents",
    "effect_of",
    "forget_frozen",
    "get_agent",
    "is_unknown_version",
    "languages_in",
    "output_schema",
]

_AGENTS: dict[str, AgentDeclaration] = {}


@dataclass(frozen=True)
class AgentDeclaration:
    """One agent as its code declares it. `instructions` is the text itself."""

    name: str
    version: str
    model: str
    instructions: str
    tools: tuple[str, ...]
    calls: tuple[AgentTool, ...] = ()
    input_model: type[BaseModel] | None = None
    output_model: type[BaseModel] | None = None
    budget: Budget = field(default_factory=Budget)
    settings: dict[str, Any] = field(default_factory=dict)
    stop_on_failure: bool = False
    no_progress: NoProgress = field(default_factory=NoProgress)
    context: ContextPolicy = field(default_factory=ContextPolicy)
    guardrails: tuple[Guardrail, ...] = ()
    business_outcome: Callable[[dict[str, Any]], str] | None = None
    languages: tuple[Language, ...] = (ENGLISH,)
    description: str = ""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Everything that it may call, other agents last."""
        return (*self.tools, *(call.name for call in self.calls))

    def specs(self) -> list[ToolSpec]:
        """What it may call, in order. Raises `ImproperlyConfigured` for what may not be."""
        found = [(name, registry.get(name)) for name in self.tool_names]
        missing = [name for name, spec in found if spec is None]
        if missing:
            raise ImproperlyConfigured(
                f"agent {self.name!r} names tools that are not registered: {', '.join(missing)};"
                " run `manage.py check` to see why"
            )
        for wrong in calling.findings(self, get_agent):
            raise ImproperlyConfigured(wrong.message)
        return [spec for _, spec in found if spec is not None]

    def freeze(self) -> AgentVersion:
        """The stored version of this declaration, made on first use. Never changed afterwards.

        A process keeps the row: to make the digest takes 0.7 ms, more than the rest of a start.
        """
        specs, model = self.specs(), self.model or settings.AGENTCORE_OPTIONS.model
        known = _FROZEN.get(self.name)
        if known is None or not known.is_of(self, model, specs):
            known = _FROZEN[self.name] = _Frozen(self, model, specs, self._stored(model, specs))
        return known.row

    def _stored(self, model: str, specs: Sequence[ToolSpec]) -> AgentVersion:
        spec = {
            "name": self.name,
            "version": self.version,
            "model": model,
            "instructions": self.instructions,
            "settings": self.settings,
            "tools": [tool.manifest() for tool in specs],
            "policy_version": POLICY_VERSION,
            "budget": self.budget.stored(),
            "no_progress": self.no_progress.stored(),
            "context": asdict(self.context),
            "guardrails": [f"{rail.stage}:{rail.name}" for rail in self.guardrails],
            "stop_on_failure": self.stop_on_failure,
            "output": output_schema(self.output_model),
            "languages": [language.stored() for language in self.languages],
        }
        if self.calls:
            spec["calls"] = [call.stored() for call in self.calls]
        # These may hold floats, which the canonical form refuses: hash their text.
        loose = {name: json.dumps(spec[name], sort_keys=True) for name in ("settings", "output")}
        text = {**spec, **loose}
        digest = canonical.sha256_hex(canonical.canonical_json(text))
        row, _ = AgentVersion.objects.get_or_create(
            digest=digest,
            defaults={
                "name": self.name,
                "version": self.version,
                "spec": spec,
                "created_at": datetime.now(UTC),
            },
        )
        return row


@dataclass(frozen=True, slots=True)
class _Frozen:
    """The row that a declaration was frozen as, and what it was made of."""

    declaration: AgentDeclaration
    model: str
    specs: Sequence[ToolSpec]
    row: AgentVersion

    def is_of(self, declaration: AgentDeclaration, model: str, specs: Sequence[ToolSpec]) -> bool:
        same = declaration is self.declaration and model == self.model
        pairs = zip(specs, self.specs, strict=False)
        return same and len(specs) == len(self.specs) and all(a is b for a, b in pairs)


_FROZEN: dict[str, _Frozen] = {}


def forget_frozen() -> None:
    """Look the versions up anew."""
    _FROZEN.clear()


def is_unknown_version(error: IntegrityError) -> bool:
    """Whether a run named a version that is gone: the tables were restored under this process."""
    return "agent_version_id" in str(error)


@cache
def output_schema(model: type[BaseModel] | None) -> dict[str, Any] | None:
    """The JSON schema of an output, as an agent version freezes it; None for plain text."""
    return model.model_json_schema() if model is not None else None


def agent(
    *,
    name: str,
    version: str,
    instructions: str | Path,
    tools: list[str | AgentTool] | list[str],
    model: str = "",
    input: type[BaseModel] | None = None,  # noqa: A002  (the word of the declaration)
    output: type[BaseModel] | None = None,
    budget: Budget | None = None,
    settings: dict[str, Any] | None = None,
    stop_on_failure: bool = False,
    no_progress: NoProgress | None = None,
    context: ContextPolicy | None = None,
    guardrails: tuple[Guardrail, ...] = (),
    business_outcome: Callable[[dict[str, Any]], str] | None = None,
    languages: tuple[Language | str, ...] = ("en",),
    description: str = "",
) -> AgentDeclaration:
    """Declare and register an agent.

    `instructions` is a text, or a path of a file that holds it. `tools` are names of tools, and
    `AgentTool` for other agents, which may be declared later; `description` is what those that call
    this one are told of it. `model` empty means the
    `AGENTCORE_MODEL` setting. `languages`: those that it answers in, by which claims of success are
    found. Raises ValueError for a language that is not known, and `ImproperlyConfigured` for a name
    that is taken.
    """
    declaration = AgentDeclaration(
        name=name,
        version=version,
        model=model,
        instructions=_text_of(instructions),
        tools=tuple(item for item in tools if isinstance(item, str)),
        calls=tuple(item for item in tools if isinstance(item, AgentTool)),
        input_model=input,
        output_model=output,
        budget=budget or Budget(),
        settings=settings or {},
        stop_on_failure=stop_on_failure,
        no_progress=no_progress or NoProgress(),
        context=context or ContextPolicy(),
        guardrails=guardrails,
        business_outcome=business_outcome,
        languages=languages_of(languages),
        description=description,
    )
    _register(declaration)
    return declaration


def _text_of(instructions: str | Path) -> str:
    if isinstance(instructions, Path):
        return instructions.read_text(encoding="utf-8")
    return instructions


def _register(declaration: AgentDeclaration) -> None:
    """Make it known, and callable what it calls, and itself where another one calls it: which of
    the two is declared first does not matter.
    """
    name = declaration.name
    known = _AGENTS.get(name)
    if known is not None and known != declaration:
        raise ImproperlyConfigured(f"agent {name!r} is declared twice, differently")
    _AGENTS[name] = declaration
    for agent in all_agents():
        for call in agent.calls:
            called = get_agent(call.agent)
            if called is not None and name in (agent.name, called.name):
                calling.register(called)


def languages_in(spec: Mapping[str, Any]) -> tuple[Language, ...]:
    """The languages of a frozen agent version."""
    stored = spec.get("languages") or ()
    return tuple(Language(**item) for item in stored) or (ENGLISH,)


def get_agent(name: str) -> AgentDeclaration | None:
    return _AGENTS.get(name)


def effect_of(spec: ToolSpec) -> Effect:
    """The most that a call of a tool may do: of another agent, what any of its tools may do. The
    journal has such a call as a read, since what is written is written by the child.
    """
    called = get_agent(spec.agent) if spec.agent else None
    return calling.powers_of(called).effect if called is not None else spec.effect


def all_agents() -> list[AgentDeclaration]:
    return sorted(_AGENTS.values(), key=lambda item: item.name)
