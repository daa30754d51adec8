"""What `manage.py check` refuses of agents that call each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel

from agentcore.values import Effect
from runs import agents
from runs.agents import AgentTool, agent
from runs.checks import check_agents, check_calls
from tests.runs.acting import Downstream, read_tool, write_tool
from tools import registry


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No agent is declared, no tool registered."""
    monkeypatch.setattr(agents, "_AGENTS", {})
    with registry.isolated():
        read_tool(dict)
        write_tool(Downstream(), scopes=("shop.pay",))
        yield


def _agent(name: str, *tools: str | AgentTool, **options: Any) -> agents.AgentDeclaration:
    return agent(name=name, version="1", instructions="", model="m", tools=list(tools), **options)


def _codes() -> list[str]:
    return [str(message.id).removeprefix("agentcore.") for message in check_calls()]


def test_a_call_is_a_tool_whichever_agent_is_declared_first(alone: None) -> None:
    boss = _agent("boss", "shop.look", AgentTool(agent="late"))
    assert _codes() == ["E121"]
    _agent("late", "shop.look", description="Looks.")
    assert (_codes(), check_agents()) == ([], [])
    offered = [spec.wire_name for spec in boss.specs()]
    assert offered == ["shop__look", "agents__late"]
    spec = registry.get("agents.late")
    assert spec is not None
    assert (spec.agent, spec.effect, spec.description) == ("late", Effect.READ, "Looks.")
    assert list(spec.schema["properties"]) == ["task"]
    assert boss.tool_names == ("shop.look", "agents.late")


def test_an_unknown_agent_is_refused_at_the_start_as_well(alone: None) -> None:
    boss = _agent("boss", AgentTool(agent="nobody"))
    assert _codes() == ["E121"]
    with pytest.raises(ImproperlyConfigured, match=r"agents\.nobody"):
        boss.specs()


@pytest.mark.requirement("R81")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({}, "the scope shop.pay, the effect WRITE"),
        ({"effect": Effect.WRITE}, "the scope shop.pay"),
        ({"scopes": ("shop.pay",)}, "the effect WRITE"),
    ],
)
def test_a_child_has_no_power_that_is_not_handed_down(
    alone: None, call: dict[str, Any], said: str
) -> None:
    _agent("payer", "shop.pay")
    boss = _agent("boss", AgentTool(agent="payer", **call))
    assert _codes() == ["E123"]
    with pytest.raises(ImproperlyConfigured, match=said):
        boss.specs()


def test_what_a_child_hands_down_is_a_power_of_it(alone: None) -> None:
    full = {"scopes": ("shop.pay",), "effect": Effect.WRITE}
    _agent("payer", "shop.pay")
    _agent("middle", AgentTool(agent="payer", **full))
    _agent("boss", AgentTool(agent="middle"))
    assert _codes() == ["E123"]
    _agent("chief", AgentTool(agent="middle", **full))
    assert _codes() == ["E123"], "of the boss alone"


def test_a_cycle_is_refused(alone: None) -> None:
    _agent("one", AgentTool(agent="two"))
    _agent("two", AgentTool(agent="one"))
    assert _codes() == ["E122", "E122"]
    _agent("self", AgentTool(agent="self"))
    assert _codes() == ["E122", "E122", "E122"]


def test_four_levels_are_too_deep(alone: None) -> None:
    for n in range(4):
        _agent(f"level{n}", AgentTool(agent=f"level{n + 1}"))
    _agent("level4", "shop.look")
    assert _codes() == ["E124"]


def test_an_input_without_a_strict_schema_is_no_call(alone: None) -> None:
    class Loose(BaseModel):
        anything: dict[str, Any]

    _agent("loose", "shop.look", input=Loose)
    _agent("boss", AgentTool(agent="loose"))
    assert _codes() == ["E125"]
    assert registry.get("agents.loose") is None


@pytest.mark.requirement("R81")
def test_two_calls_by_one_name_are_refused(alone: None) -> None:
    """Whose scopes, and whose part of the budget, would the call have?"""
    _agent("payer", "shop.pay")
    full = {"scopes": ("shop.pay",), "effect": Effect.WRITE}
    small, large = (AgentTool(agent="payer", turns=turns, **full) for turns in (1, 9))
    boss = _agent("boss", small, large)
    assert _codes() == ["E126"]
    with pytest.raises(ImproperlyConfigured, match="2 of its tools have the name agents__payer"):
        boss.specs()


def test_a_call_is_not_named_as_a_tool_as_well(alone: None) -> None:
    _agent("late", "shop.look")
    _agent("boss", "agents.late", AgentTool(agent="late"))
    assert _codes() == ["E126"]


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"tokens": True}, {"cost": "0.5"}])
def test_an_amount_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"agent x|budget"):
        AgentTool(agent="x", **wrong)
