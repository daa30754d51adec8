"""A long run is read once, however often it is given back and taken up again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from agentcore.budgets import Budget
from agentcore.compaction import ContextPolicy
from agentcore.lifecycle import RunState
from runs import history
from runs.driver import drive
from runs.models import Run
from runs.view import Beside, read_beside
from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer, Loopback
from tests.replies.desk import ALL_STEPS, Desk, answer, open_desk, said, stop_worker

pytestmark = pytest.mark.django_db(transaction=True)

TURNS = 40
SLICE = 6  # calls; three turns


@pytest.fixture
def desk(scripted_server: Loopback, transactional_db: None) -> Iterator[Desk]:
    """A desk whose runs go back to their queue after every few calls."""
    with open_desk(scripted_server, slice_calls=SLICE) as opened:
        yield opened
        stop_worker()


def ask(number: int) -> Answer:
    arguments = json.dumps({"order_id": f"ord_{number}"})
    items = [message(f"I suppose number {number}. " + "y" * 900)]
    return answer(reply(*items, call(f"c{number}", "get_order", arguments=arguments)))


def long_run(desk: Desk, turns: int = TURNS) -> Run:
    desk.script(*[ask(number) for number in range(turns - 1)], said())
    return desk.start(
        budget=Budget(turns=turns, actions=turns), context=ContextPolicy(window=8000, keep_last=3)
    )


def rows_read(work: Callable[[], Any]) -> Counter[str]:
    """How many rows of turns and actions the queries of `work` gave back, and its claims."""
    found: Counter[str] = Counter()

    def count(rows: list[list[tuple[Any, ...]]], *, after: int) -> Beside | None:
        found["runs_turn"] += len(rows[0])
        found["runs_actionjournal"] += len(rows[1])
        return read_beside(rows, after=after)

    def watch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        for table in ("runs_turn", "runs_actionjournal"):
            if sql.startswith("SELECT") and f'FROM "{table}"' in sql:
                found[table] += context["cursor"].rowcount
        return result

    with connection.execute_wrapper(watch), pytest.MonkeyPatch.context() as patch:
        patch.setattr("runs.leases.read_beside", count)
        work()
    assert found["runs_turn"], "what a claim reads is counted"
    return found


def test_a_slice_reads_what_is_new(desk: Desk) -> None:
    run = long_run(desk)
    found = rows_read(lambda: desk.drive(run))
    assert run.state == RunState.COMPLETED, run.reason
    claims = run.fence
    assert claims > TURNS // 4, "it was given back again and again"
    # Until there is enough to keep, everything is read; then at most the turn under way and the
    # one before it.
    start = sum(range(history.KEEP_FROM + SLICE))
    assert found["runs_turn"] <= start + 2 * claims, found
    assert found["runs_actionjournal"] <= start + 2 * claims, found


@pytest.mark.requirement("R23", "R74")
def test_what_is_remembered_changes_nothing(desk: Desk) -> None:
    """Every request is what the rows give, compaction included; and it goes the same way when
    nothing is remembered between two slices."""
    run = long_run(desk)
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    desk.check(run)
    remembered = [turn.request_sha256 for turn in desk.turns(run)]
    frames = [turn.manifest["frame"]["compacted_before"] for turn in desk.turns(run)]
    assert len(set(frames)) > 2, "it was compacted more than once"
    again = long_run(desk)
    while again.state not in (RunState.COMPLETED, RunState.FAILED):
        history.take(again.id)  # as another process would drive it
        drive(run_id=again.id, revision=None, inline=ALL_STEPS)
        again.refresh_from_db()
    assert again.state == RunState.COMPLETED, again.reason
    assert len(desk.turns(again)) == len(remembered)
    assert [turn.manifest["frame"]["compacted_before"] for turn in desk.turns(again)] == frames


def test_it_keeps_no_run_that_has_ended(desk: Desk) -> None:
    run = long_run(desk, turns=20)
    desk.drive(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert history.take(run.id) is None


def test_a_history_too_large_is_not_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_BYTES", 80_000)
    run = long_run(desk, turns=30)
    kept = 0
    while run.state != RunState.COMPLETED:
        drive(run_id=run.id, revision=None, inline=ALL_STEPS)
        kept = max(kept, sum(item.size for item in history._kept.values()))
        run.refresh_from_db()
    assert 0 < kept <= 80_000
    desk.check(run)
