"""What a drive remembers of settled turns answers as the rows do when they are read anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from runs import contexts, limits, sql
from runs.history import History
from runs.models import ActionJournal, AgentVersion, Run, Turn
from runs.view import View

A = ActionState
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = (A.SUCCEEDED, A.SUCCEEDED, A.FAILED, A.DENIED)
SPEC = {
    "budget": {"failures": 6, "parallel": 3, "tool_calls": {"a": 5}},
    "no_progress": {"same_call": 2, "same_error": 3, "turns_without_fact": 3},
    "settings": {},
}


@dataclass
class Said:
    """One turn of a model: what it decided, and how its calls ended."""

    decision: str
    calls: list[tuple[str, str, ActionState, str]] = field(default_factory=list)


CALLS = st.tuples(
    st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(ENDS), st.sampled_from("1234")
)
TURNS = st.one_of(
    st.builds(Said, st.just("TOOL_CALLS"), st.lists(CALLS, min_size=1, max_size=4)),
    st.builds(Said, st.sampled_from(["INVALID", contexts.NO_DECISION])),
)


def turn_of(run: Run, number: int) -> Turn:
    return sql.new(
        Turn,
        run_id=run.id,
        number=number,
        model="scripted",
        manifest={},
        request_sha256="",
        code_version="",
        created_at=NOW,
    )


def decide(turn: Turn, said: Said) -> list[ActionJournal]:
    """Record a reply: its actions are there, and nothing of them has run."""
    turn.decision, turn.output, turn.decided_at = said.decision, "[]", NOW
    return [
        sql.new(
            ActionJournal,
            id=new_id(),
            run_id=turn.run_id,
            tenant="acme",
            turn=turn.number,
            ordinal=ordinal,
            call_id=f"c{ordinal}",
            tool=tool,
            tool_version="1",
            effect="WRITE" if tool == "b" else "READ",
            params_hash=params,
            created_at=NOW,
        )
        for ordinal, (tool, params, _, _) in enumerate(said.calls)
    ]


def finish(actions: list[ActionJournal], said: Said) -> None:
    for action, (_, _, state, seen) in zip(actions, said.calls, strict=True):
        action.state, action.observation, action.ended_at = state, seen, NOW
        action.reason = "" if state == A.SUCCEEDED else "REFUSED"


def view_of(run: Run, turns: list[Turn], actions: list[ActionJournal]) -> View:
    agent = AgentVersion(id=uuid4(), name="desk", spec=SPEC)
    return View(run, agent, list(turns), list(actions), [], {}, NOW, History())


@given(st.lists(TURNS, max_size=14), st.integers(0, 3))
def test_limits_that_remember_say_what_the_rows_say(said: list[Said], since: int) -> None:
    run = Run(id=uuid4(), max_turns=12, max_actions=20, progress_from=since)
    remembering = view_of(run, [], [])
    turns, actions = remembering.turns, remembering.actions
    for number, one in enumerate(said, start=1):
        assert limits.stop_of(remembering) == limits.stop_of(view_of(run, turns, actions))
        assert limits.turns_used(remembering) == limits.turns_used(view_of(run, turns, actions))
        turn = turn_of(run, number)
        turns.append(turn)
        run.turn = number
        remembering.settle()  # the transaction that opens a turn was written
        made = decide(turn, one)
        actions += made
        assert limits.over(remembering) == limits.over(view_of(run, turns, actions))
        remembering.settle()
        finish(made, one)
        if number % 5 == 0:  # an operator lets it go on
            run.max_actions += 1
            run.progress_from = number - 1
        shown = contexts.exchanges_of(remembering, before=number + 1)
        assert shown == contexts.exchanges_of(view_of(run, turns, actions), before=number + 1)
    assert remembering.history.through >= len(said) - 1
    assert limits.stop_of(remembering) == limits.stop_of(view_of(run, turns, actions))


def test_only_what_cannot_change_is_history() -> None:
    """Not the turn under way, not a call without its observation, and nothing after it."""
    run = Run(id=uuid4(), max_turns=12, max_actions=20, turn=4)
    turns = [turn_of(run, number) for number in (1, 2, 3, 4)]
    one = Said("TOOL_CALLS", [("a", "x", A.SUCCEEDED, "1")])
    made = [decide(turn, one) for turn in turns]
    finish(made[0], one)
    finish(made[2], one)
    made[1][0].state, made[1][0].ended_at = A.SUCCEEDED, NOW  # done, and not yet observed
    view = view_of(run, turns, [row for rows in made for row in rows])
    view.settle()
    assert view.history.through == 1
    assert [row.turn for row in view.recent] == [2, 3, 4]
    finish(made[1], one)
    view.settle()
    assert view.history.through == 3
    assert [row.turn for row in view.recent] == [4]


def test_a_plan_that_was_not_written_is_forgotten() -> None:
    run = Run(id=uuid4(), max_turns=12, max_actions=20, turn=1)
    turn, one = turn_of(run, 1), Said("TOOL_CALLS", [("a", "x", A.FAILED, "1")])
    actions = decide(turn, one)
    view = view_of(run, [turn], actions)
    finish(actions, one)
    limits.stop_of(view)
    assert view.history.watches["hard"].through == 1
    view.history.forget_later()
    assert not view.history.watches
