"""One browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser

from integration.browser import Visitor, chromium
from tests.offload.live.showing import Shown
from tests.offload.live.states import serving


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with chromium() as found:
        yield found


@pytest.fixture
def serve() -> Iterator[Callable[[Shown], str]]:
    """Serves a page of `run`, from the address that it returns, until every visitor has left."""
    with ExitStack() as servers:
        yield lambda shown: servers.enter_context(serving(shown))


@pytest.fixture
def visit(browser: Browser, serve: Callable[[Shown], str]) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors of a site; at the end none of them may have complained."""
    visitors: list[Visitor] = []

    def make(url: str, *arguments: object, **named: object) -> Visitor:
        visitors.append(Visitor(browser, url, *arguments, **named))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()
