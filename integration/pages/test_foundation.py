"""What all pages have in common, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.browser import PHONE
from offloader.pages.access import PageAccess
from offloader.pages.rendering import Renderer
from offloader.pages.server import WebServer
from offloader.pages.site import PageAnswer, PageRequest, Site

pytestmark = pytest.mark.browser

TOKEN = "a-token-that-nobody-guesses"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


@pytest.fixture
def url() -> Iterator[str]:
    """A site behind a token, which shows what it was asked for."""
    renderer = Renderer()

    def echo(request: PageRequest) -> PageAnswer:
        return PageAnswer(renderer.render("problem.html", status=_Status, text=request.get("text")))

    site = Site({"/": echo}, renderer, PageAccess(TOKEN))
    server = WebServer(site, "127.0.0.1", 0, setting="--listen", instead="choose another")
    yield server.url
    server.close()


class _Status:
    phrase = "Found"


def test_a_token_is_given_once(url, visit) -> None:
    visitor = visit(url)
    page = visitor.go("/?text=hello", 401)
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    assert page.get_by_role("alert").inner_text().startswith("This is not the token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?text=hello")
    assert page.get_by_role("alert").inner_text() == "hello"
    assert visitor.go("/?text=again").get_by_role("alert").inner_text() == "again"
    assert page.evaluate("document.cookie") == ""


@pytest.mark.parametrize("scripts", [True, False])
def test_a_text_that_is_a_script_stays_text(url, visit, scripts: bool) -> None:
    visitor = visit(f"{url}", PHONE, "dark", scripts=scripts)
    visitor.go(f"/?token={TOKEN}")
    page = visitor.page
    page.goto(f"/?text={EVIL}")
    assert page.get_by_role("alert").inner_text() == EVIL.replace("\u202e", "\\u202e")
    assert page.locator("main script, main img").count() == 0


def test_dark_is_dark_and_a_phone_shows_all(url, visit) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        visitor = visit(url, PHONE, scheme)
        visitor.go(f"/?token={TOKEN}&text={'x' * 500}")
        assert visitor.overflow() <= 0
        grounds.append(visitor.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert visitor.by_keyboard()[0] == "Skip to the content"
    assert grounds == ["rgb(246, 247, 249)", "rgb(16, 20, 27)"]
