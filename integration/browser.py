"""A real browser for tests of pages: Debian's Chromium without a window, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PHONE = (360, 740)
DESK = (1280, 900)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own. Fails the test where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is missing: run .ci/packages as root", pytrace=False)
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # root has no sandbox
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Someone who looks at pages, and remembers what a browser complains of and asks others for."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        size: tuple[int, int] = DESK,
        scheme: Literal["light", "dark"] = "light",
        *,
        scripts: bool = True,
    ) -> None:
        self._context = browser.new_context(
            base_url=url,
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            java_script_enabled=scripts,
            accept_downloads=True,
        )
        self._host = urlsplit(url).netloc
        self.complaints: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self._complain(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._complain(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._look(request.url))

    def go(self, path: str, status: int = 200) -> Page:
        """Open a page. What it says with an error's status is no complaint."""
        answer = self.page.goto(path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status}"
        return self.page

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))

    def by_keyboard(self, most: int = 300) -> list[str]:
        """What has the focus after each Tab, until it leaves the page: the elements' text or name."""
        found = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            named = self.page.evaluate(
                "() => { const e = document.activeElement; return e === document.body ? null : "
                "(e.innerText || e.name || e.getAttribute('aria-label') || e.tagName) }"
            )
            if named is None:
                break
            found.append(str(named).strip())
        return found

    def leave(self) -> None:
        """Close the pages, before their server ends: a browser still asks for the icon of a page that is shown."""
        self._context.close()

    def close(self) -> None:
        """Leave; nothing may have been complained of."""
        self.leave()
        assert self.complaints == [], "\n".join(self.complaints)

    def _listen(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self._complain(f"{said.type}: {said.text} ({said.location.get('url')})")

    def _complain(self, text: str) -> None:
        if "the server responded with a status of" not in text:  # the page that says so is looked at
            self.complaints.append(text)

    def _look(self, url: str) -> None:
        if urlsplit(url).netloc != self._host:
            self.complaints.append(f"asked {url}")
