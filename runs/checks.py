"""Django system checks for tools: `manage.py check` fails when a declaration breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Advice

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
