"""A race of writers for one object, tried on the store itself: some that create soundly one by one do not in a race."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from offloader.errors import UnprovenStoreError
from offloader.metadata.layout import proof_key
from offloader.ports.object_store import ObjectStore

RACES, WRITERS = 10, 8


def try_race(store: ObjectStore) -> None:
    """Whether of writers that create one object at once just one is told so, and its bytes are there. Raises
    UnprovenStoreError where it is not so. Leaves nothing behind. To pass is no proof: a race may end well by luck."""
    keys = [proof_key(f"doctor-{uuid4()}") for _ in range(RACES)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for key in keys:
                _race(store, pool, key)
    finally:
        store.delete(keys)


def _race(store: ObjectStore, pool: ThreadPoolExecutor, key: str) -> None:
    together = threading.Barrier(WRITERS)

    def create(writer: int) -> bool:
        together.wait()
        return store.put(key, b"%d" % writer, if_absent=True) is not None

    won = list(pool.map(create, range(WRITERS)))
    there = store.read(key, 0, 10)[0]
    if won.count(True) != 1 or there != b"%d" % won.index(True):
        raise UnprovenStoreError(
            f"{store.url}: of {WRITERS} writers that created one object at once {won.count(True)} were told that they "
            "did: it cannot hold metadata"
        )
