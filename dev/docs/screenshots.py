"""Makes the pictures of the manual's pages: `python -m dev.docs.screenshots [NAME ...]`. Needs Chromium."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser

from integration.browser import Visitor, chromium
from offloader.pages.server import WebServer
from offloader.storage.local import LocalStore
from tests.offload.live.states import busy, failing, idle, serving
from tests.viewer.example import ORDERS, write
from tests.viewer.support import site_of

FOLDER = Path(__file__).parents[2] / "docs" / "images"
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


class Picture(NamedTuple):
    """What serves the page, and gives its address; how large the window is."""

    served: Callable[[], AbstractContextManager[str]]
    size: tuple[int, int]


PICTURES: Mapping[str, Picture] = {
    "archive-with-a-loss": Picture(archive_with_a_loss, (1060, 660)),
    "idle": Picture(lambda: serving(idle()), (1060, 760)),
    "busy": Picture(lambda: serving(busy()), (1060, 900)),
    "failing-topic": Picture(lambda: serving(failing()), (1060, 860)),
}


def take(browser: Browser, name: str) -> None:
    """One picture. Raises ValueError where it is too large for the repository."""
    picture = PICTURES[name]
    with picture.served() as address:
        visitor = Visitor(browser, address, picture.size)
        visitor.go(address)
        data = _small(visitor.page.screenshot())
        visitor.close()
    if len(data) > LARGEST:
        raise ValueError(f"{name}.png has {len(data)} bytes, more than {LARGEST}")
    (FOLDER / f"{name}.png").write_bytes(data)


def _small(png: bytes) -> bytes:
    """With a palette: a page has few colours, and a third of the bytes is enough for them."""
    made = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            made, "PNG", optimize=True
        )
    return made.getvalue()


def main() -> None:
    """Take those that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        for name in sys.argv[1:] or PICTURES:
            take(browser, name)


if __name__ == "__main__":
    main()
