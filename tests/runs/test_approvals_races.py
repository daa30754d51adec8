"""Two things at once, many times, on real connections: one winner, and nothing starts after an end.

`APPROVAL_RACES` is the number of races of each kind.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections

from approvals.errors import DecisionError
from approvals.models import Approval, ApprovalVote
from runs.approving import Decider, Decision, decide_approval
from runs.cancelling import Cancellation, cancel_run
from runs.driver import drive
from runs.models import Attempt, Event, Run
from runs.selectors import database_clock
from tests.factories import real_decider
from tests.runs.acting import (
    TOOLS_ONLY,
    Downstream,
    action,
    go,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tools import Approval as Asks
from tools import Tool

RACES = int(os.environ.get("APPROVAL_RACES", "20"))
SEED = int(os.environ.get("APPROVAL_RACES_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
Act = Callable[[], Any]


class Ring:
    """Two threads that stay, so that a race costs no new connections."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._start = threading.Barrier(2)
        self._dice = random.Random(SEED)

    def race(self, *acts: Act) -> list[Any]:
        """Both at once, one of them up to 3 ms later; what each returned or was refused with."""
        late = [0.0, self._dice.random() * 0.003]
        self._dice.shuffle(late)
        return list(self._pool.map(self._run, acts, late))

    def _run(self, act: Act, late: float) -> Any:
        self._start.wait(20)
        threading.Event().wait(late)
        try:
            return act()
        except DecisionError as error:
            return error

    def close(self) -> None:
        for _ in range(2):
            self._pool.submit(self._leave)
        self._pool.shutdown()

    def _leave(self) -> None:
        self._start.wait(20)
        connections.close_all()


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring()
    yield made
    made.close()


@pytest.fixture
def pay(shop: Downstream) -> Tool[Any, Any]:
    return write_tool(shop, approval=Asks.always(role="boss"))


@pytest.fixture
def people(transactional_db: None) -> list[Decider]:
    return [real_decider(name, roles=("boss",)) for name in ("user:grace", "user:linus")]


def asked(pay: Tool[Any, Any]) -> tuple[UUID, Approval]:
    """A run that waits for a person."""
    run = propose_run((pay, {"what": "a"}))
    go(run)
    return run, Approval.objects.get(run_id=run)


def says(row: Approval, who: Decider, choice: Any = "APPROVE") -> Callable[[], Decision]:
    """A decision, and then what the hint would bring: a worker drives the run."""

    def act() -> Decision:
        made = decide_approval(
            approval_id=row.pk,
            params_hash=row.params_hash,
            decision=choice,
            decider=who,
            reason="because",
        )
        drives(row.run_id)()
        return made

    return act


def drives(run: UUID) -> Act:
    return lambda: drive(run_id=run, revision=None, inline=TOOLS_ONLY)


def settle(run: UUID) -> None:
    """Let the run come to rest: whoever came too late to claim it left it to the sweep."""
    for _ in range(5):
        row = Run.objects.only("state", "lease_worker").get(pk=run)
        if row.lease_worker is None and row.state in ("OBSERVING", "CANCELLED"):
            return
        go(run)


def started(run: UUID) -> list[int]:
    """The events in which an action began."""
    return _moves(run, "action", "RUNNING")


def _moves(run: UUID, what: str, to: str) -> list[int]:
    rows = Event.objects.filter(run_id=run).order_by("seq").values_list("seq", "data")
    return [
        seq
        for seq, data in rows
        for move in data["transitions"]
        if (move["object"], move.get("to")) == (what, to)
    ]


def split(results: list[Any]) -> tuple[list[Any], list[DecisionError]]:
    refused = [result for result in results if isinstance(result, DecisionError)]
    return [result for result in results if not isinstance(result, DecisionError)], refused


@pytest.mark.requirement("R47", "R65")
def test_approve_and_approve(
    shop: Downstream, pay: Tool[Any, Any], people: list[Decider], ring: Ring
) -> None:
    for n in range(RACES):
        run, row = asked(pay)
        done, refused = split(ring.race(says(row, people[0]), says(row, people[1])))
        settle(run)
        assert (len(done), [error.code for error in refused]) == (1, ["already_decided"]), SEED
        assert ApprovalVote.objects.filter(approval=row).count() == 1
        assert (states(run), len(started(run))) == (["SUCCEEDED"], 1), SEED
        assert len(shop.sent) == n + 1


@pytest.mark.requirement("R44", "R47")
def test_approve_and_reject(
    shop: Downstream, pay: Tool[Any, Any], people: list[Decider], ring: Ring
) -> None:
    sent = 0
    for _ in range(RACES):
        run, row = asked(pay)
        done, refused = split(ring.race(says(row, people[0]), says(row, people[1], "REJECT")))
        settle(run)
        assert (len(done), len(refused)) == (1, 1), SEED
        vote = ApprovalVote.objects.get(approval=row)
        won = vote.decision == "APPROVE"
        sent += won
        row.refresh_from_db()
        ends = (row.state, states(run), len(started(run)))
        assert ends == (("CONSUMED", ["SUCCEEDED"], 1) if won else ("REJECTED", ["REJECTED"], 0))
        assert len(shop.sent) == sent, SEED


@pytest.mark.requirement("R43", "R47")
def test_approve_and_cancel(
    shop: Downstream, pay: Tool[Any, Any], people: list[Decider], ring: Ring
) -> None:
    """Either it had begun before the cancel, and the truth stands; or it never begins."""
    begun = 0
    for _ in range(RACES):
        run, row = asked(pay)
        results = ring.race(
            says(row, people[0]), lambda run=run: cancel_run(run_id=run, actor="user:olga")
        )
        settle(run)
        (cancelled,) = [r for r in results if isinstance(r, Cancellation)]
        assert not cancelled.already
        (at,) = Event.objects.filter(run_id=run, data__command="cancel").values_list(
            "seq", flat=True
        )
        begins = started(run)
        begun += len(begins)
        assert all(seq < at for seq in begins), f"started after the cancel, seed {SEED}"
        assert (state_of(run), states(run)) == (
            "CANCELLED",
            ["SUCCEEDED"] if begins else ["VOIDED"],
        )
        row.refresh_from_db()
        assert row.state == ("CONSUMED" if begins else "VOIDED")
        assert len(shop.sent) == begun, SEED


@pytest.mark.requirement("R42", "R43")
def test_approve_and_expire(
    shop: Downstream, pay: Tool[Any, Any], people: list[Decider], ring: Ring
) -> None:
    """The database clock decides, for the vote and again for the start."""
    dice = random.Random(SEED)
    begun = 0
    for _ in range(RACES):
        run, row = asked(pay)
        _runs_out(row, after=dice.random() * 0.02)
        results = ring.race(says(row, people[0]), drives(run))
        row.refresh_from_db()
        _let_it_run_out(row)
        settle(run)
        _check_expiry(run, row, results[0])
        begun += len(started(run))
        assert len(shop.sent) == begun, SEED


def _runs_out(row: Approval, *, after: float) -> None:
    """The question ends in a moment, and the run is due then."""
    with unguarded(), connection.cursor() as cursor:
        for table, column, key in (
            ("approvals_approval", "expires_at", row.pk),
            ("runs_run", "wake_at", row.run_id),
        ):
            cursor.execute(
                f"UPDATE {table} SET {column} = clock_timestamp() + make_interval(secs => %s)"  # noqa: S608
                " WHERE id = %s",
                [after, key],
            )


def _let_it_run_out(row: Approval) -> None:
    """Return when the time is over by the database's own clock."""
    while database_clock() < row.expires_at:
        pass


def _check_expiry(run: UUID, row: Approval, result: Any) -> None:
    row.refresh_from_db()
    begins = Attempt.objects.filter(run_id=run, kind="TOOL")
    assert all(attempt.started_at < row.expires_at for attempt in begins), SEED
    vote = ApprovalVote.objects.filter(approval=row).first()
    if isinstance(result, DecisionError):
        assert (vote, list(begins), row.state) == (None, [], "EXPIRED"), SEED
        assert (result.code, states(run)) == ("approval_expired", ["EXPIRED"]), SEED
        return
    assert vote is not None
    assert row.decided_at is not None
    assert row.decided_at < row.expires_at, SEED
    if row.state == "CONSUMED":
        assert row.consumed_at is not None
        assert row.consumed_at < row.expires_at, SEED
        assert states(run) == ["SUCCEEDED"]
    else:  # approved in time and started too late: asked anew
        assert (row.state, list(begins)) == ("EXPIRED", []), SEED
        assert (states(run), action(run).approval_id != row.pk) == (["AWAITING_APPROVAL"], True)
