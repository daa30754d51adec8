"""Rules over two rows: the end of a run, the start of an action, and the two at once."""

# ruff: noqa: S608  (the tests write SQL as an intruder would)

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import connection

from agentcore.lifecycle import ACTION_TERMINAL, ActionState
from tests.runs.rows import NOW, make_action, make_attempt, make_run
from tests.runs.sql import refusal, update_refusal

END_RUN = "state = 'FAILED', stop_reason = 'TOOL_ERROR', ended_at = now(), revision = revision + 1"
START = "state = 'RUNNING', revision = revision + 1, fence = 1"
COPY_ACTION = (
    "INSERT INTO runs_actionjournal SELECT copy.* FROM runs_actionjournal AS old, LATERAL "
    "jsonb_populate_record(old, jsonb_build_object('id', gen_random_uuid(), 'ordinal', 9, "
    "'state', %s::text, 'fence', %s::int, 'ended_at', %s::text)) AS copy WHERE old.id = %s"
)
COPY_ATTEMPT = (
    "INSERT INTO runs_attempt SELECT copy.* FROM runs_attempt AS old, LATERAL "
    "jsonb_populate_record(old, jsonb_build_object('id', gen_random_uuid(), 'n', 9, "
    "'kind', %s::text, 'fence', %s::int)) AS copy WHERE old.id = %s"
)


@pytest.mark.django_db
@pytest.mark.requirement("R3")
@pytest.mark.parametrize("state", list(ActionState))
def test_a_run_ends_only_when_every_action_has_ended(state: ActionState) -> None:
    run = make_run()
    make_action(run, "SUCCEEDED")
    make_action(run, state, ordinal=1)
    expected = "" if state in ACTION_TERMINAL else "run_settled"
    assert update_refusal("runs_run", run.pk, END_RUN) == expected


@pytest.mark.django_db
@pytest.mark.requirement("R60")
@pytest.mark.parametrize(
    ("run_values", "expected"),
    [
        pytest.param({}, "", id="live"),
        pytest.param({"fence": 2}, "actionjournal_starts", id="fenced-off"),
        pytest.param({"stop_reason": "CANCEL"}, "actionjournal_starts", id="stopping"),
        pytest.param({"state": "CANCELLED"}, "actionjournal_starts", id="ended"),
        pytest.param({"dry_run": True}, "actionjournal_starts", id="dry"),
    ],
)
def test_an_action_starts_only_under_a_live_run_with_its_fence(
    run_values: dict[str, Any], expected: str
) -> None:
    action = make_action(make_run(**run_values), "READY")
    assert update_refusal("runs_actionjournal", action.pk, START) == expected
    inserted = refusal(COPY_ACTION, ["RUNNING", 1, None, action.pk])
    assert inserted == ("actionjournal_begins" if expected else "")


@pytest.mark.django_db
def test_a_read_of_a_dry_run_starts() -> None:
    action = make_action(make_run(dry_run=True), "READY", effect="READ")
    assert update_refusal("runs_actionjournal", action.pk, START) == ""


@pytest.mark.django_db
@pytest.mark.requirement("R3")
def test_a_terminal_run_takes_no_new_action_that_is_alive() -> None:
    action = make_action(make_run("COMPLETED"), "SUCCEEDED")
    for state in ("PROPOSED", "READY", "AWAITING_APPROVAL"):
        assert refusal(COPY_ACTION, [state, 1, None, action.pk]) == "actionjournal_joins"
    assert refusal(COPY_ACTION, ["VOIDED", 1, NOW.isoformat(), action.pk]) == ""


@pytest.mark.django_db
@pytest.mark.requirement("R60")
@pytest.mark.parametrize("kind", ["MODEL", "TOOL", "PROBE", "PRECHECK", "POSTCONDITION"])
def test_an_attempt_needs_the_fence_and_a_run_that_allows_it(kind: str) -> None:
    by = "attempt_starts" if kind in {"MODEL", "TOOL"} else "attempt_asks"

    def insert(**run_values: Any) -> str:
        attempt = make_attempt(make_action(make_run(**run_values)))
        return refusal(COPY_ATTEMPT, [kind, 1, attempt.pk])

    assert insert() == ""
    assert insert(fence=2) == by
    assert insert(state="COMPLETED") == by
    # What is open is still asked about while a run stops; nothing new starts.
    assert insert(stop_reason="CANCEL") == (by if by == "attempt_starts" else "")


@pytest.mark.django_db
def test_a_transaction_may_write_the_run_before_its_actions_when_it_asks() -> None:
    run = make_run()
    action = make_action(run, "READY")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS run_settled DEFERRED")
        cursor.execute(f"UPDATE runs_run SET {END_RUN} WHERE id = %s", [run.pk])
        cursor.execute(
            "UPDATE runs_actionjournal SET state = 'VOIDED', ended_at = now(), "
            "revision = revision + 1 WHERE id = %s",
            [action.pk],
        )
        cursor.execute("SET CONSTRAINTS run_settled IMMEDIATE")


@contextmanager
def _session() -> Iterator[psycopg.Connection[Any]]:
    params = connection.get_connection_params()
    for ours in ("pool", "cursor_factory", "context"):
        params.pop(ours, None)
    with psycopg.connect(**params) as session:
        yield session


def _wait_until_blocked(session: psycopg.Connection[Any], watcher: psycopg.Connection[Any]) -> None:
    """Returns when `session` waits for a lock; fails after 5 s."""
    watcher.autocommit = True
    sql = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    give_up = monotonic() + 5
    while monotonic() < give_up:
        row = watcher.execute(sql, [session.info.backend_pid]).fetchone()
        if row and row[0]:
            return
    raise AssertionError("the second transaction did not wait for the first")


@pytest.mark.django_db(transaction=True)
@pytest.mark.requirement("R3")
@pytest.mark.parametrize("first", ["start", "end"])
def test_the_start_of_an_action_and_the_end_of_its_run_cannot_both_win(first: str) -> None:
    run = make_run()
    action = make_action(run, "READY")
    void = (
        "UPDATE runs_actionjournal SET state = 'VOIDED', ended_at = now(), revision = revision + 1 "
        "WHERE id = %s"
    )
    end = (f"UPDATE runs_run SET {END_RUN} WHERE id = %s", [run.pk])
    with _session() as winner, _session() as loser, _session() as watcher:
        if first == "start":
            winner.execute(f"UPDATE runs_actionjournal SET {START} WHERE id = %s", [action.pk])
            late = end
        else:
            winner.execute(void, [action.pk])
            winner.execute(*end)
            late = (COPY_ACTION, ["RUNNING", 1, None, action.pk])
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting = pool.submit(loser.execute, *late)
            _wait_until_blocked(loser, watcher)
            winner.commit()
            with pytest.raises(psycopg.errors.CheckViolation):
                waiting.result()
        loser.rollback()
