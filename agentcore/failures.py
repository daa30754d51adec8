"""Which layer a run broke in: the first thing that an operator wants to know."""

from __future__ import annotations

from enum import StrEnum

from agentcore.lifecycle import StopReason


class Layer(StrEnum):
    """Where it broke."""

    MODEL = "model"
    TOOL = "tool"
    PERMISSION = "permission"
    CONTEXT = "context"
    RUNTIME = "runtime"
    GUARDRAIL = "guardrail"


_LAYERS = {
    StopReason.MODEL_ERROR: Layer.MODEL,
    StopReason.TOOL_ERROR: Layer.TOOL,
    StopReason.PERMISSION: Layer.PERMISSION,
    StopReason.CONTEXT_ERROR: Layer.CONTEXT,
    StopReason.RUNTIME_ERROR: Layer.RUNTIME,
    StopReason.GUARDRAIL: Layer.GUARDRAIL,
}


def layer_of(reason: StopReason) -> Layer | None:
    """The layer of a failure; None for an end that is no failure (limit, refusal, cancel)."""
    return _LAYERS.get(reason)
