"""Index objects, kept by their names: they never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from offloader.archive.reading.sparse_index import SparseIndex
from offloader.model import MIB

# A topic of 1 TiB has about 160 MiB of them.
CACHE_BYTES = 64 * MIB
_OVERHEAD = 1024


@dataclass(slots=True)
class LoadedIndex:
    """`proven`: the etag that the data object had when one of its blocks was seen to be of the index's ledger."""

    index: SparseIndex
    proven: str = ""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return 4 * self.index.offsets.itemsize * len(self.index) + _OVERHEAD


class IndexCache:
    """The indexes that were used last, within so many bytes. Safe to use from several threads."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._used = 0
        self._kept: OrderedDict[Hashable, LoadedIndex] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> LoadedIndex | None:
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def put(self, name: Hashable, loaded: LoadedIndex) -> LoadedIndex:
        """Keep an index; the one that is kept already where there is one."""
        with self._lock:
            kept = self._kept.setdefault(name, loaded)
            if kept is loaded:
                self._used += loaded.size
            while self._used > self._max_bytes and len(self._kept) > 1:
                self._used -= self._kept.popitem(last=False)[1].size
            return kept


# One for the process: its readers may share what never changes.
SHARED = IndexCache()
