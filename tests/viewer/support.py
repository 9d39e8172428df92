"""The pages of an archive, asked as a server asks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from urllib.parse import quote

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.model import TopicName
from offloader.pages.access import PageAccess
from offloader.pages.rendering import Renderer
from offloader.pages.site import Site
from offloader.ports.object_store import ObjectStore
from offloader.viewer.pages import ArchivePages
from offloader.viewer.viewed import ViewedArchive
from tests.pages.calling import Page, ask


def site_of(
    store: ObjectStore,
    access: PageAccess | None = None,
    clock: Callable[[], float] = time.monotonic,
    keys: KeyReader | None = None,
) -> Site:
    """As `offloader ui` makes it."""
    archive = ViewedArchive(OpenArchive(Stores.of(store)), clock, keys)
    renderer = renderer_of_ui()
    return Site(ArchivePages(archive, renderer, clock).paths(), renderer, access or PageAccess())


@cache
def renderer_of_ui() -> Renderer:
    """Its templates are read once."""
    return Renderer("offloader.viewer", shared={"brand": "Pulsar archive"})


def look_at_pages(store: ObjectStore, topic: TopicName, positions: Iterable[str]) -> None:
    """Every kind of page about a topic: each of them is there, or one line says why not."""
    site, query = site_of(store), f"topic={quote(str(topic))}"
    targets = [f"/topic?name={quote(str(topic))}", f"/namespace?name={topic.namespace}", f"/entries?{query}"]
    targets += [f"/record?{query}&slot={slot}" for slot in range(9)]
    targets += [f"/{page}?{query}&at={at}" for page in ("entry", "value") for at in positions]
    for target in (*targets, f"/download?{query}"):
        reply = ask(site, target)
        assert reply.status in (200, 400, 404, 503), target
        if reply.headers["Content-Type"].startswith("text/html"):
            assert "main" in Page(reply.text).tags
