"""How a tool is declared: `@tool(...)` on a typed function, and the value it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from pydantic import BaseModel

from agentcore.values import Contract, Effect, Json, Preview, ProbeVerdict
from tools import registry, rules
from tools.context import ToolContext
from tools.parameters import read_signature
from tools.strict import Problem

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class Defaults:
    """What an installation sets for tools that say nothing themselves."""

    timeout: float = 20.0  # seconds


DEFAULTS = Defaults()
PROBE_AFTER = (5.0, 30.0, 120.0, 600.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an attempt may be made, and which exceptions prove that nothing was sent.

    On a write only NotSent and the exceptions of `on` allow another attempt; an ambiguous error
    in `on` is refused (E005).
    """

    max_attempts: int = 3
    on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("a tool needs at least one attempt")


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """When a person is asked. Made by `Approval.never`, `always` and `when`."""

    mode: Literal["never", "always", "when"]
    role: str = ""
    count: int = 1
    ttl: timedelta | None = None
    condition: Callable[[ToolContext, Any], bool] | None = None

    @property
    def rule(self) -> str:
        """The rule's name for the record."""
        if self.condition is None:
            return self.mode
        return f"when:{getattr(self.condition, '__qualname__', type(self.condition).__name__)}"


class Approval:
    """Makes approval rules. `role` names who decides, `count` how many, `ttl` how long it waits."""

    @staticmethod
    def never() -> ApprovalRule:
        """Nobody is asked."""
        return ApprovalRule("never")

    @staticmethod
    def always(*, role: str, count: int = 1, ttl: timedelta | None = None) -> ApprovalRule:
        """Each call waits for a person."""
        return ApprovalRule("always", role, count, ttl)

    @staticmethod
    def when(
        condition: Callable[[ToolContext, Any], bool],
        *,
        role: str,
        count: int = 1,
        ttl: timedelta | None = None,
    ) -> ApprovalRule:
        """A call waits for a person when `condition(ctx, params)` is true."""
        return ApprovalRule("when", role, count, ttl, condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One version of one tool, as declared. `problems` are the findings of the system checks."""

    name: str  # app_label.function
    wire_name: str  # app_label__function
    fn: Callable[..., Any]
    description: str
    params_model: type[BaseModel]
    schema: dict[str, Json]
    result_type: Any
    effect: Effect
    contract: Contract | None
    version: str
    identity: tuple[str, ...] | Callable[[ToolContext, Any], Any]
    scope: Literal["run", "tenant"]
    horizon: timedelta | None
    resource: Callable[[ToolContext, Any], str] | None
    approval: ApprovalRule
    timeout: float  # seconds
    retry: Retry
    scopes: tuple[str, ...]
    redact: tuple[str, ...]
    max_calls_per_run: int | None
    accepted_is_done: bool
    repeatable: bool
    owner: str
    fenced_sends: bool  # every request goes through `ctx.http`: nothing leaves after its time
    compensates: str  # name of the tool whose effect this one compensates; never called by itself
    described: frozenset[str]
    preview_fn: Callable[..., Any] | None = None
    probe_fn: Callable[..., Any] | None = None
    probe_after: tuple[float, ...] = PROBE_AFTER  # seconds before each look
    postcondition_fn: Callable[..., Any] | None = None
    polling: bool = False  # asking again is what it is for: no sign of standing still
    grounded: tuple[str, ...] = ()  # parameters that must stand in the input or an observation
    claims: tuple[str, ...] = ()  # words by which an answer says that this write was made
    untrusted: bool = False  # its results hold what strangers wrote: later writes are asked
    downstream: str = ""  # what it calls, for limits; empty: it is counted by its own name
    agent: str = ""  # name of the agent whose run a call is; made by the runtime, not by `tool`
    problems: tuple[Problem, ...] = field(default=())

    @property
    def rejected(self) -> bool:
        """Whether a mistake keeps the tool from being used."""
        return any(problem.code.startswith("E") for problem in self.problems)

    def wire(self) -> dict[str, Json]:
        """The tool as a function of the Responses API."""
        return {
            "type": "function",
            "name": self.wire_name,
            "description": self.description,
            "parameters": self.schema,
            "strict": True,
        }

    def manifest(self) -> dict[str, Json]:
        """Everything that makes this version what it is, as JSON without floats."""
        contract = self.contract
        detail = {
            name: int(value.total_seconds())
            for name in ("retention", "settle")
            if isinstance(value := getattr(contract, name, None), timedelta)
        }
        identity = self.identity
        return {
            "name": self.name,
            "version": self.version,
            "owner": self.owner,
            "compensates": self.compensates,
            "fenced_sends": self.fenced_sends,
            "effect": str(self.effect),
            "contract": {"name": contract.name if contract else "", **detail},
            "identity": list(identity) if isinstance(identity, tuple) else "function",
            "scope": self.scope,
            "approval": self.approval.rule,
            "timeout_ms": round(self.timeout * 1000),
            "max_attempts": self.retry.max_attempts,
            "retry_on": sorted(kind.__name__ for kind in self.retry.on),
            "probe": self.probe_fn is not None,
            "scopes": list(self.scopes),
            "polling": self.polling,
            "grounded": list(self.grounded),
            "claims": list(self.claims),
            "function": self.wire(),
            **({"untrusted": True} if self.untrusted else {}),
            **({"agent": self.agent} if self.agent else {}),
        }


class Tool(Generic[P, R]):
    """A declared tool: call it like the function; hang preview, probe and post-condition on it."""

    def __init__(self, spec: ToolSpec) -> None:
        update_wrapper(self, spec.fn)
        self.spec = spec
        self._declared = spec.problems
        self._amend()

    def __call__(self, ctx: ToolContext, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.spec.fn(ctx, *args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} v{self.spec.version}>"

    def _amend(self, **changes: Any) -> None:
        spec = replace(self.spec, problems=self._declared, **changes)
        self.spec = replace(spec, problems=self._declared + rules.examine(spec))
        registry.register(self.spec)

    def preview(self, function: Callable[[ToolContext, Any], Preview]) -> Any:
        """Decorator: reads, for the reviewer, what the write would change."""
        self._amend(preview_fn=function)
        return function

    def probe(self, *args: Any, after: tuple[float, ...] | list[float] = PROBE_AFTER) -> Any:
        """Decorator, bare or with `after`: asks the downstream about the effect.

        `after` are the seconds before the first look, the second and so on; the last repeats.
        """
        if args:
            self._amend(probe_fn=args[0])
            return args[0]

        def attach(
            function: Callable[[ToolContext, Any], ProbeVerdict],
        ) -> Callable[[ToolContext, Any], ProbeVerdict]:
            self._amend(probe_fn=function, probe_after=tuple(float(item) for item in after))
            return function

        return attach

    def postcondition(self, function: Callable[[ToolContext, Any, Any], bool]) -> Any:
        """Decorator: reads whether the effect is really there."""
        self._amend(postcondition_fn=function)
        return function


def tool(
    *,
    effect: Effect,
    contract: Contract | None = None,
    identity: tuple[str, ...] = (),
    key: Callable[[ToolContext, Any], Any] | None = None,
    scope: Literal["run", "tenant"] = "run",
    horizon: timedelta | None = None,
    resource: Callable[[ToolContext, Any], str] | None = None,
    approval: ApprovalRule | None = None,
    timeout: float | None = None,
    retry: Retry | None = None,
    scopes: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
    version: str = "1",
    max_calls_per_run: int | None = None,
    accepted_is_done: bool = False,
    repeatable: bool = False,
    owner: str = "",
    compensates: str = "",
    fenced_sends: bool = False,
    polling: bool = False,
    grounded: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
    downstream: str = "",
    untrusted: bool = False,
    app_label: str = "",
) -> Callable[[Callable[Concatenate[ToolContext, P], R]], Tool[P, R]]:
    """Declare a function as a tool and register it.

    `timeout` is in seconds; None takes the installation's (20). `fenced_sends` says that every
    request goes through `ctx.http`, which is what allows a new attempt after a proven absence
    (`tools/fencing.py`). `repeatable` says that the same intent may be wanted again: after a later
    write on the same resource, or when a person approves the repeat. `compensates` names the tool
    whose effect this one compensates: for people, it is an action like any other. `downstream`
    names what it calls, for limits. `untrusted` says that strangers write what it returns (mail,
    web pages): from the next turn on a person is asked about every write of the run.

    A mistake that `manage.py check` can show does not raise here: the tool is registered as
    rejected and can neither be offered nor run.
    """
    timeout = DEFAULTS.timeout if timeout is None else timeout
    if timeout <= 0:
        raise ValueError("a timeout is a positive number of seconds")
    facts = dict(locals())  # one keyword for each fact, named as the spec names it

    def declare(function: Callable[Concatenate[ToolContext, P], R]) -> Tool[P, R]:
        return Tool(_spec(function, **facts))

    return declare


def _spec(
    function: Callable[..., Any],
    *,
    identity: tuple[str, ...],
    key: Callable[[ToolContext, Any], Any] | None,
    approval: ApprovalRule | None,
    retry: Retry | None,
    app_label: str,
    **facts: Any,
) -> ToolSpec:
    """The spec of a function: what its signature says, and what was declared about it."""
    read = read_signature(function)
    label = app_label or app_label_of(function.__module__)
    problems = read.problems
    if key is not None and identity:
        problems += (Problem("E001", "give `identity` or `key`, not both"),)
    listed = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
    return ToolSpec(
        name=f"{label}.{function.__name__}",
        wire_name=f"{label}__{function.__name__}",
        fn=function,
        description=read.description,
        params_model=read.model,
        schema=read.schema,
        result_type=read.result_type,
        identity=key or tuple(identity),
        approval=approval or Approval.never(),
        retry=retry or Retry(),
        described=read.described,
        problems=problems,
        **{**facts, **listed},
    )


def app_label_of(module: str) -> str:
    """The package that holds the tools: `a.b.refund_desk.agent_tools.orders` -> `refund_desk`."""
    parts = module.split(".")
    if "agent_tools" in parts[1:]:
        return parts[parts.index("agent_tools", 1) - 1]
    return parts[-2] if len(parts) > 1 else parts[0].strip("_")
