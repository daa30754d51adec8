"""A real browser: the system's Chromium, driven by Playwright, against the console's live server.

Every page that a test opens is watched: a script error, a refused load (Content-Security-Policy)
or a request to another host fails the test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.factories import make_user

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 30_000
"""Milliseconds until something must have happened; a page is fresh after 5 s."""
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.e2e)


@dataclass
class Watched:
    """What the browser complained about."""

    host: str
    faults: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(word in message.text for word in self.expected):
            self.faults.append(f"{message.type}: {message.text}")

    def on_error(self, error: Exception) -> None:
        self.faults.append(f"script: {error}")

    def on_request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc != self.host:
            self.faults.append(f"load from elsewhere: {url}")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of this folder.

    Its loop runs in the thread of the tests, where Django would refuse its own ORM and asyncio a
    second loop: both end with it.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        if os.environ.get("AGENTCORE_REQUIRE_BROWSER") == "1":
            pytest.fail("there is no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium: apt-get install chromium")
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def watched(live_server: object) -> Iterator[Watched]:
    """Fails the test at its end when the browser complained."""
    found = Watched(urlsplit(str(live_server)).netloc)
    yield found
    assert found.faults == []


class Desk:
    """Opens pages for signed-in people."""

    def __init__(self, browser: Browser, url: str, watched: Watched) -> None:
        self._browser, self.url, self.watched = browser, url, watched
        self._contexts: list[BrowserContext] = []

    def sit(self, name: str, **options: object) -> Page:
        """A page of this person's own browser window, signed in through the login form."""
        user = User.objects.filter(username=name).first() or make_user(name)
        context = self._browser.new_context(base_url=self.url, **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self.watched.on_console)
        page.on("pageerror", self.watched.on_error)
        page.on("request", lambda request: self.watched.on_request(request.url))
        page.goto("/admin/login/?next=/admin/help/")
        page.fill("#id_username", user.get_username())
        page.fill("#id_password", "secret-for-tests")
        page.click("[type=submit]")
        page.wait_for_url("**/admin/help/")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def desk(
    chromium: Browser, transactional_db: None, live_server: object, watched: Watched
) -> Iterator[Desk]:
    made = Desk(chromium, str(live_server), watched)
    yield made
    made.close()
