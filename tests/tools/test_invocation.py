"""Whatever a tool does, one outcome comes back, and it says no more than is known."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from agentcore.values import AttemptOutcome, OutcomeKind
from tests.tools.loopback import answers, downstream, reply
from tools import (
    Ambiguous,
    Effect,
    Found,
    Key,
    NotSent,
    Pending,
    Rejected,
    Retry,
    Tool,
    ToolContext,
    clock,
    registry,
    tool,
)
from tools.invocation import (
    invoke_tool,
    is_transient,
)
from tools.testing import call, make_context
from tools.types import Money, Secret

KEY = Key(retention=timedelta(days=1))
OrderId = Annotated[str, Field(pattern="^O-[0-9]+$")]
SUCCESS, NO_EFFECT, REFUSED, AMBIGUOUS, PENDING = OutcomeKind


class Refund(BaseModel):
    refund_id: str
    amount: Money
    pin: Secret[str] | None = None


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def write(body: Callable[[ToolContext], Any], **options: Any) -> Tool[Any, Any]:
    def refund(ctx: ToolContext, order_id: OrderId, pin: Secret[str] | None = None) -> Any:
        return body(ctx)

    sound: dict[str, Any] = {"effect": Effect.WRITE, "contract": KEY, "identity": ("order_id",)}
    return tool(app_label="shop", **{**sound, **options})(refund)


def read(body: Callable[[ToolContext], Any], **options: Any) -> Tool[Any, Any]:
    return write(body, effect=Effect.READ, contract=None, identity=(), **options)


def run(declared: Tool[Any, Any], **context: Any) -> AttemptOutcome:
    return call(declared, context=make_context(**context), order_id="O-1")


def raises(exc: BaseException) -> Callable[[ToolContext], Any]:
    def body(ctx: ToolContext) -> Any:
        raise exc

    return body


# --- writes --------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    ("exc", "kind", "word"),
    [
        (NotSent("port closed", error_class="connection_refused"), NO_EFFECT, "connection_refused"),
        (Rejected("order is closed"), REFUSED, "rejected"),
        (Ambiguous("lost", error_class="http_500"), AMBIGUOUS, "http_500"),
        (TimeoutError(), AMBIGUOUS, "timeout"),
        (ConnectionResetError(), AMBIGUOUS, "connection_reset"),
        (ConnectionRefusedError(), AMBIGUOUS, "connection_refused"),
        (ValueError("x"), AMBIGUOUS, "exception:ValueError"),
        (SystemExit(3), AMBIGUOUS, "exception:SystemExit"),
        (GeneratorExit(), AMBIGUOUS, "exception:GeneratorExit"),
        (asyncio.CancelledError(), AMBIGUOUS, "exception:CancelledError"),
        (MemoryError(), AMBIGUOUS, "exception:MemoryError"),
        (RecursionError(), AMBIGUOUS, "exception:RecursionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_exception_of_a_write_says_only_what_it_proves(
    exc: BaseException, kind: OutcomeKind, word: str
) -> None:
    outcome = run(write(raises(exc)))
    assert (outcome.kind, outcome.error_class) == (kind, word)


def test_a_declared_error_proves_that_a_write_was_not_sent() -> None:
    declared = write(raises(ConnectionRefusedError()), retry=Retry(on=(ConnectionRefusedError,)))
    assert run(declared).kind is NO_EFFECT


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(write(raises(KeyboardInterrupt())))


def test_a_write_does_not_start_after_send_by() -> None:
    started: list[int] = []
    outcome = run(write(lambda ctx: started.append(1)), send_by=clock.now() - 0.001)
    assert (outcome.kind, outcome.error_class, started) == (NO_EFFECT, "send_by_passed", [])


def test_a_slow_write_keeps_its_result() -> None:
    """The deadline has passed, but the result is known: it is never thrown away."""

    def slow(ctx: ToolContext) -> str:
        while ctx.remaining > 0:
            threading.Event().wait(0.01)
        return "done"

    assert run(write(slow), deadline=clock.now() + 0.05).result == "done"


def test_an_async_write_is_awaited_until_the_deadline() -> None:
    async def refund(ctx: ToolContext, order_id: OrderId) -> str:
        await asyncio.sleep(0)
        return order_id

    async def hang(ctx: ToolContext, order_id: OrderId) -> str:
        await asyncio.Event().wait()
        return order_id

    options: dict[str, Any] = {"effect": Effect.WRITE, "contract": KEY, "identity": ("order_id",)}
    assert run(tool(app_label="shop", **options)(refund)).result == "O-1"
    hung = run(tool(app_label="shop", **options)(hang), deadline=clock.now() + 0.05)
    assert (hung.kind, hung.error_class) == (AMBIGUOUS, "timeout")


def test_accepted_is_pending_unless_that_is_all_there_will_be() -> None:
    outcome = run(write(lambda ctx: Pending("queued")))
    assert (outcome.kind, outcome.detail) == (PENDING, "queued")
    assert run(write(lambda ctx: Pending("queued"), accepted_is_done=True)).kind is SUCCESS


def test_a_result_is_typed_and_its_secrets_stay_hidden() -> None:
    def refund(ctx: ToolContext, order_id: OrderId) -> Refund | Pending:
        return Refund(refund_id="R-1", amount=Money("80 EUR"), pin=Secret("hunter2"))

    declared = tool(effect=Effect.WRITE, contract=KEY, identity=("order_id",))(refund)
    expected = {"refund_id": "R-1", "amount": "80.00 EUR", "pin": "[redacted]"}
    assert run(declared).result == expected
    outcome = run(write(lambda ctx: Found({"amount": Money("1 EUR")}, reference="R-9")))
    assert (outcome.result, outcome.reference) == ({"amount": "1.00 EUR"}, "R-9")


@pytest.mark.parametrize(
    "result",
    [object(), {"refund_id": 1}, {"refund_id": "R", "amount": 80.0}, None, b"\xff", {1, 2}],
)
def test_a_result_that_does_not_fit_is_still_a_success_of_a_write(result: Any) -> None:
    def refund(ctx: ToolContext, order_id: OrderId) -> Refund:
        return result  # type: ignore[no-any-return]

    written = run(tool(effect=Effect.WRITE, contract=KEY, identity=("order_id",))(refund))
    assert (written.kind, written.error_class) == (SUCCESS, "RESULT_UNREADABLE")
    assert written.result["unreadable"] is True
    json.dumps(written.result)
    looked = run(tool(effect=Effect.READ, app_label="other")(refund))
    assert (looked.kind, looked.error_class) == (NO_EFFECT, "RESULT_UNREADABLE")


@pytest.mark.parametrize("declare", [write, read])
def test_a_huge_result_is_a_success_with_its_beginning(declare: Any) -> None:
    outcome = run(declare(lambda ctx: {"text": "é" * 200_000}))
    assert (outcome.kind, outcome.error_class) == (SUCCESS, "TOO_LARGE")
    assert outcome.result["preview"].startswith('{"text": "éé')
    assert len(json.dumps(outcome.result)) < 20_000


def test_what_postgresql_refuses_is_replaced_visibly() -> None:
    outcome = run(write(lambda ctx: {"a\x00": ["x\x00y", "\ud800z", float("nan")]}))
    assert outcome.kind is SUCCESS
    assert outcome.result == {"a\ufffd": ["x\ufffdy", "\ufffdz", "nan"]}
    failed = run(write(raises(ValueError("bad\x00 \ud800\nline"))))
    assert failed.detail == "ValueError: bad\ufffd \ufffd line"


def test_a_secret_argument_never_gets_into_the_detail() -> None:
    declared = write(raises(ValueError("wrong pin hunter2")))
    outcome = call(declared, order_id="O-1", pin="hunter2")
    assert outcome.detail == "ValueError: wrong pin [redacted]"


def test_an_exception_that_cannot_be_shown_is_an_outcome_too() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert run(write(raises(BrokenError()))).detail == "BrokenError"


def test_stored_arguments_of_another_version_are_not_sent() -> None:
    started: list[int] = []
    spec = write(lambda ctx: started.append(1)).spec
    outcome = invoke_tool(spec=spec, context=make_context(), arguments={"order": "O-1"})
    assert (outcome.kind, outcome.error_class, started) == (REFUSED, "stored_arguments", [])


def test_a_success_reply_with_an_unreadable_body_is_a_success_of_a_write() -> None:
    with downstream(answers(reply("201 Created", b"<html>"))) as server:
        posted = run(write(lambda ctx: ctx.http.request("POST", server.url).json()))
        looked = run(read(lambda ctx: ctx.http.request("GET", server.url).json()))
        # A write that failed to read something first has not written.
        first = run(write(lambda ctx: ctx.http.request("GET", server.url).json()))
    assert (posted.kind, posted.error_class) == (SUCCESS, "RESULT_UNREADABLE")
    assert (looked.kind, looked.error_class) == (NO_EFFECT, "RESULT_UNREADABLE")
    assert first.kind is AMBIGUOUS


# --- reads ---------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    ("exc", "kind", "transient"),
    [
        (NotSent("x"), NO_EFFECT, True),
        (Ambiguous("x", retry_after=7), NO_EFFECT, True),
        (ConnectionResetError(), NO_EFFECT, True),
        (TimeoutError(), NO_EFFECT, True),
        (ValueError("x"), NO_EFFECT, False),
        (SystemExit(), NO_EFFECT, False),
        (Rejected("no such order"), REFUSED, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_a_failed_read_had_no_effect(
    exc: BaseException, kind: OutcomeKind, transient: bool
) -> None:
    outcome = run(read(raises(exc)))
    assert outcome.kind is kind
    assert is_transient(outcome.error_class) is transient
    assert outcome.retry_after == getattr(exc, "retry_after", None)


def test_a_read_that_hangs_is_given_up_at_the_deadline() -> None:
    gate = threading.Event()
    outcome = run(read(lambda ctx: gate.wait(5)), deadline=clock.now() + 0.1)
    gate.set()
    assert (outcome.kind, outcome.error_class) == (NO_EFFECT, "transient:timeout")


@pytest.mark.requirement("R30")
def test_who_acts_comes_from_the_context_and_never_from_the_model() -> None:
    declared = write(lambda ctx: [ctx.tenant, ctx.principal, list(ctx.scopes)])
    context = make_context(tenant="acme", principal="ann", scopes=("billing.refund",))
    outcome = call(declared, context=context, order_id="O-1")
    assert outcome.result == ["acme", "ann", ["billing.refund"]]
    for name in ("tenant", "principal", "scopes", "idempotency_key", "ctx"):
        assert name not in declared.spec.schema["properties"]
        with pytest.raises(Exception, match="not a parameter"):
            call(declared, context=context, order_id="O-1", **{name: "mallory"})
