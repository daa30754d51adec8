"""`POST /callbacks/{source}`: only what the source signed, now and unaltered, is ever written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from agentcore.lifecycle import ActionState
from config.options import OptionsError, load_options
from runs.models import Event, Incident
from runs.reconcile_models import Callback
from tests.runs.api_support import assert_problem
from tests.runs.callback_support import NEXT_SECRET, SECRET, headers, message, post, sources
from tests.unknown import Unknown, make_sent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _payments() -> Iterator[None]:
    with sources():
        yield


@pytest.fixture
def made() -> Unknown:
    return make_sent()


def raw_of(made: Unknown, **data: Any) -> bytes:
    return json.dumps(message(made, **{"reference": "rf_1", **data})).encode()


def nothing_written(made: Unknown) -> None:
    before = made.run.revision
    assert not Callback.objects.exists()
    assert made.reload().run.revision == before
    assert made.action.state == ActionState.UNKNOWN


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("secret", [SECRET, NEXT_SECRET])
def test_a_signed_word_settles_the_write(made: Unknown, secret: str) -> None:
    raw = raw_of(made)
    given = headers(raw, secret=secret, event_id="evt_7")
    answer = post(raw, given)
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert (body["outcome"], body["repeated"]) == ("succeed", False)
    assert made.reload().action.state == ActionState.SUCCEEDED
    again = post(raw, given).json()
    assert again == {**body, "repeated": True}
    row = Callback.objects.get()
    assert (row.source, row.event_id, row.action_id) == ("payments", "evt_7", made.action.pk)


def test_the_example_of_the_specification_is_accepted() -> None:
    """Their secret, id, time and body give their signature: ours are signed the same way."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = datetime.fromtimestamp(1614265330, tz=UTC)
    signature = Webhook(secret).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, '{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def _headers_with(name: str, value: str) -> Any:
    def change(given: dict[str, str]) -> dict[str, str]:
        return {**given, name: value}

    return change


def _without(name: str) -> Any:
    def change(given: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in given.items() if key != name}

    return change


@pytest.mark.parametrize(
    "change",
    [
        _headers_with("webhook-id", "another"),
        _headers_with("webhook-timestamp", "1700000000"),
        _headers_with("webhook-timestamp", "nan"),
        _headers_with("webhook-signature", "v1,AAAA"),
        _headers_with("webhook-signature", "nonsense"),
        _headers_with("webhook-signature", "v1,***"),
        _headers_with("webhook-signature", "v1a,AAAA v2,BBBB"),
        _without("webhook-id"),
        _without("webhook-timestamp"),
        _without("webhook-signature"),
    ],
)
def test_a_forged_message_is_refused(made: Unknown, change: Any) -> None:
    raw = raw_of(made)
    assert_problem(post(raw, change(headers(raw))), 401, "signature_invalid")
    nothing_written(made)


def test_an_altered_body_is_refused(made: Unknown) -> None:
    raw = raw_of(made)
    altered = raw.replace(b"rf_1", b"rf_2")
    assert_problem(post(altered, headers(raw)), 401, "signature_invalid")
    nothing_written(made)


def test_a_message_of_another_source_is_refused(made: Unknown) -> None:
    raw = raw_of(made)
    other = "whsec_" + "A" * 40
    assert_problem(post(raw, headers(raw, secret=other)), 401, "signature_invalid")
    nothing_written(made)


@pytest.mark.parametrize("ago", [timedelta(minutes=5, seconds=5), -timedelta(minutes=5, seconds=5)])
def test_a_replayed_or_future_message_is_refused(made: Unknown, ago: timedelta) -> None:
    raw = raw_of(made)
    assert_problem(post(raw, headers(raw, ago=ago)), 401, "signature_invalid")
    nothing_written(made)


@pytest.mark.parametrize("source", ["nobody", "Payments", "payments%00", "x" * 300])
def test_an_unknown_source_is_not_there(made: Unknown, source: str) -> None:
    raw = raw_of(made)
    assert_problem(post(raw, headers(raw), source=source), 404, "not_found")
    nothing_written(made)


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "malformed_json"),
        (b"\xff", 401, "signature_invalid"),
        (b'{"type": "effect.succeeded"}', 422, "invalid_input"),
        (b'{"type": "effect.succeeded", "data": {}}', 422, "invalid_input"),
        (b'{"type": "refund.done", "data": {"reference": "rf_1"}}', 422, "invalid_input"),
        (b'{"type": "effect.failed", "data": {"reference": "\\u0000"}}', 422, "invalid_input"),
        (b'{"type": "effect.failed", "data": {"reference": "r", "x": 1}}', 422, "invalid_input"),
        (b'"' + b"x" * 300_000 + b'"', 413, "body_too_large"),
    ],
)
def test_a_bad_body_says_what_is_wrong(made: Unknown, raw: bytes, status: int, code: str) -> None:
    assert_problem(post(raw, headers(raw)), status, code)
    nothing_written(made)


def test_an_id_that_is_used_for_another_body_is_refused(made: Unknown) -> None:
    first, second = raw_of(made), raw_of(made, reference="rf_2")
    assert post(first, headers(first, event_id="evt_7")).status_code == 200
    answer = post(second, headers(second, event_id="evt_7"))
    assert_problem(answer, 409, "callback_id_reused")
    assert (Callback.objects.count(), Incident.objects.count()) == (1, 0)


def test_a_word_for_nobody_is_kept(made: Unknown) -> None:
    raw = json.dumps(message(None, idempotency_key="ac1_nobody")).encode()
    assert post(raw, headers(raw)).json()["outcome"] == "parked"
    assert not Event.objects.filter(type="callback.recorded").exists()


def test_the_secret_is_checked_at_the_start_and_never_shown() -> None:
    short = "whsec_" + "QUJD"
    for value in (
        f'{{"payments": "{short}"}}',
        '{"payments": "not base64!"}',
        '{"Pay ments": "x"}',
    ):
        with pytest.raises(OptionsError) as caught:
            load_options(values={}, environment={"AGENTCORE_CALLBACKS": value})
        assert short not in str(caught.value)
    given = {"payments": {"secrets": [SECRET], "tools": ["refund_desk.*"]}}
    options = load_options(values={"callbacks": given}, environment={})
    source = options.callbacks["payments"]
    assert source.speaks_of("refund_desk.submit_refund")
    assert not source.speaks_of("mailer.send")
    assert SECRET not in repr(options)


def test_the_message_of_the_page_is_accepted(made: Unknown) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "callbacks.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    key = str(made.action.idempotency_key)
    raw = block.replace("ac1_5b0f…", key).encode()
    assert post(raw, headers(raw)).json()["outcome"] == "succeed"
    assert made.reload().action.downstream_ref == "ref_77"
