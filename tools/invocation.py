"""Calling the functions of tool developers: the only place where exceptions become outcomes."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from agentcore.canonical import normalize_params, storable
from agentcore.values import AttemptOutcome, Found, Json, OutcomeKind, Pending, Preview
from tools import clock
from tools.arguments import load_params, parse_arguments, redacted
from tools.context import ToolContext
from tools.errors import (
    Ambiguous,
    InvalidArguments,
    NotSent,
    PolicyError,
    Rejected,
    ReplyUnreadable,
)
from tools.faults import TRANSIENT, describe_exception, error_word, is_transient
from tools.fencing import only_the_transport
from tools.limits import TookTooLong, run_limited
from tools.spec import ToolSpec
from tools.storable import NotStorable, TooLarge, dump_json, one_line, to_json

__all__ = [
    "InvalidArguments",
    "Judgement",
    "PolicyError",
    "invoke_postcondition",
    "invoke_preview",
    "invoke_tool",
    "is_transient",
    "judge",
    "parse_arguments",
    "redacted",
]

JUDGE_SECONDS = 2.0
MAX_KEY_CHARS = 200
UNREADABLE = "RESULT_UNREADABLE"
TOO_LARGE = "TOO_LARGE"


# --- judging: identity, resource and approval of one call ----------------------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the developer's functions say about one call. `identity` is None for a read."""

    identity: dict[str, Json] | None
    resource_key: str
    asks: bool
    rule: str
    role: str
    count: int
    ttl: timedelta | None


def judge(
    *,
    spec: ToolSpec,
    context: ToolContext,
    arguments: dict[str, Json],
    seconds: float = JUDGE_SECONDS,
) -> Judgement:
    """Ask identity, resource and approval rule of a tool about normalized arguments.

    Raises PolicyError when one of them raises, takes longer than `seconds` in all, or answers
    with something else than it should; the call is then denied.
    """
    try:
        params = load_params(spec=spec, arguments=arguments)
        own = (spec.resource, spec.approval.condition, callable(spec.identity) or None)
        if own == (None, None, None):
            return _judge(spec, context, params, arguments)
        return run_limited(lambda: _judge(spec, context, params, arguments), seconds=seconds)
    except PolicyError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise PolicyError(f"{spec.name}: {describe_exception(exc, spec, arguments)}") from exc


def _judge(
    spec: ToolSpec, context: ToolContext, params: BaseModel, arguments: dict[str, Json]
) -> Judgement:
    resource = "" if spec.resource is None else spec.resource(context, params)
    if not isinstance(resource, str) or len(resource) > MAX_KEY_CHARS or not storable(resource):
        raise PolicyError(f"{spec.name}: a resource key is text of at most 200 characters")
    rule = spec.approval
    asks: Any = rule.mode == "always"
    if rule.condition is not None:
        asks = rule.condition(context, params)
        if not isinstance(asks, bool):
            raise PolicyError(f"{spec.name}: the approval rule must answer True or False")
    return Judgement(
        identity=_identity(spec, context, params, arguments),
        resource_key=resource,
        asks=asks,
        rule=rule.rule,
        role=rule.role,
        count=rule.count,
        ttl=rule.ttl,
    )


def _identity(
    spec: ToolSpec, context: ToolContext, params: BaseModel, arguments: dict[str, Json]
) -> dict[str, Json] | None:
    if not spec.effect.is_write:
        return None
    if isinstance(spec.identity, tuple):
        return {name: arguments[name] for name in spec.identity}
    given = spec.identity(context, params)
    if given is None or given in ("", (), [], {}) or inspect.isawaitable(given):
        raise PolicyError(f"{spec.name}: the key function gave nothing to tell intents apart")
    return {"key": normalize_params(to_json(given))}  # refuses floats: a key is exact


# --- acting --------------------------------------------------------------------------------


def invoke_tool(
    *, spec: ToolSpec, context: ToolContext, arguments: dict[str, Json]
) -> AttemptOutcome:
    """Run a tool once and say what is known afterwards. Never raises, except KeyboardInterrupt.

    A write runs in this thread, because its result must not be lost; a read is given up at the
    context's deadline.
    """
    try:
        params = load_params(spec=spec, arguments=arguments)
    except InvalidArguments as exc:
        return AttemptOutcome(
            OutcomeKind.REFUSED, error_class="stored_arguments", detail=one_line(exc.detail)
        )
    values = {name: getattr(params, name) for name in spec.params_model.model_fields}
    if spec.effect.is_write and clock.now() >= context.send_by:
        return AttemptOutcome(
            OutcomeKind.NO_EFFECT, error_class="send_by_passed", detail="too late to start"
        )

    def call() -> Any:
        with only_the_transport(watch=spec.fenced_sends):
            return _finish(spec.fn(context, **values), context)

    try:
        result = call() if spec.effect.is_write else run_limited(call, seconds=context.remaining)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  (whatever a tool raises is an outcome)
        return _outcome_of(exc, spec, arguments)
    return _outcome_of_result(result, spec)


def _finish(value: Any, context: ToolContext) -> Any:
    """The value itself, or what its coroutine returns before the deadline."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        left = None if math.isinf(context.deadline) else context.remaining
        return await asyncio.wait_for(value, left)

    return asyncio.run(wait())


def _outcome_of(exc: BaseException, spec: ToolSpec, arguments: dict[str, Json]) -> AttemptOutcome:
    detail = describe_exception(exc, spec, arguments)
    word = error_word(exc)
    wait = exc.retry_after if isinstance(exc, NotSent | Ambiguous | Rejected) else None
    kind = OutcomeKind.AMBIGUOUS if spec.effect.is_write else OutcomeKind.NO_EFFECT
    if isinstance(exc, Rejected):
        kind = OutcomeKind.REFUSED
    elif isinstance(exc, NotSent) or (spec.effect.is_write and isinstance(exc, spec.retry.on)):
        kind = OutcomeKind.NO_EFFECT
    elif spec.effect.is_write and isinstance(exc, ReplyUnreadable) and exc.effect_is_certain:
        return AttemptOutcome(OutcomeKind.SUCCESS, _unreadable(""), error_class=word, detail=detail)
    if not spec.effect.is_write and kind is OutcomeKind.NO_EFFECT and _passing(exc):
        word = TRANSIENT + word
    return AttemptOutcome(kind, error_class=word[:80], detail=detail, retry_after=wait)


def _passing(exc: BaseException) -> bool:
    return isinstance(exc, NotSent | Ambiguous | OSError | TookTooLong)


def _outcome_of_result(result: Any, spec: ToolSpec) -> AttemptOutcome:
    reference = ""
    if isinstance(result, Pending):
        detail = one_line(result.detail)
        if not spec.accepted_is_done:
            return AttemptOutcome(OutcomeKind.PENDING, {"accepted": True}, detail=detail)
        return AttemptOutcome(OutcomeKind.SUCCESS, {"accepted": True}, detail=detail)
    if isinstance(result, Found):
        result, reference = result.result, one_line(result.reference, limit=200)
    try:
        if spec.result_type is not Any:
            adapter = _adapter_of(spec)
            plain = to_json(dump_json(adapter, adapter.validate_python(result)))
        else:
            plain = to_json(result)
    except TooLarge as exc:
        return AttemptOutcome(
            OutcomeKind.SUCCESS, _unreadable(exc.preview), TOO_LARGE, one_line(exc), reference
        )
    except Exception as exc:  # noqa: BLE001  (validators are the developer's code)
        kind = OutcomeKind.SUCCESS if spec.effect.is_write else OutcomeKind.NO_EFFECT
        shown = _unreadable(one_line(f"{type(result).__name__}: {exc}"))
        return AttemptOutcome(kind, shown, UNREADABLE, one_line(exc), reference)
    return AttemptOutcome(OutcomeKind.SUCCESS, plain, reference=reference)


def _adapter_of(spec: ToolSpec) -> TypeAdapter[Any]:
    """What checks and dumps the results of a tool."""
    try:
        return _adapter(spec.fn, spec.result_type)
    except TypeError:  # an annotation that cannot be hashed
        return TypeAdapter(spec.result_type)


@lru_cache(maxsize=1024)
def _adapter(_: Callable[..., Any], result_type: Any) -> TypeAdapter[Any]:
    """Made once for each tool: two types that are equal may differ in order (`int | str`)."""
    return TypeAdapter(result_type)


def _unreadable(preview: str) -> Json:
    return {"unreadable": True, "preview": preview}


# --- reading around a write ----------------------------------------------------------------


def invoke_preview(
    *, spec: ToolSpec, context: ToolContext, arguments: dict[str, Json]
) -> AttemptOutcome:
    """Run the preview: SUCCESS with summary, before, after, block and version, or why not."""

    def read(params: BaseModel) -> Json:
        preview = _call(spec.preview_fn, spec, context, params)
        if not isinstance(preview, Preview):
            raise NotStorable(f"the preview returned {type(preview).__name__}, not a Preview")
        block = (preview.block,) if isinstance(preview.block, str) else preview.block
        return {
            "summary": str(preview.summary),
            "before": preview.before,
            "after": preview.after,
            "block": [str(item) for item in block],
            "version": str(preview.version),
        }

    outcome = _invoke_reader(read, spec, context, arguments)
    if outcome.kind is OutcomeKind.SUCCESS and len(outcome.result["version"]) > MAX_KEY_CHARS:
        return AttemptOutcome(
            OutcomeKind.NO_EFFECT, error_class=TOO_LARGE, detail="the version is longer than 200"
        )
    return outcome


def invoke_postcondition(
    *, spec: ToolSpec, context: ToolContext, arguments: dict[str, Json], result: Json
) -> AttemptOutcome:
    """Run the post-condition: SUCCESS with `{"ok": bool}`, or why it could not be asked."""

    def read(params: BaseModel) -> Json:
        typed = result
        if spec.result_type is not Any:
            try:
                typed = _adapter_of(spec).validate_json(json.dumps(result))
            except ValueError:
                typed = result  # unreadable or of an older version: the function sees plain JSON
        answer = _call(spec.postcondition_fn, spec, context, params, typed)
        if not isinstance(answer, bool):
            raise NotStorable(f"the post-condition returned {type(answer).__name__}, not a bool")
        return {"ok": answer}

    return _invoke_reader(read, spec, context, arguments)


def _call(function: Callable[..., Any] | None, spec: ToolSpec, ctx: ToolContext, *args: Any) -> Any:
    if function is None:
        raise NotStorable(f"{spec.name} declares no such function")
    return _finish(function(ctx, *args), ctx)


def _invoke_reader(
    read: Callable[[BaseModel], Json],
    spec: ToolSpec,
    context: ToolContext,
    arguments: dict[str, Json],
) -> AttemptOutcome:
    try:
        params = load_params(spec=spec, arguments=arguments)
        limit = min(context.remaining, spec.timeout)
        return AttemptOutcome(
            OutcomeKind.SUCCESS, to_json(run_limited(lambda: read(params), seconds=limit))
        )
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  (the developer's function may raise anything)
        detail = describe_exception(exc, spec, arguments)
        word = error_word(exc)
        if isinstance(exc, Rejected):
            return AttemptOutcome(OutcomeKind.REFUSED, error_class=word, detail=detail)
        if _passing(exc):
            word = TRANSIENT + word
        return AttemptOutcome(OutcomeKind.NO_EFFECT, error_class=word[:80], detail=detail)
