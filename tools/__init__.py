"""Declare typed Python functions as tools: schema, effect, contract, approval, probe.

`from tools import tool, ToolContext, Effect, Key, Approval, ...` is all that a tool app needs.
"""

from __future__ import annotations

from agentcore.values import (
    Absent,
    Conflict,
    Effect,
    Found,
    Inconclusive,
    Key,
    Natural,
    NoContract,
    NotDone,
    Pending,
    Preview,
    Query,
)
from tools.context import ToolContext
from tools.errors import Ambiguous, NotSent, Rejected
from tools.spec import Approval, ApprovalRule, Retry, Tool, ToolSpec, tool

__all__ = [
    "Absent",
    "Ambiguous",
    "Approval",
    "ApprovalRule",
    "Conflict",
    "Effect",
    "Found",
    "Inconclusive",
    "Key",
    "Natural",
    "NoContract",
    "NotDone",
    "NotSent",
    "Pending",
    "Preview",
    "Query",
    "Rejected",
    "Retry",
    "Tool",
    "ToolContext",
    "ToolSpec",
    "tool",
]
