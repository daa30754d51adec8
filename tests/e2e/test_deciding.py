"""Deciding with a real browser: by keyboard, twice, too late, side by side, without JavaScript."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalVote
from runs.claiming import escalate_approval
from runs.selectors import database_clock
from tests.e2e.conftest import Desk
from tests.factories import Waiting, decider, force_state, make_waiting

APPROVE = "button[value=APPROVE]"


def gone_on(page: Page) -> None:
    """The answer of a decision: the list of messages on the next page."""
    expect(page.locator(".messagelist li")).to_be_visible()


def open_item(page: Page, waiting: Waiting) -> None:
    page.goto(f"/admin/review/{waiting.approval.pk}/")
    expect(page.locator(APPROVE)).to_be_visible()


@pytest.mark.requirement("R93")
def test_decide_by_keyboard_alone(desk: Desk) -> None:
    waiting = make_waiting(action={"effect": "WRITE"})
    other = make_waiting(ttl=timedelta(hours=8))
    page = desk.sit("grace")
    for key in "gq":
        page.keyboard.press(key)
    page.wait_for_url("**/admin/review/")
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url(f"**/{waiting.approval.pk}/")
    page.keyboard.press("j")
    page.wait_for_url(f"**/{other.approval.pk}/")
    page.keyboard.press("k")
    page.wait_for_url(f"**/{waiting.approval.pk}/")
    page.keyboard.press("a")
    gone_on(page)
    assert waiting.reload().approval.state == "APPROVED"


def test_what_is_hard_to_undo_takes_two_keys(desk: Desk) -> None:
    waiting = make_waiting()
    page = desk.sit("grace")
    open_item(page, waiting)
    page.keyboard.press("a")
    expect(page.locator(APPROVE)).to_be_focused()
    assert waiting.reload().approval.state == "PENDING"
    page.keyboard.press("Enter")
    gone_on(page)
    assert waiting.reload().approval.state == "APPROVED"


def test_reject_by_keyboard_and_no_key_fires_inside_a_field(desk: Desk) -> None:
    waiting = make_waiting()
    page = desk.sit("grace")
    open_item(page, waiting)
    page.keyboard.press("r")
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.type("a wrong order, ask again?")
    assert page.url.endswith(f"{waiting.approval.pk}/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    gone_on(page)
    assert waiting.reload().action.detail.endswith("a wrong order, ask again?")


def test_the_keys_can_be_switched_off(desk: Desk) -> None:
    waiting = make_waiting(action={"effect": "WRITE"})
    page = desk.sit("grace")
    page.click("[data-keys-switch]")
    open_item(page, waiting)
    page.keyboard.press("a")
    page.keyboard.press("r")
    expect(page.locator("#reason")).not_to_be_focused()
    assert waiting.reload().approval.state == "PENDING"


def test_a_double_click_is_one_decision(desk: Desk) -> None:
    waiting = make_waiting(required_count=2)
    page = desk.sit("grace")
    open_item(page, waiting)
    page.dblclick(APPROVE)
    gone_on(page)
    assert ApprovalVote.objects.count() == 1


@pytest.mark.requirement("R107")
def test_a_stale_page_is_answered_with_what_is_there_now(desk: Desk) -> None:
    desk.watched.expected = ("409",)
    waiting = make_waiting()
    page = desk.sit("grace")
    open_item(page, waiting)
    after = escalate_approval(
        approval_id=waiting.approval.pk,
        params_hash=waiting.approval.params_hash,
        by=decider("user:henry"),
        reason="too much for me",
    )
    with page.expect_response(lambda r: r.request.method == "POST") as answer:
        page.click(APPROVE)
    assert answer.value.status == 409
    expect(page.get_by_role("alert").first).to_contain_text("Not decided.")
    notice = page.get_by_text("Another question has taken the place of this one")
    expect(notice).to_be_visible()
    expect(page.locator(APPROVE)).to_have_count(0)
    page.get_by_role("link", name="open it").click()
    page.wait_for_url(f"**/{after.approval_id}/")
    assert waiting.reload().action.state == "AWAITING_APPROVAL"


def test_the_time_runs_out_while_the_page_is_open(desk: Desk) -> None:
    desk.watched.expected = ("409",)
    waiting = make_waiting()
    page = desk.sit("grace")
    force_state(waiting.approval, expires_at=database_clock() + timedelta(seconds=3))
    open_item(page, waiting)
    plain = desk.sit("henry", java_script_enabled=False)
    open_item(plain, waiting)
    expect(page.locator("[data-expired]")).to_be_visible()
    expect(page.locator(APPROVE)).to_be_disabled()
    with plain.expect_response(lambda r: r.request.method == "POST") as answer:
        plain.click(APPROVE)  # a browser whose clock says nothing: the database decides
    assert answer.value.status == 409
    assert ApprovalVote.objects.count() == 0
    assert waiting.reload().action.state == "AWAITING_APPROVAL"


def test_two_reviewers_at_one_question(desk: Desk) -> None:
    desk.watched.expected = ("409",)
    waiting = make_waiting()
    grace, henry = desk.sit("grace"), desk.sit("henry")
    open_item(grace, waiting)
    open_item(henry, waiting)
    grace.click(APPROVE)
    gone_on(grace)
    henry.fill("#reason", "not this one")
    with henry.expect_response(lambda r: r.request.method == "POST") as answer:
        henry.click("button[value=REJECT]")
    assert answer.value.status == 409
    expect(henry.get_by_role("alert").first).to_contain_text("Not decided.")
    assert [vote.voter for vote in ApprovalVote.objects.all()] == ["user:grace"]


@pytest.mark.requirement("R108")
def test_everything_works_without_javascript(desk: Desk) -> None:
    first, second = make_waiting(), make_waiting(ttl=timedelta(hours=8))
    page = desk.sit("grace", java_script_enabled=False)
    page.goto("/admin/review/")
    page.locator("a.headline").first.click()
    page.click(APPROVE)
    assert page.locator(".messagelist li").inner_text().startswith("Approved.")
    page.goto(f"/admin/review/{second.approval.pk}/")
    page.fill("#reason", "wrong order")
    page.click("button[value=REJECT]")
    assert (first.reload().approval.state, second.reload().approval.state) == (
        "APPROVED",
        "REJECTED",
    )
    user = User.objects.get(username="grace")
    user.user_permissions.add(Permission.objects.get(codename="cancel_run"))
    page.goto(f"/admin/runs/run/{second.run.pk}/change/")
    page.get_by_text("Cancel", exact=True).click()
    page.fill("#cancel-reason", "not needed")
    page.get_by_role("button", name="Cancel run").click()
    assert second.reload().run.state == "CANCELLED"


def test_a_page_is_fresh_unless_somebody_writes(desk: Desk) -> None:
    """New questions are announced and not moved under the cursor; a dirty form is left alone."""
    make_waiting()
    page = desk.sit("grace")
    page.goto("/admin/review/")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    make_waiting()
    show = page.get_by_role("button", name="1 new: show")
    expect(show).to_be_visible()
    expect(page.locator("tr[data-row]")).to_have_count(1)
    show.click()
    expect(page.locator("tr[data-row]")).to_have_count(2)
