"""The pages of an archive, asked as a server asks them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.pages.access import PageAccess
from offloader.pages.rendering import Renderer
from offloader.pages.site import Site
from offloader.ports.object_store import ObjectStore
from offloader.viewer.pages import ArchivePages
from offloader.viewer.viewed import ViewedArchive


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
