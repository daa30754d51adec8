"""Text of downstreams, of the model and of people stays text on the pages about unknown writes."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client

from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.reconciling import Verdict
from agentcore.values import AttemptKind
from runs.models import Attempt
from runs.reconcile_models import Callback, Reconciliation
from runs.services import record_verdict
from tests.console.dom import Page
from tests.console.test_untrusted import BIDI, CORPUS, faults_of
from tests.factories import force_state, make_run, make_user
from tests.unknown import HEIDI, Unknown, make_sent

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


def everywhere(text: str) -> Unknown:
    """An unknown write with `text` in every field that somebody else writes."""
    made = make_sent(
        run=make_run(principal=f"token:{text}"[:200], on_behalf_of=text[:200]),
        tool=text[:120],
        tool_version=text[:40],
        arguments={text: text, "list": [text, {"deep": text}]},
        resource_key=text[:200],
        precheck={"preview": {"summary": text}},
    )
    make_sent(tool=text[:120], resource_key=text[:200], downstream_ref=text[:200])
    force_state(made.attempt, detail=text, error_class=text[:80], reference=text[:200])
    _probe(made, text)
    _callback(made, text)
    _verdict(made, text)
    columns = {"detail": text, "reason": text[:60], "downstream_ref": text[:200]}
    force_state(made.action, state=ActionState.NEEDS_HUMAN, contract=text[:10], **columns)
    return made


def _probe(made: Unknown, text: str) -> None:
    Attempt.objects.create(
        id=new_id(),
        run_id=made.run.pk,
        action=made.action,
        turn=1,
        kind=AttemptKind.PROBE,
        n=1,
        fence=0,
        worker=uuid4(),
        input_revision=1,
        send_by=made.attempt.send_by,
        started_at=made.attempt.started_at,
        ended_at=made.attempt.ended_at,
        outcome="SUCCESS",
        result={"verdict": text, text: text},
    )


def _callback(made: Unknown, text: str) -> None:
    Callback.objects.create(
        source="payments",
        event_id=text[:255],
        body_sha256="b" * 64,
        word="PENDING",
        idempotency_key="k",
        reference=text[:200],
        result={text: text},
        detail=text,
        sent_at=made.run.created_at,
        created_at=made.run.created_at,
        action=made.action,
        did="EVIDENCE",
        settled_at=made.run.created_at,
    )


def _verdict(made: Unknown, text: str) -> None:
    record_verdict(
        action_id=made.action.pk,
        action_revision=made.action.revision,
        verdict=Verdict.STILL_UNKNOWN,
        person=HEIDI,
        evidence_text=text,
        next_probe_in=timedelta(hours=1),
    )
    row = Reconciliation.objects.get()
    force_state(row, person=text[:200], evidence_link=text[:500], downstream_ref=text[:200])
    made.reload()


def pages_of(made: Unknown) -> list[str]:
    return ["/admin/unknown/", f"/admin/unknown/{made.action.pk}/"]


@pytest.mark.parametrize("text", CORPUS)
def test_text_from_outside_stays_text(root: Client, text: str) -> None:
    made = everywhere(text)
    for url in pages_of(made):
        response = root.get(url)
        assert response.status_code == 200, url
        page = Page(response.content.decode())
        assert faults_of(page) == [], url
        assert "unsafe" not in response["Content-Security-Policy"]
    assert [form.action for form in page.forms if "decision" in form.fields] == []
    assert sum("action_revision" in form.fields for form in page.forms) == 1
    shown = " ".join(page.text_of("pre"))
    assert " ".join(json.dumps(text, ensure_ascii=False).split()) in shown


@pytest.mark.parametrize("text", CORPUS)
def test_what_was_typed_comes_back_as_text(root: Client, text: str) -> None:
    made = make_sent()
    url = f"/admin/unknown/{made.action.pk}/"
    fields = ("evidence", "evidence_link", "downstream_ref", "result", "verdict", "ground")
    response = root.post(url, {"action_revision": "1", **dict.fromkeys(fields, text)})
    assert response.status_code == 400
    assert faults_of(Page(response.content.decode())) == []


def test_what_cannot_be_seen_is_shown(root: Client) -> None:
    for url in pages_of(everywhere(BIDI)):
        html = root.get(url).content.decode()
        for hidden in "\u202e\u202c\u200b\u2066\x07\u3164":
            assert hidden not in html, (url, hex(ord(hidden)))
        assert "⟨U+202E⟩" in html, url
