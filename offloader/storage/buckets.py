"""Other buckets beside an archive's root: those that brokers read from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings


class Buckets:
    """Opens each bucket once, when it is first needed; reached like the root. `opener`: by default for reading only.
    Safe to use from several threads."""

    def __init__(
        self,
        settings: StoreSettings,
        opener: Callable[[StoreSettings], ObjectStore] | None = None,
    ) -> None:
        self._settings = settings
        self._opener = opener or partial(open_store, read_only=True)
        self._opened: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def open(self, url: str) -> ObjectStore:
        """The store of a bucket's URL. Raises ConfigError."""
        with self._lock:
            found = self._opened.get(url)
            if found is None:
                found = self._opened[url] = self._opener(self._settings.beside(url, "bridge.bucket"))
            return found

    def close(self) -> None:
        """Close what was opened here."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for each in opened.values():
            each.close()
