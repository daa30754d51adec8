"""Whatever a form is sent, the answer is a page, and shows nothing that the person may not see."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from runs import switches
from runs.control_models import Switch, SwitchChange
from tests.console.test_controls import TOOL
from tests.factories import decider, make_user, make_waiting

pytestmark = pytest.mark.django_db(transaction=True)

NASTY = (
    "\x00",
    "\x1b[31m\x00",
    "9" * 30,
    "-1",
    "0",
    "1e9",
    "nan",
    "-inf",
    "x" * 5000,
    "[" * 100_000,
    "\u202e=cmd()",
    "1e999",
    "{}",
    chr(34) + r"\u0000" + chr(34),
    "[" * 900 + "]" * 900,
)


@pytest.fixture
def root() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(make_user("root", superuser=True))
    return client


THRESHOLD = {
    "tool": TOOL,
    "argument": "amount",
    "op": ">",
    "value": "20.00 EUR",
    "verdict": "ASK",
    "role": "agent_approver",
    "quorum": "1",
    "hours": "1",
    "reason": "r",
}
STANDING = {
    "tool": TOOL,
    "argument": "amount",
    "op": "<",
    "value": "20.00 EUR",
    "tenant": "acme",
    "agent": "",
    "principal": "token:x",
    "max_uses": "3",
    "hours": "1",
    "reason": "r",
}


@pytest.mark.parametrize("nasty", NASTY, ids=lambda text: repr(text[:12]))
@pytest.mark.parametrize(
    ("path", "form"), [("add", THRESHOLD), ("standing", STANDING)], ids=["threshold", "standing"]
)
def test_a_policy_form(root: Client, path: str, form: dict[str, str], nasty: str) -> None:
    for name in form:
        answer = root.post(f"/admin/policy/{path}/", {**form, name: nasty})
        assert answer.status_code < 500, (name, nasty[:20])
    assert root.get("/admin/policy/").status_code == 200


@pytest.mark.parametrize("nasty", NASTY, ids=lambda text: repr(text[:12]))
def test_the_forms_of_a_run_and_a_question(root: Client, nasty: str) -> None:
    waiting, text = make_waiting(), nasty
    review = f"/admin/review/{waiting.approval.pk}"
    shown = {"params_hash": waiting.approval.params_hash, "reason": "r"}
    run = f"/admin/runs/run/{waiting.run.pk}/do"
    posts: list[tuple[str, dict[str, Any]]] = [
        (f"{review}/edit/", {**shown, "reason": text}),
        (f"{review}/edit/", {**shown, "params_hash": text}),
        (f"{review}/edit/", {**shown, "arg-amount": text}),
        (f"{review}/edit/", {**shown, "arg-order_id": text, "arg-reason": text}),
        (f"{review}/claim/", {"to": text}),
        (f"{review}/escalate/", {**shown, "reason": text, "role": text}),
        (f"{review}/", {**shown, "decision": text, "approval_id": text}),
        ("/admin/review/bulk/", {"ids": [text, str(waiting.approval.pk)], "count": text}),
        (f"{run}/pause/", {"reason": text}),
        (f"{run}/resume/", {"reason": text, "max_turns": text, "max_cost": text}),
        (f"{run}/resume/", {"reason": "r", "max_tokens": text}),
        (f"{run}/by-hand/", {"action_id": text, "reference": text, "evidence": text}),
        (f"/admin/unknown/{waiting.action.pk}/", {"verdict": "ABANDON", "evidence": text}),
        (f"/admin/unknown/{waiting.action.pk}/", {"action_revision": text, "result": text}),
        (f"{run}/cancel/", {"reason": text}),
    ]
    for path, form in posts:
        assert root.post(path, form).status_code < 500, (path, form)


@pytest.mark.parametrize("nasty", [*NASTY[:1], "no such agent", "x" * 300])
@pytest.mark.parametrize("to", ["on", "off"])
def test_a_switch_of_what_there_is_not(root: Client, nasty: str, to: str) -> None:
    for kind in ("agent", "tool"):
        answer = root.post(f"/admin/switch/{kind}/{quote(nasty)}/", {"to": to, "reason": "r"})
        assert answer.status_code < 500
    assert not Switch.objects.exists()
    assert not SwitchChange.objects.exists()


def test_what_is_gone_from_the_code_can_still_be_switched_on(root: Client) -> None:
    by = decider(permissions=frozenset({switches.PERMISSION}))
    switches.switch_off(kind="TOOL", name=TOOL, by=by, reason="r")
    Switch.objects.update(name="gone")
    root.post("/admin/switch/tool/gone/", {"to": "on", "reason": "r"})
    assert switches.all_off() == []


@pytest.mark.parametrize(
    ("permission", "path"),
    [
        ("cancel_run", "/admin/runs/run/{run}/do/cancel/"),
        ("pause_run", "/admin/runs/run/{run}/do/resume/"),
        ("edit_arguments", "/admin/review/{approval}/edit/"),
    ],
)
def test_a_verb_alone_shows_no_rows(permission: str, path: str) -> None:
    waiting = make_waiting()
    user = make_user("mallory", decide=False)
    user.user_permissions.set(Permission.objects.filter(codename=permission))
    client = Client()
    client.force_login(user)
    answer = client.post(path.format(run=waiting.run.pk, approval=waiting.approval.pk), {})
    assert answer.status_code == 403
    assert "ORD-77" not in answer.content.decode()
