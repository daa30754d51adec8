"""Asking the downstream about an effect. A question that fails is Inconclusive, never an answer."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Any

from agentcore.values import (
    Absent,
    Conflict,
    Found,
    Inconclusive,
    Json,
    NotDone,
    Pending,
    ProbeVerdict,
)
from tools.arguments import load_params
from tools.context import ToolContext
from tools.faults import describe_exception
from tools.limits import run_limited
from tools.spec import ToolSpec
from tools.storable import NotStorable, TooLarge, one_line, to_json


def invoke_probe(
    *, spec: ToolSpec, context: ToolContext, arguments: dict[str, Json]
) -> ProbeVerdict:
    """Run the probe of a tool that has one, until the context's deadline.

    An exception, a timeout and an answer that is no verdict are Inconclusive. The result inside
    Found is JSON that can be stored.
    """
    probe = spec.probe_fn
    if probe is None:
        raise ValueError(f"{spec.name} has no probe")

    def ask() -> Any:
        params = load_params(spec=spec, arguments=arguments)
        answer = probe(context, params)
        return asyncio.run(_await(answer)) if inspect.isawaitable(answer) else answer

    try:
        verdict = run_limited(ask, seconds=min(context.remaining, spec.timeout))
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  (a probe that failed has said nothing)
        return Inconclusive(describe_exception(exc, spec, arguments))
    if isinstance(verdict, Found):
        return _storable(verdict)
    if isinstance(verdict, Absent):
        return verdict
    if isinstance(verdict, Pending | Inconclusive | Conflict | NotDone):
        return replace(verdict, detail=one_line(verdict.detail))
    return Inconclusive(f"the probe returned {type(verdict).__name__}, which is no verdict")


async def _await(answer: Any) -> Any:
    return await answer


def _storable(found: Found) -> Found:
    try:
        result = to_json(found.result)
    except TooLarge as exc:
        result = {"unreadable": True, "preview": exc.preview}
    except NotStorable as exc:
        result = {"unreadable": True, "preview": one_line(exc)}
    return replace(
        found,
        result=result,
        reference=one_line(found.reference, limit=200),
        fingerprint_matches=found.fingerprint_matches is True,
    )
