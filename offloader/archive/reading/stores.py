"""The stores that objects are read from: the archive's own root, and other buckets by their URLs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store, and what tells it from all others in this process."""

    store: ObjectStore
    identity: Hashable


def _open(settings: StoreSettings) -> ObjectStore:
    return open_store(settings, read_only=True)


class Stores:
    """Opens each store once, when it is first needed, for reading. Safe to use from several threads.

    A bucket that `others` do not describe is reached with the endpoint, region and keys of the first of them; if there
    are none, with those of the archive.
    """

    def __init__(
        self,
        settings: StoreSettings,
        others: Iterable[StoreSettings] = (),
        *,
        borrowed: ObjectStore | None = None,
        opener: Callable[[StoreSettings], ObjectStore] = _open,
    ) -> None:
        self._settings = settings
        self._opener = opener
        self._others = {other.root: other for other in others}
        self._borrowed = borrowed
        # Two stores of one URL need not be the same: those of tests in memory are not.
        self._opened = {} if borrowed is None else {"": OpenedStore(borrowed, object())}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, store: ObjectStore) -> Self:
        """Of an archive whose store is open already; it stays open at `close`."""
        return cls(StoreSettings(store.url), borrowed=store)

    def open(self, url: str = "") -> OpenedStore:
        """The store of a bucket; "" is the archive's own. Raises ConfigError."""
        with self._lock:
            found = self._opened.get(url)
            if found is None:
                alike = next(iter(self._others.values()), self._settings)
                settings = (self._others.get(url) or replace(alike, root=url)) if url else self._settings
                found = OpenedStore(self._opener(settings), (settings.root, settings.endpoint))
                self._opened[url] = found
            return found

    def close(self) -> None:
        """Close what was opened here."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for each in opened.values():
            if each.store is not self._borrowed:
                each.store.close()
