"""One trial: one run, broken once (or twice) on purpose, followed to its end and checked."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any
from uuid import UUID

from examples.refund_desk.admin_client import AdminError
from tests.faults import family, invariants
from tests.faults.exhaustive.desk import Desk, wait_for
from tests.faults.exhaustive.stories import SECOND, STORIES
from tests.faults.exhaustive.trace import MESSAGE_LOST, PROCESS
from tests.faults.invariants import Facts, Violation
from tests.world import get_json

OF_PROCESS = ("beat|", "sweep|", "consumer|", "pool|")
"""Roles of boundaries that belong to a process and to no run."""
TAMPERED = "tampered"
"""Kind of trials in which the arguments change between the approval and the start."""
UNDISTURBED = "only messages"
"""Kind of trials in which messages are doubled and nothing else is wrong."""
PATIENCE = 30.0
"""Seconds in which a run must come to its end, whatever happened to it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do at a boundary: kill, stop, lose_before, lose_after."""

    at: str
    side: str
    mode: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A story and what breaks it. `kind` groups trials in the report."""

    kind: str
    story: str
    faults: tuple[Fault, ...] = ()
    payment: tuple[tuple[str, Any], ...] = ()
    model: tuple[tuple[str, Any], ...] = ()

    @property
    def id(self) -> str:
        """The text by which `--replay` finds it again."""
        parts = [f"{fault.mode} {fault.side} {fault.at}" for fault in self.faults]
        parts += [f"payment {json.dumps(dict(self.payment))}"] if self.payment else []
        parts += [f"model {json.dumps(dict(self.model))}"] if self.model else []
        return " // ".join([self.kind, self.story, *parts])


def parse_id(text: str) -> Trial:
    """The trial of a printed id."""
    kind, story, *parts = text.split(" // ")
    faults, services = [], {}
    for part in parts:
        word, _, rest = part.partition(" ")
        if word in ("payment", "model"):
            services[word] = tuple(json.loads(rest).items())
        else:
            side, _, at = rest.partition(" ")
            faults.append(Fault(at, side, word))
    return Trial(kind, story, tuple(faults), **services)


@dataclass
class Outcome:
    """How a trial ended. `recoveries`: seconds from each kill to the next claim of the run;
    `crossed`: kills that have none, since another trial's kill took the run's message along."""

    trial: Trial
    number: int
    reached: bool = False
    seconds: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    crossed: int = 0
    violations: list[Violation] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)


def run_trial(desk: Desk, trial: Trial, *, record: bool = False) -> Outcome:
    """Run one trial to its end and check what must hold."""
    number = next(desk.numbers)
    outcome = Outcome(trial, number)
    began = time.monotonic()
    name, story = f"ORD-{number}", STORIES[trial.story]
    _arm(desk, trial, name, record=record)
    run_id: str | None = None
    try:
        body = story.body(number)
        post = desk.post
        run_id = wait_for(lambda: post(name, story.agent, body), seconds=PATIENCE, what="an answer")
        _follow(desk, trial, name, run_id)
        if story.linger and run_id:
            _linger(desk, run_id, story.linger)
    except TimeoutError as error:
        outcome.violations.append(Violation("I2", "lost", str(error)))
    finally:
        outcome.log = desk.log(name)
        desk.disarm(name)
        desk.disarm(f"{PROCESS}{name}")
    outcome.reached = not trial.faults or any(entry["e"] == "fired" for entry in outcome.log)
    if run_id:
        facts = _facts(desk, run_id, number, outcome.log)
        below = [_facts(desk, child, number, outcome.log) for child in _children(desk, run_id)]
        expected = replace(story.expected(number), undisturbed=trial.kind == UNDISTURBED)
        key = desk.event_key
        outcome.violations += family.violations(facts, below, expected, event_key=key)
        if len(trial.faults) == 1:  # a run that has killed twice is held back on purpose
            _recoveries(outcome, facts)
    outcome.seconds = time.monotonic() - began
    return outcome


def _arm(desk: Desk, trial: Trial, name: str, *, record: bool) -> None:
    story = STORIES[trial.story]
    payment, model = dict(trial.payment) or story.payment, dict(trial.model) or story.model
    if payment:
        desk.payment_fault(**{"order_id": name, **payment})
    if model:
        desk.model_fault(**{"order_id": name, **model})
    faults = [{"at": f.at, "side": f.side, "mode": f.mode} for f in trial.faults]
    tampers = trial.kind == TAMPERED
    desk.arm(name, {"record": record, "faults": faults, "tampers": tampers})
    others = [fault for fault in faults if fault["at"].startswith(OF_PROCESS)]
    if others:
        desk.arm(f"{PROCESS}{name}", {"faults": others})


def _follow(desk: Desk, trial: Trial, name: str, run_id: str) -> None:
    """To the end: decide when asked, cancel when it is time, wake what was stopped."""
    story = STORIES[trial.story]
    stopped = _Stopped(desk, name) if any(f.mode == "stop" for f in trial.faults) else None
    cancelled = False

    def over() -> bool:
        nonlocal cancelled
        state, ended, actions = _look(desk, run_id)
        if stopped is not None:
            stopped.look(over=ended)
        if state == "WAITING_APPROVAL" and story.approve:
            _decide(desk, name, run_id, story.approve)
        if story.cancel_in and story.cancel_in in (state, *actions) and not cancelled:
            cancelled = desk.cancel(name, run_id)
        return ended and (stopped is None or stopped.settled)

    wait_for(over, seconds=PATIENCE, what="the end of the run", every=0.025)


def _children(desk: Desk, run_id: str) -> list[str]:
    """The runs that a run has asked for."""
    query = "SELECT id::text FROM runs_run WHERE parent_id = %s ORDER BY id"
    return [row[0] for row in desk.sql(query, run_id)]


def _linger(desk: Desk, run_id: str, seconds: float) -> None:
    """Until the downstream has done what was sent to it, also what it does late."""
    query = (
        "SELECT count(*) = 0 FROM runs_attempt WHERE run_id = %s AND kind = 'TOOL'"
        " AND started_at > clock_timestamp() - make_interval(secs => %s)"
    )
    wait_for(lambda: desk.sql(query, run_id, seconds)[0][0], seconds=PATIENCE, what="the last send")


def _look(desk: Desk, run_id: str) -> tuple[str, bool, list[str]]:
    """State, whether it has come to rest, and the states of its and its children's writes.

    A cancelled run sends nothing more; where an effect cannot be found out it waits for a person.
    """
    query = (
        "SELECT r.state, r.ended_at IS NOT NULL OR (r.state = 'CANCELLING' AND"
        " bool_or(a.state = 'NEEDS_HUMAN')), coalesce(array_agg(a.state)"
        " FILTER (WHERE a.effect <> 'READ'), '{}') FROM runs_run r"
        " LEFT JOIN runs_run c ON c.parent_id = r.id"
        " LEFT JOIN runs_actionjournal a ON a.run_id IN (r.id, c.id) WHERE r.id = %s GROUP BY r.id"
    )
    ((state, ended, actions),) = desk.sql(query, run_id)
    return state, ended, actions


def _decide(desk: Desk, name: str, run_id: str, decision: str) -> None:
    """What a reviewer does who clicks again when the page broke off."""
    query = "SELECT id::text FROM approvals_approval WHERE run_id = %s AND state = 'PENDING'"
    for (approval,) in desk.sql(query, run_id):
        assert desk.web is not None
        page = f"{desk.web.url}/admin/review/{approval}/"
        try:
            desk.session(name).decide(page=page, decision=decision, reason="checked")
        except (AdminError, OSError, HTTPException):
            return  # asked again at the next look


class _Stopped:
    """A process that stopped itself; it goes on once the run was taken over, or has ended."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk, self._name = desk, name
        self._pid = 0
        self._awake = False
        self.settled = False

    def look(self, *, over: bool) -> None:
        log = self._desk.log(self._name)
        fired = next((entry for entry in log if entry["e"] == "fired"), None)
        if fired is None:
            self.settled = over
            return
        self._pid = fired["pid"]
        others = [e for e in log if e["e"] == "claim" and e["t"] > fired["t"]]
        waited = time.time() - fired["t"]
        if not self._awake and (over or others or waited > 4.0) and waited > 0.2:
            os.kill(self._pid, signal.SIGCONT)
            self._awake = True
        left = any(e["e"] == "left" and e["pid"] == self._pid and e["t"] > fired["t"] for e in log)
        self.settled = over and self._awake and (left or waited > 8.0)


def _facts(desk: Desk, run_id: str, number: int, log: list[dict[str, Any]]) -> Facts:
    orders = [f"ORD-{number}", f"ORD-{number + SECOND}"]
    claims = [e["fence"] for e in log if e["e"] == "claim" and e["run"] == str(UUID(run_id))]
    wire = get_json(f"{desk.world.model.url}/calls?order_id={orders[0]}")["calls"]
    return Facts(
        **invariants.read_rows(desk.conn(), run_id),
        ledger=desk.ledger(orders),
        claims=claims,
        wire=wire,
        stale_links=sum(entry["e"] == "published" for entry in log),
    )


def _recoveries(outcome: Outcome, facts: Facts) -> None:
    """Seconds from each kill of a worker to the next claim; a wait for a person is no recovery, and
    where the message was lost with another worker that was killed meanwhile it is not one kill.
    """
    log = outcome.log
    lost = [e["t"] for e in log if e["e"] == MESSAGE_LOST]
    decided = [row["decided_at"].timestamp() for row in facts.approvals if row["decided_at"]]
    for kill in (e for e in log if e["e"] == "fired" and e["mode"] == "kill"):
        if kill["at"].startswith("web|"):
            continue
        claim = next((e["t"] for e in log if e["e"] == "claim" and e["t"] > kill["t"]), None)
        if claim is None or any(kill["t"] < at < claim for at in decided):
            continue
        if any(kill["t"] < at < claim for at in lost):
            outcome.crossed += 1
        else:
            outcome.recoveries.append(claim - kill["t"])
