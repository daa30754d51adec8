"""A probe answers, or it is inconclusive; it never takes the caller down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentcore.values import ProbeVerdict
from tools import (
    Absent,
    Effect,
    Found,
    Inconclusive,
    NotSent,
    Pending,
    Query,
    ToolContext,
    clock,
    registry,
    tool,
)
from tools.probes import invoke_probe
from tools.testing import make_context
from tools.types import Money


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def probe(body: Callable[..., Any], **context: Any) -> ProbeVerdict:
    @tool(
        effect=Effect.WRITE,
        contract=Query(settle=timedelta(minutes=1)),
        identity=("number",),
        app_label="shop",
    )
    def refund(ctx: ToolContext, number: int) -> None:
        """Refund."""

    refund.probe(after=[1])(body)
    return invoke_probe(spec=refund.spec, context=make_context(**context), arguments={"number": 7})


def test_verdicts_pass_and_a_found_result_can_be_stored() -> None:
    assert probe(lambda ctx, p: Absent()) == Absent()
    assert probe(lambda ctx, p: Pending("a\nb")) == Pending("a b")
    found = probe(lambda ctx, p: Found({"n": p.number, "m": Money("1 EUR"), "x": "\x00"}, "R-1"))
    assert found == Found({"n": 7, "m": "1.00 EUR", "x": "\ufffd"}, "R-1")
    other = probe(lambda ctx, p: Found({}, fingerprint_matches=False))
    assert other == Found({}, fingerprint_matches=False)
    assert isinstance(probe(lambda ctx, p: Found(object())), Found)
    assert isinstance(probe(lambda ctx, p: Found("x" * 300_000)), Found)


def test_an_async_probe_is_awaited() -> None:
    async def ask(ctx: ToolContext, p: Any) -> ProbeVerdict:
        return Absent()

    assert probe(ask) == Absent()


@pytest.mark.parametrize("exc", [NotSent("x"), ValueError("x"), TimeoutError(), SystemExit(1)])
def test_a_probe_that_fails_has_said_nothing(exc: BaseException) -> None:
    def body(ctx: ToolContext, p: Any) -> ProbeVerdict:
        raise exc

    assert isinstance(probe(body), Inconclusive)


@pytest.mark.parametrize("answer", [None, True, {"found": True}, Found])
def test_an_answer_that_is_no_verdict_is_inconclusive(answer: Any) -> None:
    assert isinstance(probe(lambda ctx, p: answer), Inconclusive)


def test_a_probe_that_hangs_is_inconclusive() -> None:
    gate = threading.Event()
    verdict = probe(lambda ctx, p: gate.wait(5), deadline=clock.now() + 0.1)
    gate.set()
    assert isinstance(verdict, Inconclusive)
    assert "no answer" in verdict.detail


def test_a_tool_without_a_probe_is_not_asked() -> None:
    @tool(effect=Effect.READ, app_label="shop")
    def look(ctx: ToolContext) -> None:
        """Look."""

    with pytest.raises(ValueError, match="no probe"):
        invoke_probe(spec=look.spec, context=make_context(), arguments={})
