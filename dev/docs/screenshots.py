"""Makes the pictures of the manual's pages: `python -m dev.docs.screenshots [NAME ...]`. Needs Chromium."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from integration.browser import Visitor, chromium
from offloader.pages.server import WebServer
from offloader.storage.local import LocalStore
from tests.viewer.example import ORDERS, write
from tests.viewer.support import site_of

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE = (1060, 660)
LARGEST = 60 * 1024


@contextmanager
def archive_with_a_loss() -> Iterator[str]:
    """A topic of which some is deleted, and some was lost."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        write(store)
        server = WebServer(site_of(store), "127.0.0.1", 0, setting="--listen", instead="choose another")
        try:
            yield f"{server.url}/topic?name={ORDERS}"
        finally:
            server.close()


PICTURES: Mapping[str, Callable[[], AbstractContextManager[str]]] = {"archive-with-a-loss": archive_with_a_loss}
"""By name: what serves the page, and gives its address."""


def take(browser: Browser, name: str) -> None:
    """One picture. Raises ValueError where it is too large for the repository."""
    with PICTURES[name]() as address:
        visitor = Visitor(browser, address, SIZE)
        visitor.go(address)
        data = visitor.page.screenshot(path=FOLDER / f"{name}.png")
        visitor.close()
    if len(data) > LARGEST:
        raise ValueError(f"{name}.png has {len(data)} bytes, more than {LARGEST}")


def main() -> None:
    """Take those that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        for name in sys.argv[1:] or PICTURES:
            take(browser, name)


if __name__ == "__main__":
    main()
