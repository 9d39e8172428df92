"""The doctor's race for one object."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from offloader.errors import UnprovenStoreError
from offloader.operations.doctor.probes import try_race
from offloader.ports.object_store import Stat
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore

WRITERS = 8


class LookingFirst(ForwardingStore):
    """Looks whether an object is there and writes then, as a server may: in a race all look before the first writes."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self._looked = threading.Barrier(WRITERS)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        free = self.store.stat(key) is None
        self._looked.wait()
        return self.store.put(key, data, meta=meta) if free else None


class TellingOthers(ForwardingStore):
    """Says that who came first did not create."""

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        found = super().put(key, data, meta=meta, if_absent=if_absent)
        return self.store.stat(key) if found is None else None


def test_a_store_that_creates_atomically_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    try_race(store)
    assert list(store.list()) == []


@pytest.mark.parametrize("store", [LookingFirst(), TellingOthers(MemoryStore())], ids=["looks first", "tells others"])
def test_a_store_whose_create_is_a_race_is_unfit_and_keeps_nothing(store: ForwardingStore) -> None:
    with pytest.raises(UnprovenStoreError, match="cannot hold metadata"):
        try_race(store)
    assert list(store.list()) == []
