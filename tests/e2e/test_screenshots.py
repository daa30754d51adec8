"""The six main pages as pictures, light and dark: `make screenshots` writes them to docs/images."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from playwright.sync_api import Page

from runs.console.home import floor_id
from runs.models import Run
from runs.selectors import database_clock
from tests.console.world import Desk as Rows
from tests.console.world import live_worker, make_desk
from tests.e2e.conftest import Desk
from tests.factories import force_state, make_agent_version, make_run, make_user, make_waiting

OUTCOMES = ("COMPLETED",) * 9 + ("INCOMPLETE", "FAILED", "CANCELLED")


def history() -> None:
    """A day of runs: what the plots are made of."""
    now, version = database_clock(), make_agent_version(spec={"budget": {"cost": 400_000}})
    for number in range(120):
        at = now - timedelta(minutes=11 * number + number % 7)
        run = make_run(
            id=UUID(int=floor_id(at).int | (uuid4().int & (2**60 - 1))),
            agent_version=version,
            created_at=at,
            input={"request": f"Refund order ORD-{2000 + number}, it arrived late."},
        )
        state = OUTCOMES[number % len(OUTCOMES)]
        why = None if state == "COMPLETED" else {"FAILED": "MODEL_ERROR", "CANCELLED": "CANCEL"}
        force_state(
            run,
            state=state,
            ended_at=at + timedelta(seconds=9),
            stop_reason=why.get(state, "BUDGET") if why else None,
            turn=2 + number % 4,
            actions_used=3,
            cost_used=21_000 + 900 * (number % 11),
        )


def desk_of_today() -> Rows:
    rows = make_desk()
    for minutes, order, amount, role in (
        (11, "ORD-1042", "640.00 EUR", "agent_senior_approver"),
        (52, "ORD-1007", "75.50 EUR", ""),
        (480, "ORD-1019", "59.90 EUR", ""),
    ):
        call = {"order_id": order, "amount": amount, "reason": "late"}
        make_waiting(
            ttl=timedelta(minutes=minutes),
            required_count=2 if role else 1,
            role=role,
            action={"arguments": call, "resource_key": f"order:{order}", "effect": "WRITE"},
            impact={"summary": f"Refund {amount} for order {order}", "version": "3"},
            run=make_run(input={"request": f"Refund order {order}, it came three weeks late."}),
        )
    history()
    late = make_run(input={"request": "Refund order ORD-90, it never came."})
    past = database_clock() - timedelta(minutes=6)
    force_state(late, state="OBSERVING", wake_at=past, claims=1, lease_worker=uuid4(),
                claim_token=uuid4(), call_deadline_at=past)  # fmt: skip
    live_worker()
    return rows


def pages_of(rows: Rows) -> dict[str, str]:
    run: Run = rows.waiting.run
    return {
        "home": "/admin/",
        "review-queue": "/admin/review/",
        "review-item": f"/admin/review/{rows.waiting.approval.pk}/",
        "run": f"/admin/runs/run/{run.pk}/change/",
        "unknown": f"/admin/unknown/{rows.unknown.pk}/",
        "stuck": "/admin/stuck/",
    }


def test_the_six_main_pages_are_drawn(desk: Desk, tmp_path: Path) -> None:
    folder = Path(os.environ.get("AGENTCORE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    rows = desk_of_today()
    make_user("olga", superuser=True)
    for scheme in ("light", "dark"):
        page: Page = desk.sit("olga", color_scheme=scheme, viewport={"width": 1280, "height": 860})
        for name, url in pages_of(rows).items():
            page.goto(url)
            page.screenshot(path=folder / f"{name}-{scheme}.png")
    made = sorted(path.name for path in folder.glob("*.png"))
    assert len(made) >= 12
