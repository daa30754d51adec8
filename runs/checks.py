"""Django system checks for tools: `manage.py check` fails when a declaration breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Advice

from agentcore.throttle import EACH
from runs import calling
from runs.agents import all_agents, get_agent
from runs.doctor import settings_findings
from runs.throttling import known_downstreams
from tools import registry


@register("agentcore")
def check_tools(
    *,
    app_configs: Sequence[AppConfig] | None = None,  # noqa: ARG001  (Django's signature)
    **kwargs: Any,  # noqa: ARG001
) -> list[CheckMessage]:
    """E001-E008 refuse a tool, W101-W103 only tell. The rules are in `tools/rules.py`."""
    messages: list[CheckMessage] = []
    for finding in registry.findings():
        kind = Error if finding.code.startswith("E") else Advice
        messages.append(kind(finding.message, obj=finding.tool, id=f"agentcore.{finding.code}"))
    return messages


@register("agentcore")
def check_agents(
    *,
    app_configs: Sequence[AppConfig] | None = None,  # noqa: ARG001  (Django's signature)
    **kwargs: Any,  # noqa: ARG001
) -> list[CheckMessage]:
    """E120: an agent names a tool that is not registered, so none of its runs can start."""
    return [
        Error(
            f"agent {agent.name!r} names a tool {name!r} that is not registered",
            hint=f"registered: {', '.join(tool.name for tool in registry.all_tools()) or 'none'}",
            obj=agent.name,
            id="agentcore.E120",
        )
        for agent in all_agents()
        for name in agent.tools
        if registry.get(name) is None
    ]


@register("agentcore")
def check_calls(
    *,
    app_configs: Sequence[AppConfig] | None = None,  # noqa: ARG001  (Django's signature)
    **kwargs: Any,  # noqa: ARG001
) -> list[CheckMessage]:
    """E121-E126: an agent calls another one in a way that may not be (`runs/calling.py`)."""
    return [
        Error(found.message, obj=agent.name, id=f"agentcore.{found.code}")
        for agent in all_agents()
        for found in calling.findings(agent, get_agent)
    ]


@register("agentcore")
def check_settings(
    *,
    app_configs: Sequence[AppConfig] | None = None,  # noqa: ARG001  (Django's signature)
    **kwargs: Any,  # noqa: ARG001
) -> list[CheckMessage]:
    """E101 refuses settings that break a promise (a worker does not start with them either); W110
    only tells. `manage.py doctor` looks at the rest."""
    return [
        (Error if finding.level == "FAIL" else Advice)(
            f"{finding.name}: {finding.said}",
            hint=finding.cure,
            id="agentcore.E101" if finding.level == "FAIL" else "agentcore.W110",
        )
        for finding in settings_findings()
        if finding.level != "ok"
    ]


@register("agentcore")
def check_limits(
    *,
    app_configs: Sequence[AppConfig] | None = None,  # noqa: ARG001  (Django's signature)
    **kwargs: Any,  # noqa: ARG001
) -> list[CheckMessage]:
    """W111: a limit of a downstream that no tool and no agent uses limits nothing."""
    known = known_downstreams()
    return [
        Advice(
            f"AGENTCORE_LIMITS: nothing calls {limit.downstream!r}, so this limit bounds nothing",
            hint=f"known downstreams: {', '.join(sorted(known)) or 'none'}",
            id="agentcore.W111",
        )
        for limit in settings.AGENTCORE_OPTIONS.limits
        if limit.downstream not in (None, EACH, *known)
    ]
