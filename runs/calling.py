"""An agent as a tool of another agent: how it is declared, and what `manage.py check` asks of it.

A call is a tool like any other to the model, and to everything that judges calls: its name is
`agents.<agent>`, its arguments are the input of that agent. What it may hand down is declared by
the agent that calls, since a child never has more than its parent gives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from pydantic import ConfigDict, StringConstraints, create_model

from agentcore.budgets import micros
from agentcore.children import LABEL, MAX_DEPTH, Powers, Share
from agentcore.values import Effect
from tools import registry
from tools.parameters import strict_parameters
from tools.spec import DEFAULTS, Approval, Retry, ToolSpec
from tools.strict import Problem

if TYPE_CHECKING:
    from runs.agents import AgentDeclaration

Known = Callable[[str], "AgentDeclaration | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """Another agent among the tools of an agent. A call is a run of its own, a child.

    `scopes` and `effect` are all that the child may use of what the caller may do; by default it
    only reads. `turns`, `actions`, `handoffs`, `tokens` and `cost` (such as "0.10 USD") are what it
    is given of its parent's budget; left out, an even part of what is left. It never gets more than
    is left, nor more than its own agent's budget. Raises ValueError for an amount that is none.
    """

    agent: str
    scopes: tuple[str, ...] = ()
    effect: Effect = Effect.READ
    turns: int | None = None
    actions: int | None = None
    handoffs: int | None = None
    tokens: int | None = None
    cost: str | None = None

    def __post_init__(self) -> None:
        for name in ("turns", "actions", "handoffs", "tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"agent {self.agent}: {name} is a whole number")
            if value is not None and value < (0 if name in ("actions", "handoffs") else 1):
                raise ValueError(f"agent {self.agent}: {name} is too small")
        self.share()

    @property
    def name(self) -> str:
        """The tool that a call of the agent is."""
        return _name(self.agent)

    @property
    def wire_name(self) -> str:
        """What the model calls it."""
        return _wire_name(self.agent)

    @property
    def powers(self) -> Powers:
        """What the child may do at most."""
        return Powers(frozenset(self.scopes), Effect(self.effect))

    def share(self) -> Share:
        """What it asks for of the parent's budget."""
        cost = micros(self.cost) if self.cost is not None else None
        return Share(self.turns, self.actions, self.handoffs, self.tokens, cost)

    def stored(self) -> dict[str, Any]:
        """What an agent version freezes of it."""
        share = self.share()
        asked = {name: getattr(share, name) for name in Share.__slots__}
        return {
            "agent": self.agent,
            "tool": self.name,
            "scopes": sorted(self.scopes),
            "effect": str(self.effect),
            **asked,
        }


def stored_share(grant: Mapping[str, Any]) -> Share:
    """What a frozen call asks for."""
    return Share(**{name: grant.get(name) for name in Share.__slots__})


# --- as a tool -----------------------------------------------------------------------------


def register(agent: AgentDeclaration) -> None:
    """Make the agent callable: its tool stands in the registry from now on."""
    registry.register(spec_of(agent))


def _name(agent: str) -> str:
    return f"{LABEL}.{agent}"


def _wire_name(agent: str) -> str:
    return f"{LABEL}__{agent}"


def spec_of(agent: AgentDeclaration) -> ToolSpec:
    """The tool that a call of `agent` is. With problems it can neither be offered nor run."""
    model = agent.input_model or _Task
    schema, problems = strict_parameters(model)
    return ToolSpec(
        name=_name(agent.name),
        wire_name=_wire_name(agent.name),
        fn=_function(agent.name),
        description=agent.description or f"Ask the agent {agent.name}.",
        params_model=model,
        schema=schema,
        result_type=Any,
        effect=Effect.READ,
        contract=None,
        version=agent.version,
        identity=(),
        scope="run",
        horizon=None,
        resource=None,
        approval=Approval.never(),
        timeout=DEFAULTS.timeout,
        retry=Retry(max_attempts=1),
        scopes=(),
        redact=(),
        max_calls_per_run=None,
        accepted_is_done=False,
        repeatable=False,
        owner="",
        fenced_sends=False,
        compensates="",
        described=frozenset(model.model_fields),
        agent=agent.name,
        problems=problems + _bad_name(agent.name),
    )


_Task = create_model(
    "Task",
    __config__=ConfigDict(extra="forbid", frozen=True),
    task=(Annotated[str, StringConstraints(min_length=1, max_length=16_000)], ...),
)


def _function(name: str) -> Callable[..., NoReturn]:
    def call(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"a call of the agent {name} is a run, not a function")

    call.__qualname__ = f"call_{name}"
    return call


def _bad_name(name: str) -> tuple[Problem, ...]:
    fits = len(name) <= 50 and name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    said = f"the agent name {name!r} cannot be part of a tool's name"
    return () if fits else (Problem("E007", said),)


# --- the checks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in what an agent hands down."""

    code: str
    message: str


def findings(agent: AgentDeclaration, known: Known) -> list[Finding]:
    """E121 unknown, E122 cycle, E123 more powers than were handed down, E124 too deep, E125 no
    form as a tool, E126 two calls by one name.
    """
    found = [one for call in agent.calls for one in _of_call(agent, call, known)]
    return [*found, *_same_names(agent)]


def _same_names(agent: AgentDeclaration) -> Iterator[Finding]:
    """A call that the model could not tell from another one: whose terms would it have?"""
    calls = [call.wire_name for call in agent.calls]
    specs = (registry.get(name) for name in agent.tools)
    offered = Counter(calls + [spec.wire_name for spec in specs if spec is not None])
    for name in dict.fromkeys(calls):
        if offered[name] > 1:
            said = f"{offered[name]} of its tools have the name {name}, so that the model"
            yield Finding("E126", f"agent {agent.name!r}: {said} could not tell them apart")


def _of_call(agent: AgentDeclaration, call: AgentTool, known: Known) -> Iterator[Finding]:
    child = known(call.agent)
    where = f"agent {agent.name!r}: the call of {call.agent!r}"
    if child is None:
        yield Finding("E121", f"{where}: there is no such agent")
        return
    path = _cycle(child, known, (agent.name,))
    if path:
        yield Finding("E122", f"{where}: it leads back to itself: {' -> '.join(path)}")
        return
    depth = 1 + _depth(child, known)
    if depth > MAX_DEPTH:
        yield Finding("E124", f"{where}: {depth} levels of children, at most {MAX_DEPTH}")
    beyond = powers_of(child).beyond(call.powers)
    if beyond:
        yield Finding("E123", f"{where} hands down less than that agent uses: {beyond}")
    for problem in spec_of(child).problems:
        yield Finding("E125", f"{where}: {problem.message}")


def powers_of(agent: AgentDeclaration) -> Powers:
    """What its tools may do, and what it hands down itself."""
    found = Powers()
    for name in agent.tools:
        spec = registry.get(name)
        if spec is not None:
            found |= Powers(frozenset(spec.scopes), spec.effect)
    for call in agent.calls:
        found |= call.powers
    return found


def _cycle(agent: AgentDeclaration, known: Known, above: tuple[str, ...]) -> tuple[str, ...]:
    """The names on the way back to an agent above; nothing when there is none."""
    path = (*above, agent.name)
    if agent.name in above:
        return path
    for call in agent.calls:
        child = known(call.agent)
        found = _cycle(child, known, path) if child is not None else ()
        if found:
            return found
    return ()


def _depth(agent: AgentDeclaration, known: Known) -> int:
    """Levels below an agent that no cycle leads back to."""
    below = [child for call in agent.calls if (child := known(call.agent)) is not None]
    return max((1 + _depth(child, known) for child in below), default=0)
