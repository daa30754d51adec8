"""A streamed answer: live text for people, one reply for the run, nothing at all when it is cut."""

from __future__ import annotations

import json

import pytest
from django.conf import settings

from agentcore.lifecycle import RunState
from runs import live
from tests.agentcore.bodies import call, message, reply
from tests.agentcore.loopback import Answer
from tests.replies.desk import Desk, said
from tests.replies.streams import sse, stream_of
from tests.replies.tools_of_the_desk import READ

pytestmark = pytest.mark.django_db(transaction=True)

CALL = reply(
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
    call("c1", "get_order", arguments='{"order_id":"ord_1001"}'),
    usage={"input_tokens": 9, "output_tokens": 3},
)


@pytest.fixture
def streaming(desk: Desk) -> Desk:
    options = settings.AGENTCORE_OPTIONS.model_copy(update={"stream": True})
    settings.AGENTCORE_OPTIONS = options
    return desk


@pytest.mark.requirement("R14")
def test_a_whole_stream_is_a_reply(streaming: Desk) -> None:
    heard: list[str] = []
    done = live.listen(lambda _, text: heard.append(text))
    streaming.script(stream_of(CALL), stream_of(reply(message("All is well."))))
    run = streaming.start()
    streaming.drive(run)
    done()
    streaming.check(run)
    assert run.state == RunState.COMPLETED, run.reason
    assert all(request["stream"] is True for request in streaming.requests())
    assert "".join(heard) == "All is well."
    assert len(heard) > 1, "live text comes in fragments"
    assert READ == ["get_order"]
    assert run.output == {"text": "All is well."}
    sealed = [i for i in streaming.requests()[-1]["input"] if i["type"] == "reasoning"]
    assert sealed == json.loads(CALL)["output"][:1]


EVENTS = 8


@pytest.mark.requirement("R14", "R17")
@pytest.mark.parametrize("cut", range(1, EVENTS - 1))
def test_a_cut_stream_is_a_failed_attempt_and_runs_nothing(streaming: Desk, cut: int) -> None:
    streaming.script(stream_of(CALL, cut=cut), said())
    run = streaming.start()
    streaming.drive(run)
    streaming.check(run)
    assert run.state == RunState.COMPLETED
    assert READ == []
    assert streaming.actions(run) == []
    first, second = streaming.attempts(run)
    assert (first.outcome, first.error_class) == ("AMBIGUOUS", "stream_cut")
    assert second.outcome == "SUCCESS"


def test_the_number_of_events_above_is_that_of_the_stream() -> None:
    assert stream_of(CALL).body.count(b"data:") == EVENTS - 1


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(
    "answer",
    [
        sse([], tail="data: {"),
        sse(['{"type":"response.completed","response":{}']),
        sse(['{"type":"error","code":"server_error","message":"no"}']),
        sse(['{"type":"error","error":{"code":"server_error"}}']),
        sse(["[1]", "null", '"x"']),
    ],
)
def test_a_broken_stream_is_a_failed_attempt(streaming: Desk, answer: Answer) -> None:
    streaming.script(answer, said())
    run = streaming.start()
    streaming.drive(run)
    assert run.state == RunState.COMPLETED
    assert streaming.attempts(run)[0].outcome == "AMBIGUOUS"


def test_a_stream_that_says_that_there_is_no_quota_is_not_asked_again(streaming: Desk) -> None:
    streaming.script(sse(['{"type":"error","code":"insufficient_quota","message":"pay"}']))
    run = streaming.start()
    streaming.drive(run)
    assert (run.state, len(streaming.requests())) == (RunState.FAILED, 1)
    assert "no quota left" in run.reason


def test_changed_ids_and_windows_line_ends_do_not_matter(streaming: Desk) -> None:
    body = json.loads(CALL)
    events = [
        {
            "type": "response.output_item.done",
            "output_index": n,
            "item": {**item, "id": f"other_{n}"},
        }
        for n, item in reversed(list(enumerate(body["output"])))
    ]
    end = {"type": "response.completed", "response": {**body, "output": []}}
    texts = [json.dumps(event) for event in (*events, end)]
    streaming.script(sse(texts, newline="\r\n"), said())
    run = streaming.start()
    streaming.drive(run)
    assert READ == ["get_order"]
    streaming.check(run)


def test_a_listener_that_fails_disturbs_nothing(streaming: Desk) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("the browser is gone")

    done = live.listen(fails)
    streaming.script(stream_of(reply(message("All is well."))))
    run = streaming.start()
    streaming.drive(run)
    done()
    assert run.state == RunState.COMPLETED
