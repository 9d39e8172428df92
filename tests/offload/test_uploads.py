"""A few parts are on their way while the next one is cut."""

from __future__ import annotations

import threading

import pytest

from offloader.errors import StoreUnavailableError
from offloader.format.cutter import CutPart
from offloader.format.entry import UNREADABLE
from offloader.metadata.layout import data_key
from offloader.model import SegmentLayout
from offloader.offload.worker.part_uploads import PartUploads
from offloader.storage.memory import MemoryStore
from tests.format.support import cutter
from tests.offload.test_worker import TOPIC, UUID

MOST_UNDER_WAY = 3

SECONDS = 10.0


class Gated(MemoryStore):
    """Takes a part once the gate is open; remembers which threads brought parts."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.gate = threading.Event()
        self.slowly = threading.Event()
        self.threads: list[int] = []
        self.refused: set[int] = set()
        self.slow = 0  # the number of a part
        self._came = threading.Semaphore(0)

    def all_there(self, count: int) -> bool:
        return all(self._came.acquire(timeout=SECONDS) for _ in range(count))

    def put_part(self, upload, number, offset, data, checksum):
        self.threads.append(threading.get_ident())
        self._came.release()
        assert self.gate.wait(SECONDS)
        if number == self.slow:
            assert self.slowly.wait(SECONDS)
        if number in self.refused:
            raise StoreUnavailableError("not now")
        return super().put_part(upload, number, offset, data, checksum)


def parts(count: int) -> list[CutPart]:
    working = cutter(SegmentLayout(part_size=200, block_size=200, index_step=100))
    found = [working.offer(1, entry, b"x" * 100, UNREADABLE) for entry in range(count + 1)]
    return [part for part in found if part is not None]


def begun(store: MemoryStore) -> PartUploads:
    key = data_key(TOPIC, UUID)
    return PartUploads(store, key, store.begin(key))


def test_a_few_parts_are_sent_while_the_next_ones_are_cut() -> None:
    store = Gated()
    uploads = begun(store)
    cut = parts(5)
    for part in cut[:MOST_UNDER_WAY]:
        assert list(uploads.start(part)) == [], "nobody waits as long as there is room"
    assert store.all_there(MOST_UNDER_WAY)
    fourth = uploads.start(cut[MOST_UNDER_WAY])
    store.gate.set()
    told = [*fourth, *uploads.start(cut[4]), *uploads.finish()]
    assert [one.cut.number for one in told] == [part.number for part in cut], "in order"
    assert [one.cut.size for one in told] == [part.size for part in cut]
    assert all(one.cut.buffers == [] for one in told), "what is sent is not kept"
    assert list(uploads.finish()) == []
    assert threading.get_ident() not in store.threads
    uploads.close()


def test_what_is_behind_a_part_that_failed_is_not_told() -> None:
    store = Gated()
    uploads = begun(store)
    first, second, third = parts(3)
    store.refused = {second.number}
    for part in (first, second, third):
        list(uploads.start(part))
    store.gate.set()
    told = uploads.finish()
    assert next(told).cut.number == first.number
    with pytest.raises(StoreUnavailableError, match="not now"):
        next(told)
    assert list(uploads.finish()) == []
    uploads.close()


def test_no_part_is_sent_any_more_once_they_are_closed() -> None:
    """The next slice sends parts with these numbers."""
    store = Gated()
    uploads = begun(store)
    first, second = parts(2)
    store.refused = {first.number}
    store.slow = second.number
    for part in (first, second):
        list(uploads.start(part))
    store.gate.set()
    with pytest.raises(StoreUnavailableError):
        list(uploads.finish())
    closing = threading.Thread(target=uploads.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    store.slowly.set()
    closing.join(SECONDS)
    assert not closing.is_alive()
