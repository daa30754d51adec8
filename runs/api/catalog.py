"""What is installed: the agents with their versions, and the tools with what they may do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import Q
from pydantic import Field, JsonValue
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.values import Contract, Effect
from runs import switches
from runs.agents import AgentDeclaration, all_agents, effect_of, get_agent
from runs.api import docs
from runs.api.asking import no_parameters, page_and
from runs.api.auth import caller_of
from runs.api.base import ApiView
from runs.api.ids import parse_id, public_id
from runs.api.pagination import cursor_of, list_json
from runs.api.schemas import ListShape, Shape
from runs.control_models import Switch
from runs.controls import AGENT
from runs.listing import page as page_of_rows
from runs.models import AgentVersion
from runs.refusals import Refused
from runs.starting import Caller
from tools import registry
from tools.spec import ToolSpec


class AgentLimits(Shape):
    max_turns: int
    max_actions: int
    max_seconds: int


class AgentPause(Shape):
    """Who switched it off, when and why."""

    by: str
    at: datetime
    reason: str


class Agent(Shape):
    """A declared agent, as the code that is installed now declares it."""

    id: str = Field(description="Its name.")
    object: Literal["agent"]
    name: str
    version: str
    model: str
    tools: list[str]
    input_schema: JsonValue = Field(description="JSON Schema of `input`; null: any JSON.")
    output_schema: JsonValue
    limits: AgentLimits
    paused: AgentPause | None = Field(description="While it is switched off, for all tenants.")


class AgentList(ListShape[Agent]):
    """Agents by name."""


class AgentVersionShape(Shape):
    """An agent as it was when a run first used it. Immutable; runs keep theirs."""

    id: str
    object: Literal["agent_version"]
    name: str
    version: str
    digest: str
    created_at: datetime


class AgentVersionList(ListShape[AgentVersionShape]):
    """Versions, newest first."""


class ToolAnnotations(Shape):
    """Hints in the words of MCP."""

    readOnlyHint: bool  # noqa: N815  (the words of MCP)
    destructiveHint: bool  # noqa: N815
    idempotentHint: bool  # noqa: N815
    openWorldHint: bool  # noqa: N815


class ToolPolicy(Shape):
    """Who is asked before it runs. `scopes`: what a run must hold."""

    approval: str
    role: str | None
    required_count: int
    scopes: list[str]
    max_calls_per_run: int | None


class ToolGuarantee(Shape):
    """What is known after a write without a reply, and what keeps it from happening twice."""

    contract: str | None
    text: str
    retention_seconds: int | None
    settle_seconds: int | None
    probe: bool
    preview: bool
    postcondition: bool


class Tool(Shape):
    """A declared tool."""

    id: str = Field(description="Its name.")
    object: Literal["tool"]
    name: str
    wire_name: str
    version: str
    owner: str | None
    description: str
    parameters: JsonValue = Field(description="JSON Schema of the arguments.")
    effect: str = Field(
        description="The most that it may do; of `agents.NAME`, the most that this agent may do."
    )
    annotations: ToolAnnotations
    guarantee: ToolGuarantee
    policy: ToolPolicy
    timeout_seconds: float


class ToolList(ListShape[Tool]):
    """Tools by name."""


def agents_json(agents: Sequence[AgentDeclaration]) -> list[dict[str, Any]]:
    """Agents as their JSON says them."""
    off = {row.name: row for row in switches.all_off() if row.kind == AGENT}
    return [_agent_json(agent, off.get(agent.name)) for agent in agents]


def _agent_json(agent: AgentDeclaration, off: Switch | None) -> dict[str, Any]:
    shape = Agent(
        id=agent.name,
        object="agent",
        name=agent.name,
        version=agent.version,
        model=agent.model,
        tools=list(agent.tool_names),
        input_schema=agent.input_model.model_json_schema() if agent.input_model else None,
        output_schema=agent.output_model.model_json_schema() if agent.output_model else None,
        limits=AgentLimits(
            max_turns=agent.budget.turns,
            max_actions=agent.budget.actions,
            max_seconds=int(agent.budget.wall.total_seconds()),
        ),
        paused=AgentPause(by=off.changed_by, at=off.changed_at, reason=off.reason) if off else None,
    )
    return shape.model_dump(mode="json")


GUARANTEES = {
    "KEY": "The downstream does one business intent once for our key; resending is safe while it "
    "remembers the key.",
    "NATURAL": "The write is absolute: sending it twice has the effect of once.",
    "QUERY": "The effect can be looked up; it is sent again only after its absence is proven.",
    "NONE": "Nothing is guaranteed: one attempt ever, and a person settles an unknown outcome.",
}


OF_AGENT = (
    "A run of another agent: its tools guarantee what each of them does, and it settles its writes "
    "before it ends."
)


def tool_json(spec: ToolSpec) -> dict[str, Any]:
    """A tool as its JSON says it."""
    effect = effect_of(spec)
    shape = Tool(
        id=spec.name,
        object="tool",
        name=spec.name,
        wire_name=spec.wire_name,
        version=spec.version,
        owner=spec.owner or None,
        description=spec.description,
        parameters=spec.schema,
        effect=effect.lower(),
        annotations=_annotations(spec, effect),
        guarantee=_guarantee(spec, spec.contract),
        policy=_policy(spec),
        timeout_seconds=spec.timeout,
    )
    return shape.model_dump(mode="json")


def _annotations(spec: ToolSpec, effect: Effect) -> ToolAnnotations:
    contract = spec.contract.name if spec.contract else ""
    return ToolAnnotations(
        readOnlyHint=not effect.is_write,
        destructiveHint=effect is Effect.WRITE_IRREVERSIBLE,
        idempotentHint=not effect.is_write or contract in ("KEY", "NATURAL"),
        openWorldHint=True,
    )


def _guarantee(spec: ToolSpec, contract: Contract | None) -> ToolGuarantee:
    name = contract.name if contract else None
    return ToolGuarantee(
        contract=name.lower() if name else None,
        text=GUARANTEES[name] if name else OF_AGENT if spec.agent else "A read has no effect.",
        retention_seconds=_seconds(getattr(contract, "retention", None)),
        settle_seconds=_seconds(getattr(contract, "settle", None)),
        probe=spec.probe_fn is not None,
        preview=spec.preview_fn is not None,
        postcondition=spec.postcondition_fn is not None,
    )


def _seconds(time: timedelta | None) -> int | None:
    return None if time is None else int(time.total_seconds())


def _policy(spec: ToolSpec) -> ToolPolicy:
    asks = spec.approval.mode != "never"
    return ToolPolicy(
        approval=spec.approval.rule,
        role=spec.approval.role or None,
        required_count=spec.approval.count if asks else 0,
        scopes=list(spec.scopes),
        max_calls_per_run=spec.max_calls_per_run,
    )


def _agents(caller: Caller) -> list[AgentDeclaration]:
    return [item for item in all_agents() if not caller.agents or item.name in caller.agents]


def agent_or_404(request: Request, name: str) -> AgentDeclaration:
    """The agent of a path. Raises `Refused` (not_found)."""
    agent = get_agent(name)
    if agent is None or agent not in _agents(caller_of(request)):
        raise Refused(
            code="not_found",
            detail="There is no agent with this name that the caller may see. GET /agents lists "
            "them.",
        )
    return agent


def _named(items: list[Any], after: str | None, limit: int) -> tuple[list[Any], bool]:
    """A page of things that are ordered by their name, which is also the cursor."""
    rest = [item for item in items if after is None or item.name > after]
    return rest[:limit], len(rest) > limit


NAMED_PAGE = [
    docs.query("after", "`last_id` of the page before; left out for the first page."),
    docs.PAGE[1],
]
AGENT_NAME = docs.name_in_path("name", "The name of the agent.")


class AgentsView(ApiView):
    """`/agents`"""

    scopes = {"GET": "agents:read"}

    @docs.operation(
        "list_agents",
        summary="List the agents",
        tag="agents",
        params=NAMED_PAGE,
        ok={200: (AgentList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request)
        found, more = _named(_agents(caller_of(request)), page.after, page.limit)
        return Response(list_json(agents_json(found), more))


class AgentView(ApiView):
    """`/agents/{name}`"""

    scopes = {"GET": "agents:read"}

    @docs.operation(
        "get_agent",
        summary="Get an agent with its input and output schema",
        tag="agents",
        params=[AGENT_NAME],
        ok={200: (Agent, "The agent.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, name: str) -> Response:
        no_parameters(request)
        return Response(agents_json([agent_or_404(request, name)])[0])


class AgentVersionsView(ApiView):
    """`/agents/{name}/versions`"""

    scopes = {"GET": "agents:read"}

    @docs.operation(
        "list_agent_versions",
        summary="List the versions of an agent that runs have used",
        tag="agents",
        params=[AGENT_NAME, *docs.PAGE],
        ok={200: (AgentVersionList, "One page.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, name: str) -> Response:
        page = page_and(request)
        agent = agent_or_404(request, name)
        after = cursor_of(page, lambda text: parse_id("agv", text))
        rows = AgentVersion.objects.filter(name=agent.name).order_by("-id")
        follows = None if after is None else Q(id__lt=after)
        found, more = page_of_rows(rows, follows, page.limit)
        return Response(list_json([_version_json(row) for row in found], more))


def _version_json(row: AgentVersion) -> dict[str, Any]:
    return AgentVersionShape(
        id=public_id("agv", row.id),
        object="agent_version",
        name=row.name,
        version=row.version,
        digest=row.digest,
        created_at=row.created_at,
    ).model_dump(mode="json")


class ToolsView(ApiView):
    """`/tools`"""

    scopes = {"GET": "tools:read"}

    @docs.operation(
        "list_tools",
        summary="List the tools",
        tag="tools",
        params=NAMED_PAGE,
        ok={200: (ToolList, "One page.")},
    )
    def get(self, request: Request) -> Response:
        page = page_and(request)
        found, more = _named(list(registry.all_tools()), page.after, page.limit)
        return Response(list_json([tool_json(item) for item in found], more))


class ToolView(ApiView):
    """`/tools/{name}`"""

    scopes = {"GET": "tools:read"}

    @docs.operation(
        "get_tool",
        summary="Get a tool: schema, effect, guarantee and policy",
        tag="tools",
        params=[docs.name_in_path("name", "The name of the tool, `app.function`.")],
        ok={200: (Tool, "The tool.")},
        problems={404: "`not_found`"},
    )
    def get(self, request: Request, name: str) -> Response:
        no_parameters(request)
        spec = registry.get(name)
        if spec is None:
            raise Refused(
                code="not_found",
                detail="There is no usable tool with this name. GET /tools lists them.",
            )
        return Response(tool_json(spec))
