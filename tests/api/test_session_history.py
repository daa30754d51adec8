"""The next run of a session is shown what was said in the earlier ones, and the same for good."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from agentcore.context import Frame
from agentcore.ids import new_id
from agentcore.version import CODE_VERSION
from runs import contexts, services
from runs.models import Run, Turn
from runs.selectors import database_clock
from runs.steps.compile_context import _frame
from runs.view import load_view
from tests.factories import force_state
from tests.runs.api_support import caller, declare_agent, request_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(db: None) -> UUID:
    declare_agent()
    found: UUID = services.create_session(caller=caller()).id
    return found


def _ended(session: UUID, order: str, output: Any, state: str = "COMPLETED") -> Run:
    run = services.start_run(
        caller=caller(), request=request_for(input={"order_id": order}, session=session)
    )
    stop = {} if state == "COMPLETED" else {"stop_reason": "MODEL_ERROR"}
    force_state(run, state=state, output=output, ended_at=database_clock(), **stop)
    return run


def _next(session: UUID) -> Run:
    return services.start_run(
        caller=caller(), request=request_for(input={"order_id": "now"}, session=session)
    )


def _turn(run: Run, number: int = 1) -> tuple[dict[str, Any], Turn]:
    """Compile a turn as link 1 does and store its manifest; the request and the row."""
    force_state(run, turn=number - 1)
    view = load_view(run.id)
    pack = contexts.compile_turn(view, number=number, frame=_frame(view, number, ""))
    turn = Turn.objects.create(
        id=new_id(),
        run_id=run.id,
        number=number,
        model="scripted",
        manifest=pack.manifest,
        request_sha256=pack.sha256,
        code_version=CODE_VERSION,
        created_at=database_clock(),
    )
    force_state(run, turn=number)
    return pack.request, turn


def _said(request: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for item in request["input"]:
        content = item["content"]
        found.append((item["role"], content if isinstance(content, str) else content[0]["text"]))
    return found


@pytest.mark.requirement("R19", "R83")
def test_the_earlier_questions_and_answers_come_first(session: UUID) -> None:
    _ended(session, "one", {"text": "Which amount?"})
    _ended(session, "two", {"total": "3 EUR", "text": "Done."})
    _ended(session, "three", None, state="FAILED")
    said = _said(_turn(_next(session))[0])
    roles = [role for role, _ in said]
    assert roles == ["user", "assistant"] * 2 + ["user", "developer", "user", "developer"]
    assert [text.startswith("Input of an earlier run") for _, text in said[0::2][:3]] == [True] * 3
    assert '"one"' in said[0][1]
    assert said[1][1] == "Which amount?"
    assert '"total": "3 EUR"' in said[3][1]
    assert said[5][1].endswith("ended without an answer: failed.")
    assert said[6][1].startswith("Input of this run")
    assert '"now"' in said[6][1]


@pytest.mark.requirement("R19", "R23")
def test_every_turn_shows_the_same_and_is_rebuilt_byte_for_byte(session: UUID) -> None:
    first = _ended(session, "one", {"text": "Yes."})
    run = _next(session)
    request, turn = _turn(run)
    assert Frame.read(turn.manifest).earlier == (first.id.hex,)
    assert [entry["kind"] for entry in turn.manifest["items"]][:2] == ["session", "session"]
    force_state(run, state="COMPLETED", output={"text": "Now."}, ended_at=database_clock())
    _ended(session, "later", {"text": "Not for the earlier one."})
    again, _ = _turn(run, 2)
    assert again["input"][:3] == request["input"][:3]
    assert contexts.rebuild(run_id=run.id, turn=1).matches
    assert contexts.rebuild(run_id=run.id, turn=2).matches


@pytest.mark.requirement("R19")
def test_what_ends_meanwhile_is_not_shown_from_one_turn_to_the_next(session: UUID) -> None:
    first = _next(session)
    queued = services.start_run(
        caller=caller(), request=request_for(session=session, session_conflict="queue")
    )
    roles = [role for role, _ in _said(_turn(queued)[0])]
    force_state(first, state="COMPLETED", output={"text": "Late."}, ended_at=database_clock())
    assert [role for role, _ in _said(_turn(queued, 2)[0])] == roles == ["user", "developer"]
    assert contexts.rebuild(run_id=queued.id, turn=2).matches


def test_what_does_not_fit_is_left_out_from_the_oldest_and_counted(
    session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "SESSION_RUNS", 2)
    runs = [_ended(session, str(number), {"text": str(number)}) for number in range(4)]
    run = _next(session)
    _, turn = _turn(run)
    frame = Frame.read(turn.manifest)
    assert frame.earlier == (runs[2].id.hex, runs[3].id.hex)
    assert frame.earlier_left_out == 2
    assert turn.manifest["dropped"] == [{"kind": "session", "runs": 2, "reason": "no room"}]
    assert contexts.rebuild(run_id=run.id, turn=1).matches


def test_another_session_and_another_tenant_are_not_shown(session: UUID) -> None:
    other = services.create_session(caller=caller()).id
    _ended(other, "elsewhere", {"text": "Elsewhere."})
    services.start_run(caller=caller(), request=request_for())
    assert [role for role, _ in _said(_turn(_next(session))[0])] == ["user", "developer"]
