"""A tool that declares `fenced_sends` sends through `ctx.http` or not at all."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

import pytest

from agentcore.values import AttemptOutcome, OutcomeKind, Query
from tests.tools.loopback import answers, downstream, reply
from tools import Absent, Effect, Natural, NoContract, ToolContext, registry, tool
from tools.guarantees import MEANING, guarantee
from tools.spec import Approval, Tool
from tools.testing import call, make_context

OK = answers(reply("200 OK", b"{}"))


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with registry.isolated():
        yield


def declare(send: Callable[[ToolContext], Any], *, fenced: bool = True) -> Tool[Any, Any]:
    def post(ctx: ToolContext, what: Literal["a"]) -> str:
        """Post."""
        send(ctx)
        return "sent"

    made = tool(
        effect=Effect.WRITE,
        contract=Query(settle=timedelta(seconds=5)),
        identity=("what",),
        app_label="shop",
        fenced_sends=fenced,
    )(post)
    made.probe(lambda *_: Absent())
    return made


def outcome(send: Callable[[ToolContext], Any], *, fenced: bool = True) -> AttemptOutcome:
    return call(declare(send, fenced=fenced), what="a")


@pytest.mark.requirement("R62")
def test_ctx_http_sends_with_key_and_fence() -> None:
    with downstream(OK) as server:
        assert outcome(lambda ctx: ctx.http.request("POST", server.url)).kind is OutcomeKind.SUCCESS
    text = bytes(server.received).decode().lower()
    assert "idempotency-key: test-key" in text
    assert "x-agentcore-fence: 1" in text


def test_the_names_of_the_headers_can_be_chosen() -> None:
    context = make_context(key_header="X-Request-Id", fence_header="X-Token")
    with downstream(OK) as server:
        context.http.request("POST", server.url)
    text = bytes(server.received).decode()
    assert "X-Request-Id: test-key" in text
    assert "X-Token: 1" in text
    assert "Idempotency-Key" not in text


def _socket(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def _urllib(port: int) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"x", timeout=5).close()


def _datagram(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.sendto(b"x", ("127.0.0.1", port))


def _process(_: int) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.parametrize("way", [_socket, _urllib, _datagram, _process])
def test_nothing_leaves_by_another_way(way: Callable[[int], None]) -> None:
    with downstream(OK) as server:
        said = outcome(lambda _: way(server.port))
        assert server.connections == 0
    # What the tool did with the refusal is its own affair: not proven to be without effect.
    assert said.kind is OutcomeKind.AMBIGUOUS
    assert "fenced_sends" in said.detail


def test_without_the_declaration_a_tool_may_use_its_own_client() -> None:
    with downstream(OK) as server:
        assert outcome(lambda _: _urllib(server.port), fenced=False).kind is OutcomeKind.SUCCESS
        assert server.connections == 1


def test_the_watch_ends_with_the_call() -> None:
    with downstream(OK) as server:
        outcome(lambda ctx: ctx.http.request("POST", server.url))
        _socket(server.port)


def test_each_tool_has_one_guarantee_class_and_none_says_exactly_once() -> None:
    fenced = declare(lambda _: None)
    assert guarantee(fenced.spec) == "lookup"

    def put(ctx: ToolContext, what: Literal["a"]) -> str:
        """Put."""
        return what

    common: dict[str, Any] = {"effect": Effect.WRITE, "identity": ("what",), "app_label": "shop"}
    natural = tool(contract=Natural(), **common)(put)
    assert guarantee(natural.spec) == "absolute write"
    asked = Approval.always(role="boss")
    assert guarantee(tool(contract=NoContract(), approval=asked, **common)(put).spec) == "none"
    read = tool(effect=Effect.READ, app_label="shop")(put)
    assert guarantee(read.spec) == "read only"
    assert not any("exactly" in text for text in MEANING.values())


@pytest.mark.parametrize(
    "options",
    [
        {"horizon": timedelta(days=1)},  # of one run: meaningless
        {"horizon": timedelta(0), "scope": "tenant"},
        {"compensates": "shop.put"},
    ],
)
def test_declarations_that_cannot_mean_anything_are_refused(options: dict[str, Any]) -> None:
    def put(ctx: ToolContext, what: Literal["a"]) -> str:
        """Put."""
        return what

    made = tool(
        effect=Effect.WRITE, contract=Natural(), identity=("what",), app_label="shop", **options
    )(put)
    assert [problem.code for problem in made.spec.problems if problem.code[0] == "E"] == ["E001"]
