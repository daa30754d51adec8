"""For tool developers: run a tool through all its gates, without the runtime and its tables."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from agentcore.values import AttemptOutcome, Json
from tools import clock
from tools.context import ToolContext
from tools.invocation import invoke_tool, judge, parse_arguments
from tools.spec import Tool, ToolSpec

_RUN = UUID("00000000-0000-7000-8000-000000000001")


def make_context(**changes: Any) -> ToolContext:
    """A context for tests: 20 s to answer, 5 s to send, a fixed key. Any field may be given."""
    now = clock.now()
    values: dict[str, Any] = {
        "run_id": _RUN,
        "tenant": "test",
        "principal": "tester",
        "idempotency_key": "test-key",
        "fence": 1,
        "deadline": now + 20,
        "send_by": now + 5,
    }
    return ToolContext(**{**values, **changes})


def call(
    tool: Tool[Any, Any] | ToolSpec, *, context: ToolContext | None = None, **arguments: Json
) -> AttemptOutcome:
    """Call a tool as a model would, with JSON arguments, and return what is known afterwards.

    Raises ValueError for a rejected tool, InvalidArguments for arguments that do not fit and
    PolicyError when one of the tool's own rules fails.
    """
    spec = tool if isinstance(tool, ToolSpec) else tool.spec
    if spec.rejected:
        raise ValueError(f"{spec.name}: {'; '.join(p.message for p in spec.problems)}")
    context = context or make_context()
    plain = parse_arguments(spec=spec, raw=json.dumps(arguments))
    judge(spec=spec, context=context, arguments=plain)
    return invoke_tool(spec=spec, context=context, arguments=plain)
