"""One statement for one transaction: what fits into it, and that it keeps all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, transaction

from agentcore.lifecycle import ActionState
from runs import keys, sql
from runs.at_once import together
from runs.models import ActionJournal, Attempt, KeyOwner, Run, Turn
from runs.transitions import Draft, write_at_once
from tests.runs.rows import NOW, make_action, make_attempt, make_key_owner, make_run, make_turn

pytestmark = pytest.mark.django_db(transaction=True)


def _draft(run: Run) -> Draft:
    return Draft(run=run, now=NOW, event="run.advanced")


def _write(run: Run, *drafts: Draft, **held: Any) -> bool:
    """As `commits` does: kept when every guard held."""
    with transaction.atomic(durable=True):
        end = write_at_once(run, *drafts, actor="worker:test", held={"fence": run.fence, **held})
        if end is None:
            transaction.set_rollback(True)
    return end is not None


def test_two_drafts_change_an_action_in_one_update_and_raise_its_revision_twice() -> None:
    run = make_run()
    action = make_action(run, "RUNNING", observation=None, result=None, revision=3)
    truth, steps = _draft(run), _draft(run)
    truth.move_action(action, ActionState.SUCCEEDED, result={"ok": True})
    steps.set_action(action, observation="done")

    assert _write(run, truth, steps)

    stored = ActionJournal.objects.get(pk=action.pk)
    assert (stored.state, stored.observation, stored.revision) == ("SUCCEEDED", "done", 5)
    assert Run.objects.get(pk=run.pk).revision == run.revision + 1
    (event,) = run.events.all()
    assert [move["to"] for move in event.data["transitions"]] == ["SUCCEEDED"]


def test_nothing_is_kept_when_one_guard_does_not_hold() -> None:
    run = make_run()
    attempt = make_attempt(make_action(run), outcome=None, ended_at=None, result=None)
    make_turn(run, number=2, decision="", decided_at=None)
    Attempt.objects.filter(pk=attempt.pk).update(outcome="SUCCESS", ended_at=NOW)
    draft = _draft(run)
    draft.set_run(reason="not to be kept")
    draft.set_row(attempt, guard={"outcome": None}, outcome="REFUSED", ended_at=NOW)
    draft.note(why="a second outcome")

    assert not _write(run, draft)

    stored = Run.objects.get(pk=run.pk)
    assert (stored.revision, stored.reason) == (run.revision, "")
    assert Attempt.objects.get(pk=attempt.pk).outcome == "SUCCESS"
    assert not run.events.exists()


@pytest.mark.parametrize(
    "changed", [{"revision": 6}, {"fence": 2}], ids=["another revision", "another fence"]
)
def test_a_run_that_has_moved_on_is_not_written(changed: dict[str, int]) -> None:
    run = make_run(revision=5)
    sql.update(Run, where={"id": run.pk}, sets=changed)
    draft = _draft(run)
    draft.set_run(reason="too late")

    assert not _write(run, draft)

    assert Run.objects.get(pk=run.pk).reason == ""


def test_an_intent_that_has_an_owner_is_not_taken() -> None:
    run = make_run()
    action = make_action(run, intent_key="i" * 64)
    owner = make_key_owner(
        make_action(make_run()), tool=action.tool, intent_key="i" * 64, released_at=None
    )
    draft = _draft(run)
    draft.set_run(reason="takes it")
    draft.also(keys._Take(action, NOW))

    assert not _write(run, draft)

    assert list(KeyOwner.objects.all()) == [owner]
    assert Run.objects.get(pk=run.pk).reason == ""


def test_what_needs_a_look_in_between_does_not_fit() -> None:
    run = make_run()
    action, turn = make_action(run, "RUNNING"), make_turn(run)
    moved, again = _draft(run), _draft(run)
    moved.move_action(action, ActionState.UNKNOWN)
    again.move_action(action, ActionState.RUNNING)
    assert together([moved, again]) is None, "each move is seen by the rules of the table"

    guarded = _draft(run)
    guarded.set_row(turn, text="first")
    guarded.set_row(turn, guard={"decision": ""}, decision="FINAL")
    assert together([guarded]) is None, "the guard is about a row that was changed before it"

    fresh = _draft(run)
    made = Turn(run_id=run.pk, number=2)
    fresh.add(made)
    fresh.row_sets.append((made, {}, {"text": "x"}))
    assert together([fresh]) is None, "a row cannot be made and changed at once"

    called = _draft(run)
    called.also(lambda: None)
    assert together([called]) is None, "an effect of which nothing is known"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "it's",
        '"quoted"',
        "back\\slash",
        "\\'",
        "%s %% %(a)s",
        "é\u2028\U0001f600",
        "a\nb",
    ],
    ids=repr,
)
def test_a_value_in_the_text_of_a_statement_comes_back_as_it_was(text: str) -> None:
    run = make_run()
    turn = sql.new(
        Turn,
        run_id=run.pk,
        number=7,
        model=text,
        manifest={"text": text, "number": -1},
        request_sha256="0" * 64,
        output=text,
        code_version="test",
        created_at=NOW,
    )
    draft = _draft(run)
    draft.add(turn)
    draft.set_run(reason=text)

    assert _write(run, draft)

    stored = Turn.objects.get(pk=turn.pk)
    assert (stored.model, stored.output, stored.manifest) == (text, text, turn.manifest)
    assert (stored.text, stored.usage, stored.created_at) == ("", None, NOW)
    assert Run.objects.get(pk=run.pk).reason == text


def test_a_new_row_has_what_djangos_constructor_gives_it() -> None:
    plain = Attempt(run_id=NOW, n=1)
    quick = sql.new(Attempt, run_id=NOW, n=1)

    left_out = {"_state", "id"}
    assert {k: v for k, v in vars(quick).items() if k not in left_out} == {
        k: v for k, v in vars(plain).items() if k not in left_out
    }
    assert quick._state.adding
    with pytest.raises(TypeError, match="has no nonsense"):
        sql.new(Attempt, nonsense=1)


def test_a_value_that_cannot_be_stored_is_an_error_of_django() -> None:
    """So that whoever catches `DatabaseError` keeps the truth and drops the steps."""
    run = make_run()
    with pytest.raises(DataError):
        sql.insert([sql.new(Attempt, run_id=run.pk, n=1, detail="\0")])
