"""What happens between the plan of a start and its one statement: nothing is sent after it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg.pq import TransactionStatus

from config.pooled.begin import Cursor
from runs import commits, controls, pausing, sql, switches
from runs.cancelling import cancel_run
from runs.control_models import Switch
from runs.models import AgentVersion, Attempt, Event, KeyOwner, Run
from runs.selectors import database_clock
from tests.factories import decider, force_state
from tests.runs.acting import TO_THE_TURN, Downstream, action, go, propose_run, states, write_tool
from tests.runs.rows import unguarded

pytestmark = pytest.mark.django_db(transaction=True)


def _elsewhere(act: Callable[[], object]) -> None:
    """Do it on another connection, to the end."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert not failed, failed


@pytest.fixture
def before_start(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done once, on another connection, right before the statement that starts a call."""
    todo: list[Callable[[], object]] = []
    run = sql.Together.run_to_the_end

    def patched(self: sql.Together, **last: Any) -> bool:
        starts = any("runs_attempt" in part and "INSERT" in part for part in self._parts)
        if starts and todo:
            _elsewhere(todo.pop())
        return run(self, **last)

    monkeypatch.setattr(sql.Together, "run_to_the_end", patched)
    return todo


def _steal(run: UUID) -> None:
    with unguarded():
        Run.objects.filter(pk=run).update(fence=90, claim_token=uuid4())


def _agent_off() -> None:
    """An agent that is not declared in code cannot be switched off; its row and stamp are made."""
    with transaction.atomic():
        controls.change()
        Switch.objects.create(
            kind="AGENT",
            name=AgentVersion.objects.get().name,
            is_off=True,
            held=True,
            reason="stop",
            changed_by="user:olga",
            changed_at=database_clock(),
        )


def _off(kind: str, name: str) -> None:
    by = decider("user:olga", permissions=frozenset({switches.PERMISSION}))
    switches.switch_off(kind=kind, name=name, by=by, reason="stop")


@pytest.mark.parametrize(
    "what", ["cancel", "pause", "steal", "tool off", "agent off", "intent", "action"]
)
def test_what_came_in_between_stops_the_start(
    shop: Downstream, before_start: list[Callable[[], object]], what: str
) -> None:
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a"}), dedupe_key="d")

    def intent() -> None:
        other = propose_run((pay, {"what": "a"}), dedupe_key="d2")
        theirs, mine = action(other), action(run)
        KeyOwner.objects.create(
            tenant=mine.tenant,
            tool=mine.tool,
            intent_key=mine.intent_key,
            generation=0,
            action=theirs,
            fingerprint=mine.fingerprint,
            created_at=theirs.created_at,
        )

    happenings: dict[str, Callable[[], object]] = {
        "cancel": lambda: cancel_run(run_id=run, actor="user:olga"),
        "pause": lambda: pausing.pause_run(run_id=run, actor="user:olga"),
        "steal": lambda: _steal(run),
        "agent off": _agent_off,
        "tool off": lambda: _off("TOOL", pay.spec.name),
        "intent": intent,
        "action": lambda: force_state(action(run), revision=77),
    }
    before_start.append(happenings[what])
    go(run)
    assert before_start == [], "the start was one statement"
    sent = 1 if what == "action" else 0
    assert len(shop.sent) == sent, states(run)
    assert Attempt.objects.filter(run_id=run, kind="TOOL").count() == sent
    revisions = list(Event.objects.filter(run_id=run).order_by("seq").values_list("seq", flat=True))
    assert revisions == list(range(1, len(revisions) + 1))


@pytest.mark.requirement("R16", "R61")
def test_a_result_outlasts_a_database_that_is_read_only_for_a_while(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, or after a reconnect to a standby."""
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a"}))
    name, url = connection.settings_dict["NAME"], connection.get_connection_params()
    give_up, tries = commits._give_up, itertools.count(1)

    def set_for_all(what: str) -> None:
        connection.close()
        connection.close_pool()
        with psycopg.connect(**{k: url[k] for k in _ADDRESS}, autocommit=True) as conn:
            conn.execute("SET default_transaction_read_only = off")
            conn.execute(f'ALTER DATABASE "{name}" {what}')

    def healed(tried: int, results: Any) -> bool:
        if next(tries) == 2:
            set_for_all("RESET default_transaction_read_only")
        return give_up(tried, results)

    shop.during = lambda: set_for_all("SET default_transaction_read_only = on")
    monkeypatch.setattr(commits, "_give_up", healed)
    try:
        go(run, inline=TO_THE_TURN)
    finally:
        set_for_all("RESET default_transaction_read_only")
    assert next(tries) > 2, "the database refused twice"
    assert (len(shop.sent), len(shop.effects), states(run)) == (1, 1, ["SUCCEEDED"])


_ADDRESS = ("dbname", "user", "password", "host", "port")


@pytest.mark.parametrize("code", ["57P01", "25P04", "XX000", ""])
def test_whatever_the_server_says_when_it_hangs_up_the_row_tells(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The commit of the start went through, and the answer is an error of some kind."""
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a"}))
    kind = psycopg.errors.lookup(code) if code else psycopg.OperationalError
    send, lost = Cursor.execute, itertools.count()

    def sending(self: Cursor, query: Any, *args: Any, **options: Any) -> Any:
        result = send(self, query, *args, **options)
        if str(query).endswith("; COMMIT") and "advisory" in str(query) and next(lost) == 0:
            self.connection.close()
            raise kind("terminating connection")
        return result

    monkeypatch.setattr(Cursor, "execute", sending)
    go(run, inline=TO_THE_TURN)
    assert next(lost) > 0
    assert (len(shop.sent), len(shop.effects), states(run)) == (1, 1, ["SUCCEEDED"])


def test_a_lost_reply_to_any_commit_is_looked_up_and_nothing_is_sent_twice(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = write_tool(shop)
    run = propose_run((pay, {"what": "a"}))
    send, commit = Cursor.execute, DatabaseWrapper._commit
    commits = itertools.count()

    def lose_every_second(conn: Any) -> None:
        if next(commits) % 2 == 0:
            conn.close()
            raise psycopg.OperationalError("the reply was lost")

    def sending(self: Cursor, query: Any, *args: Any, **options: Any) -> Any:
        result = send(self, query, *args, **options)
        if str(query).endswith("; COMMIT"):
            lose_every_second(self.connection)
        return result

    def committing(self: Any) -> None:
        open_still = self.connection.info.transaction_status != TransactionStatus.IDLE
        commit(self)
        if open_still:
            with self.wrap_database_errors:
                lose_every_second(self.connection)

    monkeypatch.setattr(Cursor, "execute", sending)
    monkeypatch.setattr(DatabaseWrapper, "_commit", committing)
    go(run, inline=TO_THE_TURN)
    monkeypatch.undo()
    assert next(commits) >= 6
    assert (len(shop.sent), len(shop.effects), states(run)) == (1, 1, ["SUCCEEDED"])
    assert Attempt.objects.filter(run_id=run, kind="TOOL").count() == 1
    assert KeyOwner.objects.filter(action__run_id=run).count() == 1
    numbers = Event.objects.filter(run_id=run).order_by("seq").values_list("seq", "txn")
    assert [seq for seq, _ in numbers] == list(range(1, len(numbers) + 1))
    assert len({txn for _, txn in numbers}) == len(numbers)
