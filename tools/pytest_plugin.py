"""Fixtures for the tests of tools: `pytest_plugins = ["tools.pytest_plugin"]` in a conftest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from agentcore.values import AttemptOutcome
from tools.context import ToolContext
from tools.testing import call, make_context


@pytest.fixture
def tool_context() -> Callable[..., ToolContext]:
    """Makes the context of one call: a run and an idempotency key of its own, 20 s to answer."""

    def make(**changes: Any) -> ToolContext:
        fresh = {"run_id": uuid4(), "idempotency_key": f"ac1_{uuid4().hex}"}
        return make_context(**{**fresh, **changes})

    return make


@pytest.fixture
def tool_call(tool_context: Callable[..., ToolContext]) -> Callable[..., AttemptOutcome]:
    """Calls a tool as a model would, with JSON arguments and a key of its own."""

    def run(tool: Any, *, context: ToolContext | None = None, **arguments: Any) -> AttemptOutcome:
        return call(tool, context=context or tool_context(), **arguments)

    return run
