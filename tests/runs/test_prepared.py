"""Long texts are prepared once a connection; behind a pooler that swaps them, never again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from runs import prepared, sql
from runs.models import Attempt, Run
from tests.runs.acting import Downstream, go, propose_run, states, write_tool
from tests.runs.rows import NOW, make_action, make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No text was seen before, there is one connection with nothing prepared, and what a test
    switches off is on again."""
    monkeypatch.setattr(prepared, "_possible", True)
    _begin_anew()
    yield
    _begin_anew()


def _begin_anew() -> None:
    prepared._seen.clear()
    connection.close()
    connection.close_pool()


def _prepared() -> list[str]:
    """The names of the statements that this connection has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_prepared_statements WHERE name LIKE 'ac\\_%'")
        return [row[0] for row in cursor.fetchall()]


def _attempts(run: Run, *details: str) -> list[Attempt]:
    action = make_action(run)
    more: list[dict[str, Any]] = [{"n": n, "detail": text} for n, text in enumerate(details, 1)]
    return [
        sql.new(
            Attempt,
            run_id=run.pk,
            turn=1,
            action_id=action.pk,
            kind="TOOL",
            fence=run.fence,
            worker=run.pk,
            input_revision=1,
            send_by=NOW,
            started_at=NOW,
            result={"said": values["detail"], "number": -1},
            **values,
        )
        for values in more
    ]


def _write(run: Run, rows: list[Attempt], *, reason: str = "") -> bool:
    writes = sql.Together()
    writes.before("SELECT pg_advisory_xact_lock_shared(%s)", [7])
    writes.update(Run, where={"id": run.pk, "stop_reason": None}, sets={"reason": reason})
    writes.insert(rows)
    with transaction.atomic():
        return writes.run()


def test_a_text_that_comes_again_is_prepared_and_writes_the_same() -> None:
    texts = ["", "it's", "%s $1", "back\\slash", "\u00e9\u2028\U0001f600"]
    for number, text in enumerate(texts):
        run = make_run(fence=1)
        rows = _attempts(run, "first", text or "-")
        assert _write(run, rows, reason=text)
        for row in rows:
            stored = Attempt.objects.get(pk=row.pk)
            assert (stored.detail, stored.result) == (row.detail, row.result)
            assert (stored.outcome, stored.error_class, stored.started_at) == (None, "", NOW)
        assert Run.objects.get(pk=run.pk).reason == text
        assert len(_prepared()) == (number >= prepared.AFTER)


def test_an_error_leaves_no_name_that_is_taken_for_a_statement() -> None:
    run = make_run(fence=1)
    for _ in range(prepared.AFTER):
        assert _write(run, _attempts(make_run(fence=1), "x"))
    rows = _attempts(make_run(fence=1), "x")
    rows[0].kind = "NONE"
    with pytest.raises(IntegrityError):
        _write(run, rows)
    rows[0].kind = "TOOL"
    assert _write(run, rows)
    assert _write(run, _attempts(make_run(fence=1), "y"))


def test_a_connection_has_a_bounded_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST", 2)
    run = make_run(fence=1)
    for _ in range(prepared.AFTER + 1):
        for count in (1, 2, 3, 4):
            assert _write(run, _attempts(make_run(fence=1), *["x"] * count))
    assert len(_prepared()) == 2


def test_a_setting_switches_them_off(settings: Any) -> None:
    settings.AGENTCORE_OPTIONS = settings.AGENTCORE_OPTIONS.model_copy(
        update={"prepared_statements": False}
    )
    for _ in range(prepared.AFTER + 1):
        assert _write(make_run(fence=1), _attempts(make_run(fence=1), "x"))
    assert _prepared() == []


def test_behind_a_pooler_the_texts_are_sent_whole(shop: Downstream) -> None:
    """As if each transaction had the connection of another client."""
    pay = write_tool(shop)
    for _ in range(prepared.AFTER + 1):
        go(propose_run((pay, {"what": "a"})))
    assert _prepared()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")

    run = propose_run((pay, {"what": "b"}))
    go(run)

    assert states(run) == ["SUCCEEDED"]
    assert len(shop.effects) == prepared.AFTER + 2
    assert not prepared._possible
    assert _prepared() == []
