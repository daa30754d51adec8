"""Tests that a tool keeps what its contract says, for tool developers to inherit.

    class TestRefund(ToolContractTests):
        tool = refund
        def arguments(self): return {"order_id": new_order(), "amount": "5.00 EUR"}
        def other_arguments(self, arguments): return {**arguments, "amount": "6.00 EUR"}
        def effects(self, arguments): return count_refunds(arguments["order_id"])

They call the tool through the same gates as the runtime, against whatever downstream the tool is
configured for: a test system, never the real one. `docs/testing-tools.md` tells the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar
from unittest import SkipTest
from uuid import uuid4

from agentcore.values import (
    Absent,
    AttemptOutcome,
    Found,
    Inconclusive,
    Json,
    Key,
    Natural,
    OutcomeKind,
)
from tools.context import ToolContext
from tools.invocation import invoke_preview, invoke_tool, judge, parse_arguments
from tools.probes import invoke_probe
from tools.spec import Tool, ToolSpec
from tools.testing import make_context

Arguments = dict[str, Json]
DONE = (OutcomeKind.SUCCESS, OutcomeKind.PENDING)
REFUSED = (OutcomeKind.REFUSED, OutcomeKind.NO_EFFECT)


class ToolContractTests:
    """Inherit in a test class whose name begins with `Test`; fill in `tool` and three methods."""

    tool: ClassVar[Tool[Any, Any] | ToolSpec]

    def arguments(self) -> Arguments:
        """JSON arguments of a call that works, for an effect that no other test has made."""
        raise NotImplementedError("return the arguments of a call that works")

    def other_arguments(self, arguments: Arguments) -> Arguments:
        """The same business intent with other content: what one key must not do, too."""
        raise NotImplementedError("return arguments with the same identity and other content")

    def effects(self, arguments: Arguments) -> int:
        """How many effects the downstream has made for this business intent, by its own books."""
        raise NotImplementedError("ask the downstream's own books")

    def lose_reply(self, arguments: Arguments) -> AbstractContextManager[object]:  # noqa: ARG002
        """While entered, the downstream acts and its reply is lost.

        Without this the reply is thrown away after it came, which is what a process does that dies
        before it has recorded it.
        """
        return nullcontext()

    # --- the tests ------------------------------------------------------------------------------

    def test_same_key_twice_gives_one_effect(self) -> None:
        """What a resend after a lost reply relies on."""
        self._needs_deduplication()
        arguments, key = self._given(), _fresh_key()
        with self._effects_made(arguments, 1, "the same key was sent twice"):
            first, second = self._call(arguments, key), self._call(arguments, key)
        for outcome in (first, second):
            assert outcome.kind in DONE, f"the call did not work: {_words(outcome)}"
        assert first.reference == second.reference, (
            "the second answer has another reference than the first: two effects, or no replay"
        )

    def test_same_key_at_the_same_time_gives_one_effect(self) -> None:
        """What a paused worker and its successor do to the downstream."""
        self._needs_deduplication()
        arguments, key = self._given(), _fresh_key()
        with (
            self._effects_made(arguments, 1, "the same key was sent twice at once"),
            ThreadPoolExecutor(2) as pool,
        ):
            outcomes = list(pool.map(lambda _: self._call(arguments, key), range(2)))
        assert any(outcome.kind in DONE for outcome in outcomes), [_words(o) for o in outcomes]

    def test_same_key_with_other_arguments_is_refused(self) -> None:
        """The downstream keeps what the key stood for, and the tool reports its refusal."""
        if not isinstance(self._spec.contract, Key):
            raise SkipTest("only the contract Key promises this")
        arguments, key = self._given(), _fresh_key()
        other = self._other(arguments)
        assert self._call(arguments, key).kind in DONE, "the call did not work"
        with self._effects_made(arguments, 0, "the key was used for other arguments"):
            outcome = self._call(other, key)
        assert outcome.kind in REFUSED, (
            f"other arguments under a used key must be refused; the tool says {_words(outcome)}"
        )

    def test_probe_after_a_lost_reply_finds_the_effect(self) -> None:
        """What turns UNKNOWN into SUCCEEDED."""
        self._needs_probe()
        arguments, key = self._given(), _fresh_key()
        with self._effects_made(arguments, 1, "one call was made"), self.lose_reply(arguments):
            lost = self._call(arguments, key)
        assert lost.kind not in REFUSED, f"a lost reply proves nothing: {_words(lost)}"
        found = self._probe(arguments, key)
        assert isinstance(found, Found), f"the effect exists, the probe says {found}"
        assert found.fingerprint_matches, "the probe takes the effect for one of other arguments"

    def test_probe_before_any_call_finds_nothing(self) -> None:
        """What must not turn UNKNOWN into SUCCEEDED."""
        self._needs_probe()
        arguments = self._given()
        found = self._probe(arguments, _fresh_key())
        assert isinstance(found, Absent | Inconclusive), f"nothing was sent, the probe says {found}"

    def test_preview_writes_nothing(self) -> None:
        """It is called before anybody has approved anything."""
        if self._spec.preview_fn is None:
            raise SkipTest("the tool declares no preview")
        arguments, context = self._given(), _context("")
        with self._effects_made(arguments, 0, "only the preview was called"):
            seen = invoke_preview(spec=self._spec, context=context, arguments=arguments)
        assert seen.kind is OutcomeKind.SUCCESS, f"the preview failed: {_words(seen)}"
        assert context.writes == [], f"the preview sent {', '.join(context.writes)}"

    # --- calling --------------------------------------------------------------------------------

    @property
    def _spec(self) -> ToolSpec:
        spec = self.tool if isinstance(self.tool, ToolSpec) else self.tool.spec
        assert spec.effect.is_write, f"{spec.name} only reads: it has no contract to test"
        assert not spec.rejected, f"{spec.name}: {'; '.join(p.message for p in spec.problems)}"
        return spec

    def _given(self) -> Arguments:
        return parse_arguments(spec=self._spec, raw=json.dumps(self.arguments()))

    def _other(self, arguments: Arguments) -> Arguments:
        raw = json.dumps(self.other_arguments(dict(arguments)))
        other = parse_arguments(spec=self._spec, raw=raw)
        assert other != arguments, "other_arguments returned the same arguments"
        assert self._identity(other) == self._identity(arguments), (
            "other_arguments must keep the identity: with another one the runtime uses another key"
        )
        return other

    def _identity(self, arguments: Arguments) -> Arguments | None:
        return judge(spec=self._spec, context=_context(""), arguments=arguments).identity

    def _call(self, arguments: Arguments, key: str) -> AttemptOutcome:
        return invoke_tool(spec=self._spec, context=_context(key), arguments=arguments)

    def _probe(self, arguments: Arguments, key: str) -> object:
        return invoke_probe(spec=self._spec, context=_context(key), arguments=arguments)

    @contextmanager
    def _effects_made(self, arguments: Arguments, expected: int, what: str) -> Iterator[None]:
        before = self.effects(arguments)
        yield
        made = self.effects(arguments) - before
        assert made == expected, f"{what}: {made} effects instead of {expected}"

    def _needs_deduplication(self) -> None:
        if not isinstance(self._spec.contract, Key | Natural):
            raise SkipTest("this contract does not promise that a repeat is harmless")

    def _needs_probe(self) -> None:
        if self._spec.probe_fn is None:
            raise SkipTest("the tool declares no probe")


def _fresh_key() -> str:
    """A key of the shape the runtime sends: at most 64 safe characters."""
    return f"ac1_{uuid4().hex}"


def _context(key: str) -> ToolContext:
    return make_context(idempotency_key=key, run_id=uuid4())


def _words(outcome: AttemptOutcome) -> str:
    return " ".join(filter(None, (outcome.kind, outcome.error_class, outcome.detail)))
