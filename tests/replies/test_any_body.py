"""Whatever the server answers: no crash, no action without a valid call, a valid next request."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore.decisions import ParsedReply, ToolCalls, parse_reply
from agentcore.lifecycle import RUN_TERMINAL, RunState
from runs.models import Event, Run
from tests.agentcore.loopback import Answer
from tests.replies.bodies_at_random import answers
from tests.replies.desk import Desk, said
from tests.replies.tools_of_the_desk import MADE, READ

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLES = int(os.environ.get("REPLY_EXAMPLES", "40"))
REST = RUN_TERMINAL | {RunState.WAITING_APPROVAL, RunState.SUSPENDED}


@pytest.mark.requirement("R13", "R14")
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=st.lists(answers(), min_size=1, max_size=3), ends=st.booleans())
def test_any_bodies_lead_to_an_end_with_valid_histories(
    desk: Desk, script: list[Answer], ends: bool
) -> None:
    MADE.clear()
    READ.clear()
    desk.script(*script, said()) if ends else desk.script(*script)
    run = desk.start()
    desk.drive(run)
    assert run.state in REST, run.reason
    failed = Event.objects.filter(run=run, type="step.failed").values_list("data", flat=True)
    assert list(failed) == [], "a step broke"
    desk.check(run)
    _no_action_without_a_call(desk, run)
    assert len(MADE) == _succeeded(desk, run, "desk.refund_order")
    assert len(READ) == _succeeded(desk, run, "desk.get_order")


def _no_action_without_a_call(desk: Desk, run: Run) -> None:
    """The actions of a turn are exactly the calls of its stored reply, in order."""
    actions = desk.actions(run)
    for turn in desk.turns(run):
        found = [(a.call_id, a.ordinal) for a in actions if a.turn == turn.number]
        reply = parse_reply(f'{{"status":"completed","output":{turn.output or "[]"}}}')
        calls = []
        if turn.decision == "TOOL_CALLS" and isinstance(reply, ParsedReply):
            assert isinstance(reply.decision, ToolCalls)
            calls = [(call.call_id, n) for n, call in enumerate(reply.decision.calls)]
        assert found == calls


def _succeeded(desk: Desk, run: Run, tool: str) -> int:
    return sum(a.tool == tool and a.state == "SUCCEEDED" for a in desk.actions(run))
