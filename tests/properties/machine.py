"""A run, two workers and everybody who may touch it, in any order of events.

Two workers step through the real driver on a real database; beside them a sweep, a reviewer, a
canceller, an operator, a downstream that calls back and a person who gives verdicts. The downstream
keeps its own books (`shop.py`), and everybody is honest. After each event: at most one effect for
one intent, only legal moves, one outcome an attempt, fences that grow, an event chain without a
gap, no word about a write that the books contradict, and nothing open in a run that has ended. At
the end everything that still runs is let go: the run must come to rest.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from django.conf import settings
from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentcore.callbacks import CallbackBody
from agentcore.lifecycle import ACTION_OPEN, ACTION_TERMINAL, RUN_TERMINAL
from agentcore.reconciling import JUDGED, Ground, Verdict
from agentcore.values import Contract, Key, NoContract, Query
from approvals.errors import DecisionError
from approvals.models import Approval
from runs import services
from runs.models import ActionJournal, Incident, Run
from runs.reconcile_models import Callback
from runs.refusals import Refused
from runs.selectors import database_clock
from runs.sweeps import sweep_once
from runs.verdict_errors import VerdictError
from tests.factories import real_decider
from tests.faults import invariants
from tests.faults.invariants import Facts
from tests.properties import stepping
from tests.properties.shop import BEHAVIOURS, Behaviour, Shop, reference_of
from tests.properties.stepping import Message, Worker
from tests.runs.acting import pass_time, propose_run, write_tool
from tests.runs.rows import unguarded
from tests.unknown import GRACE, HEIDI
from tools import Approval as Asks
from tools import registry

CONTRACTS: dict[str, Contract] = {
    "key": Key(retention=timedelta(days=2)),
    "query": Query(settle=timedelta(seconds=20)),
    "none": NoContract(),
}
SPANS = (1.0, 6.0, 40.0)
WORKERS = st.integers(0, 1)
AT_REST = ("OBSERVING", "COMPLETED", "CANCELLED", "INCOMPLETE", "FAILED")
NO_EFFECT = ("FAILED", "DENIED", "VOIDED", "REJECTED", "EXPIRED")


class TwoWorkers(RuleBasedStateMachine):
    """See the module. One run an example; its writes, their contract and the world are drawn."""

    messages: list[Message]  # set by the test: what was published

    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.workers = [Worker(), Worker()]
        self.fence = 0
        self._mine = ExitStack()
        self.messages.clear()
        self.conn = self._mine.enter_context(_plain_connection())

    @initialize(
        contract=st.sampled_from(sorted(CONTRACTS)),
        whats=st.sampled_from(("a", "ab", "aa", "aba")),
        asks=st.booleans(),
        fenced=st.booleans(),
        behaves=st.lists(st.sampled_from(BEHAVIOURS), max_size=4),
    )
    def propose(
        self, contract: str, whats: str, asks: bool, fenced: bool, behaves: list[Behaviour]
    ) -> None:
        """The model has proposed, perhaps one intent twice; the books are empty."""
        self._mine.enter_context(registry.isolated())
        self.shop.behaves, self.shop.dedupes = list(behaves), contract == "key"
        made = write_tool(
            self.shop,  # type: ignore[arg-type]
            name="pay",
            contract=CONTRACTS[contract],
            fenced_sends=fenced,
            **({"approval": Asks.always(role="payer")} if asks or contract == "none" else {}),
        )
        self.run_id = propose_run(*[(made, {"what": what}) for what in whats])

    # --- the runtime -------------------------------------------------------------------------

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
        with unguarded(), connection.cursor() as cursor:
            cursor.execute(
                "UPDATE runs_callback SET created_at = created_at - %s", [timedelta(seconds=span)]
            )

    @rule()
    def sweep(self) -> None:
        sweep_once()

    # --- people and the downstream -----------------------------------------------------------

    @rule(
        decision=st.sampled_from(("APPROVE", "APPROVE", "REJECT")),
        who=st.integers(0, 1),
        which=st.integers(0, 2),
    )
    def decide(self, decision: Any, who: int, which: int) -> None:
        """A reviewer decides a question, or clicks once more on it."""
        asked = list(Approval.objects.filter(run_id=self.run_id).order_by("id"))
        if not asked:
            return
        approval = asked[which % len(asked)]
        with suppress(DecisionError):
            services.decide_approval(
                approval_id=approval.id,
                params_hash=approval.params_hash,
                decision=decision,
                decider=real_decider(f"user:reviewer{who}", roles=("payer",)),
                reason="looked at it",
            )

    @rule(seldom=st.integers(0, 5))
    def cancel(self, seldom: int) -> None:
        if seldom == 0:  # else few runs would get far
            services.cancel_run(run_id=self.run_id, actor="token:shop")

    @rule(goes_on=st.sampled_from((True, True, False)))
    def pause(self, goes_on: bool) -> None:
        """An operator pauses the run, and mostly lets it go on soon."""
        with suppress(Refused):
            services.pause_run(run_id=self.run_id, actor="user:olga")
        if goes_on:
            self.resume()

    @rule()
    def resume(self) -> None:
        with suppress(Refused):
            services.resume_run(run_id=self.run_id, actor="user:olga")

    @rule(verdict=st.sampled_from(list(Verdict)), which=st.integers(0, 2), second=st.booleans())
    def judge(self, verdict: Verdict, which: int, second: bool) -> None:
        """A person says what the books say; for "not done" the key is closed there first."""
        found = [a for a in self._actions() if a.state in JUDGED and a.idempotency_key]
        if not found:
            return
        action = found[which % len(found)]
        key = action.idempotency_key or ""
        facts: dict[str, Any] = {}
        if verdict in (Verdict.EFFECT_EXISTS, Verdict.EFFECT_DOES_NOT_EXIST):
            if self.shop.close(key):
                verdict, facts = Verdict.EFFECT_DOES_NOT_EXIST, {"ground": Ground.KEY_CLOSED}
            else:
                verdict, facts = Verdict.EFFECT_EXISTS, {"downstream_ref": reference_of(key)}
        elif verdict is Verdict.STILL_UNKNOWN:
            facts = {"next_probe_in": timedelta(seconds=30)}
        with suppress(VerdictError):
            services.record_verdict(
                action_id=action.id,
                action_revision=action.revision,
                verdict=verdict,
                person=HEIDI if second else GRACE,
                evidence_text="seen in the books",
                **facts,
            )

    @rule(which=st.integers(0, 2), late=st.booleans())
    def call_back(self, which: int, late: bool) -> None:
        """The downstream tells what became of a key, in time or once more."""
        keys = [a.idempotency_key for a in self._actions() if a.idempotency_key]
        word = self.shop.word(key := keys[which % len(keys)]) if keys else ""
        if not word:
            return
        body = {"type": f"effect.{word}", "data": {"idempotency_key": key}}
        if word == "succeeded" and late:
            body["data"] = {"idempotency_key": key, "reference": reference_of(key)}
        services.receive_callback(
            source="payments",
            event_id=uuid4().hex,
            body=CallbackBody.model_validate(body),
            body_sha256=word,
            sent_at=database_clock(),
        )

    @rule(reachable=st.booleans())
    def work_off(self, reachable: bool) -> None:
        """The downstream acts on what it accepted; or it cannot be asked for a while."""
        self.shop.reachable = reachable
        if reachable:
            self.shop.work_off()

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def the_books_agree(self) -> None:
        """One intent, one effect; no effect of something that is said not to have happened."""
        if not hasattr(self, "run_id"):
            return
        booked = Counter(what for _, what in self.shop.effects)
        assert all(count == 1 for count in booked.values()), f"effects: {booked}"
        keys = {key for key, _ in self.shop.effects}
        for action in self._actions():
            where = f"{action.state} {action.reason} {action.error_class}"
            assert action.state not in NO_EFFECT or action.idempotency_key not in keys, where
            assert action.state != "SUCCEEDED" or action.idempotency_key in keys, where
        told = Incident.objects.filter(run_id=self.run_id).exclude(kind="POISON")
        assert list(told.values_list("kind", "detail")) == [], "nobody lied"

    @invariant()
    def the_rows_agree(self) -> None:
        if not hasattr(self, "run_id"):
            return
        key = settings.AGENTCORE_OPTIONS.event_key
        rows = invariants.read_rows(self.conn, str(self.run_id))
        facts = Facts(**rows, ledger=(), claims=(), wire=None)
        found = [str(violation) for violation in invariants.of_rows(facts, event_key=key)]
        assert found == []
        run = rows["run"]
        assert run["fence"] >= self.fence
        self.fence = run["fence"]
        if run["state"] in RUN_TERMINAL:
            assert {a["state"] for a in rows["actions"]} <= set(ACTION_TERMINAL)
            assert not {a["state"] for a in rows["approvals"]} & {"PENDING", "APPROVED"}

    def teardown(self) -> None:
        """Let everything go on: the run comes to rest, and nobody was lied to."""
        with self._mine:
            if hasattr(self, "run_id"):
                self._come_to_rest()

    def _come_to_rest(self) -> None:
        self.work_off(True)
        for worker in self.workers:
            worker.beat()
            worker.finish()
        for _ in range(40):
            if self._rests():
                break
            self.resume()
            for which in range(3):
                self.decide("APPROVE", 0, which)
            self.workers[0].start(self.run_id)
            self.workers[0].finish()
            self.work_off(True)
            self.wait(400.0)
            sweep_once()
        state = Run.objects.get(pk=self.run_id).state
        assert self._rests(), f"{state}: {[a.state for a in self._actions()]}"
        self.the_books_agree()
        self.the_rows_agree()
        assert not Callback.objects.filter(settled_at=None, action__state__in=ACTION_OPEN).exists()

    def _rests(self) -> bool:
        run = Run.objects.get(pk=self.run_id)
        return run.state in AT_REST or any(a.state == "NEEDS_HUMAN" for a in self._actions())

    def _actions(self) -> list[ActionJournal]:
        rows = ActionJournal.objects.filter(run_id=self.run_id)
        return list(rows.order_by("turn", "ordinal", "edit"))


def _plain_connection() -> psycopg.Connection[Any]:
    params = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    return psycopg.connect(
        **{name: params[name] for name in names if params.get(name)},
        options="-c timezone=UTC",
        autocommit=True,
    )
