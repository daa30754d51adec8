"""The checks of a tool declaration: E001-E008 refuse the tool, W101-W103 only tell.

E003, E004 and E008 about parameters come from reading the signature (`tools/parameters.py`).
"""

from __future__ import annotations

import http.client
import re
import typing
from typing import TYPE_CHECKING, Any

from agentcore.values import Effect, NoContract, Query
from tools.errors import Ambiguous, Rejected
from tools.strict import Problem
from tools.types import Secret

if TYPE_CHECKING:
    from tools.spec import ToolSpec

FROM_SIGNATURE = frozenset({"E003", "E004", "E008"})

_FUNCTION_NAME = re.compile(r"[a-z][a-z0-9_]{2,40}")
_WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AMBIGUOUS: tuple[type[BaseException], ...] = (
    TimeoutError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    EOFError,
    http.client.HTTPException,
    Ambiguous,
    Rejected,
)
# Exceptions of HTTP clients, by name: the package imports none of them.
_AMBIGUOUS_NAME = re.compile(
    r"(?i)(read|write|pool|^)_?timeout|timeout(error|exception)?$|reset|protocolerror|"
    r"^(read|write|close)error$|server|5\d\d|httperror|statuserror|^connectionerror$|"
    r"^requestexception$|^requesterror$|^transporterror$|^networkerror$|^clienterror$"
)
_PROVEN_NAME = re.compile(r"(?i)connect_?timeout")


def examine(spec: ToolSpec) -> tuple[Problem, ...]:
    """Every finding about a spec, errors first. A pure function of the declaration."""
    findings = [
        *_contract(spec),
        *_approval(spec),
        *_retry(spec),
        *_names(spec),
        *_warnings(spec),
    ]
    return tuple(Problem(code, message) for code, message in findings)


def _contract(spec: ToolSpec) -> typing.Iterator[tuple[str, str]]:
    if not spec.effect.is_write:
        if spec.contract is not None:
            yield "E001", "a READ has no contract; is it a WRITE?"
        if spec.compensates:
            yield "E001", "a compensation changes something: it is a WRITE"
        return
    if spec.contract is None:
        yield "E001", "a write needs a contract: Key, Natural, Query or NoContract"
    if spec.horizon is not None and (spec.horizon.total_seconds() <= 0 or spec.scope != "tenant"):
        yield "E001", "a horizon is a positive time, for an intent of the whole tenant"
    if not spec.identity:
        yield "E001", "a write needs an identity: parameter names, or key=function"
    if isinstance(spec.identity, tuple) and not any(
        problem.code in FROM_SIGNATURE for problem in spec.problems
    ):
        for name in spec.identity:
            if name not in spec.params_model.model_fields:
                yield "E001", f"identity names {name!r}, which is not a parameter"
    if spec.compensates == spec.name:
        yield "E001", "a tool does not compensate itself"
    if isinstance(spec.contract, Query) and spec.probe_fn is None:
        yield "E002", "Query means that the effect can be looked up: declare a probe"


def _approval(spec: ToolSpec) -> typing.Iterator[tuple[str, str]]:
    if spec.approval.mode != "never":
        if not spec.approval.role:
            yield "E006", "an approval names the role that decides"
        if spec.approval.count < 1:
            yield "E006", "an approval needs at least one decision"
        return
    if isinstance(spec.contract, NoContract):
        yield "E002", "NoContract: an approval is needed, nothing can be repeated or checked"
    if spec.effect is Effect.WRITE_IRREVERSIBLE:
        yield "E006", "WRITE_IRREVERSIBLE: an approval is needed"


def _retry(spec: ToolSpec) -> typing.Iterator[tuple[str, str]]:
    if not spec.effect.is_write:
        return
    for kind in spec.retry.on:
        if is_ambiguous(kind):
            yield (
                "E005",
                f"retry on {kind.__name__}: it does not prove that nothing was sent",
            )


def is_ambiguous(kind: type[BaseException]) -> bool:
    """Whether an exception of this class may be raised after the effect."""
    if any(issubclass(kind, bad) or issubclass(bad, kind) for bad in _AMBIGUOUS):
        return True
    name = kind.__name__
    return bool(_AMBIGUOUS_NAME.search(name)) and not _PROVEN_NAME.search(name)


def _names(spec: ToolSpec) -> typing.Iterator[tuple[str, str]]:
    function = spec.name.rpartition(".")[2]
    if not _FUNCTION_NAME.fullmatch(function):
        yield "E007", f"the function name {function!r} is not [a-z][a-z0-9_]{{2,40}}"
    if not _WIRE_NAME.fullmatch(spec.wire_name):
        yield "E007", f"the wire name {spec.wire_name!r} is not [A-Za-z0-9_-]{{1,64}}"


def _warnings(spec: ToolSpec) -> typing.Iterator[tuple[str, str]]:
    fields = spec.params_model.model_fields
    if spec.effect.is_write and spec.approval.mode != "never" and spec.preview_fn is None:
        yield "W101", "people approve this tool; a preview would show them what it changes"
    for name in spec.identity if isinstance(spec.identity, tuple) else ():
        if name in spec.redact or (name in fields and _is_secret(fields[name].annotation)):
            yield "W102", f"identity uses {name!r}, which is redacted: nobody can compare it"
        elif name in fields and fields[name].annotation is str and not fields[name].metadata:
            yield "W102", f"identity uses {name!r}, which is free text: give it a pattern or a type"
    missing = sorted(fields.keys() - spec.described)
    if missing:
        yield "W103", f"the docstring does not describe: {', '.join(missing)}"
    if not spec.description:
        yield "W103", "the docstring is empty: the model is told nothing about the tool"


def _is_secret(annotation: Any) -> bool:
    plain = typing.get_origin(annotation) or annotation
    return plain is Secret or any(_is_secret(item) for item in typing.get_args(annotation))
