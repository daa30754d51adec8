"""Every page in a real browser: no violation of the policy, accessible, nothing cut off."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.console.test_untrusted import CORPUS, everywhere
from tests.console.world import Desk as Rows
from tests.console.world import make_desk
from tests.e2e.conftest import Desk
from tests.factories import make_user

AXE = Axe()
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


def boss(desk: Desk, **options: Any) -> Page:
    make_user("boss", superuser=True)
    return desk.sit("boss", **options)


def violations(page: Page) -> list[str]:
    """What axe found, with the first element of each."""
    found = AXE.run(page, options=RULES).response["violations"]
    return [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:160]}" for v in found]


@pytest.mark.requirement("R93")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(desk: Desk, scheme: str) -> None:
    rows = make_desk()
    page = boss(desk, color_scheme=scheme, bypass_csp=True)  # axe brings its script with it
    faults = {}
    for url in rows.pages():
        page.goto(url)
        if found := violations(page):
            faults[url] = found
    assert faults == {}


@pytest.mark.requirement("R93")
def test_no_page_breaks_the_policy(desk: Desk) -> None:
    """The browser's own log, with scripts running and the page refreshed once."""
    rows = make_desk()
    page = boss(desk)
    for url in rows.pages():
        answer = page.goto(url)
        assert answer is not None
        assert answer.status == 200, url
        assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(desk: Desk, width: int) -> None:
    rows = make_desk()
    page = boss(desk, viewport={"width": width, "height": 900})
    wide = {}
    for url in rows.pages():
        page.goto(url)
        over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if over > 0:
            wide[url] = over
    assert wide == {}


@pytest.mark.requirement("R93")
def test_text_of_models_and_tools_runs_nothing(desk: Desk) -> None:
    """In the browser, what the parser tests say of the HTML: no element, no request, no dialog."""
    text = "".join(CORPUS[n] for n in (1, 2, 4, 9))[:190]
    waiting = everywhere(text)
    rows = Rows(waiting, waiting.action, waiting.run)
    page = boss(desk)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for url in rows.pages():
        if "/unknown/" in url or url.endswith(("/edit/", "/turn/1/")):
            continue  # not for this row
        page.goto(url)
        assert page.locator("main img, main iframe, main base, main object").count() == 0, url
        assert page.locator("[onerror], [onload], [onfocus]").count() == 0, url
    assert dialogs == []
