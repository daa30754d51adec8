"""A run, two workers, a sweep, a reviewer, a canceller and a downstream, in any order of events.

The downstream keeps its own books. After each event: at most one effect for one intent, only legal
moves, one outcome an attempt, fences that grow, an event chain without a gap, and no word about a
write that its books contradict. At the end everything that still runs is let go: the run must come
to rest, and what the rows say must be what the books say.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentcore.values import Contract, Key, NoContract, Query
from approvals.errors import DecisionError
from approvals.models import Approval
from runs import services
from runs.models import ActionJournal, Run
from runs.sweeps import sweep_once
from tests.factories import decider
from tests.faults import invariants
from tests.faults.invariants import Facts
from tests.properties import stepping
from tests.properties.stepping import Message, Worker
from tests.runs.acting import Behaviour, Downstream, pass_time, propose_run, write_tool
from tools import Approval as Asks
from tools import NotSent, ToolContext, registry

CONTRACTS: dict[str, Contract] = {
    "key": Key(retention=timedelta(days=2)),
    "query": Query(settle=timedelta(seconds=20)),
    "none": NoContract(),
}
BEHAVIOURS: tuple[Behaviour, ...] = ("ok", "lost", "dropped", "refused", "not_sent")
SPANS = (1.0, 6.0, 40.0)
WORKERS = st.integers(0, 1)
AT_REST = ("OBSERVING", "COMPLETED", "CANCELLED", "INCOMPLETE", "FAILED", "SUSPENDED")
NO_EFFECT = ("FAILED", "DENIED", "VOIDED", "REJECTED", "EXPIRED")


class Shop(Downstream):
    """A downstream to which, as by the runtime's transport, nothing is sent after `send_by`."""

    def send(self, ctx: ToolContext, what: str) -> Any:
        if time.monotonic() + stepping.passed_since_planned() > ctx.send_by:
            raise NotSent("too late to begin", error_class="send_by_passed")
        return super().send(ctx, what)


class TwoWorkers(RuleBasedStateMachine):
    """See the module. One run an example; its number of writes and their contract are drawn."""

    messages: list[Message]  # set by the test: what was published

    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.workers = [Worker(), Worker()]
        self._mine = ExitStack()
        self.messages.clear()
        self.conn = self._mine.enter_context(_plain_connection())

    @initialize(
        contract=st.sampled_from(sorted(CONTRACTS)),
        writes=st.integers(1, 2),
        asks=st.booleans(),
        behaves=st.lists(st.sampled_from(BEHAVIOURS), max_size=3),
    )
    def propose(self, contract: str, writes: int, asks: bool, behaves: list[Behaviour]) -> None:
        """The model has proposed; the books are empty."""
        self._mine.enter_context(registry.isolated())
        self.shop.behaves, self.shop.dedupes = list(behaves), contract == "key"
        made = write_tool(
            self.shop,
            name="pay",
            contract=CONTRACTS[contract],
            **({"approval": Asks.always(role="payer")} if asks or contract == "none" else {}),
        )
        calls = [(made, {"what": what}) for what in ("a", "b")[:writes]]
        self.run_id = propose_run(*calls)

    # --- what happens ------------------------------------------------------------------------

    @rule(number=WORKERS, steps=st.integers(1, 8))
    def work(self, number: int, steps: int) -> None:
        """A worker goes on; one without a run looks at it by itself, as without a broker."""
        worker = self.workers[number]
        if not worker.at:
            worker.start(self.run_id)
        for _ in range(steps):
            if worker.at:
                worker.step()

    @rule(number=WORKERS, steps=st.integers(1, 3))
    def work_a_little(self, number: int, steps: int) -> None:
        self.work(number, steps)

    @rule(number=WORKERS, back=st.integers(0, 9))
    def deliver(self, number: int, back: int) -> None:
        """Any message that was ever published arrives, for the first time or again."""
        if self.messages and not self.workers[number].at:
            run_id, revision = self.messages[-1 - back % len(self.messages)]
            self.workers[number].start(run_id, revision=revision)

    @rule(number=WORKERS, what=st.sampled_from(("lapse", "lapse", "beat", "die")))
    def trouble(self, number: int, what: str) -> None:
        """It is paused and does not know, it is back, or it is killed where it stands."""
        worker = self.workers[number]
        if what != "die" or worker.at:
            getattr(worker, what)()

    @rule(span=st.sampled_from(SPANS))
    def wait(self, span: float) -> None:
        """Time passes for the rows, and for what was not sent yet."""
        stepping.let_pass(span)
        pass_time(self.run_id, seconds=span)

    @rule()
    def sweep(self) -> None:
        sweep_once()

    @rule(decision=st.sampled_from(("APPROVE", "APPROVE", "REJECT")), who=st.integers(0, 1))
    def decide(self, decision: Any, who: int) -> None:
        """A reviewer decides the oldest question, or clicks once more on it."""
        approval = Approval.objects.filter(run_id=self.run_id).order_by("id").first()
        if approval is None:
            return
        try:
            services.decide_approval(
                approval_id=approval.id,
                params_hash=approval.params_hash,
                decision=decision,
                decider=decider(f"user:reviewer{who}", roles=frozenset({"payer"})),
                reason="looked at it",
            )
        except DecisionError:
            return

    @rule(seldom=st.integers(0, 5))
    def cancel(self, seldom: int) -> None:
        if seldom == 0:  # else few runs would get far
            services.cancel_run(run_id=self.run_id, actor="token:shop")

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def the_books_agree(self) -> None:
        """One intent, one effect; no effect of something that is said not to have happened."""
        if not hasattr(self, "run_id"):
            return
        booked = Counter(what for _, what in self.shop.effects)
        assert all(count == 1 for count in booked.values()), f"effects: {booked}"
        keys = {key for key, _ in self.shop.effects}
        for action in ActionJournal.objects.filter(run_id=self.run_id):
            where = f"{action.state} {action.reason} {action.error_class}"
            assert action.state not in NO_EFFECT or action.idempotency_key not in keys, where
            assert action.state != "SUCCEEDED" or action.idempotency_key in keys, where

    @invariant()
    def the_rows_agree(self) -> None:
        if not hasattr(self, "run_id"):
            return
        key = settings.AGENTCORE_OPTIONS.event_key
        rows = invariants.read_rows(self.conn, str(self.run_id))
        facts = Facts(**rows, ledger=(), claims=(), wire=None)
        found = [str(violation) for violation in invariants.of_rows(facts, event_key=key)]
        assert found == []

    def teardown(self) -> None:
        """Let everything go on: the run comes to rest, and nobody was lied to."""
        with self._mine:
            if hasattr(self, "run_id"):
                self._come_to_rest()

    def _come_to_rest(self) -> None:
        for worker in self.workers:
            worker.beat()
            worker.finish()
        for _ in range(40):
            if self._rests():
                break
            self.decide("APPROVE", 0)
            self.workers[0].start(self.run_id)
            self.workers[0].finish()
            self.wait(400.0)
            sweep_once()
        actions = list(ActionJournal.objects.filter(run_id=self.run_id))
        state = Run.objects.get(pk=self.run_id).state
        assert self._rests(), f"{state}: {[a.state for a in actions]}"
        self.the_books_agree()
        self.the_rows_agree()

    def _rests(self) -> bool:
        run = Run.objects.get(pk=self.run_id)
        asked = ActionJournal.objects.filter(run_id=self.run_id, state="NEEDS_HUMAN")
        return run.state in AT_REST or asked.exists()


def _plain_connection() -> psycopg.Connection[Any]:
    params = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    return psycopg.connect(
        **{name: params[name] for name in names if params.get(name)},
        options="-c timezone=UTC",
        autocommit=True,
    )
