"""A part is on its way while the next one is cut, never more than one."""

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

SECONDS = 10.0


class Gated(MemoryStore):
    """Takes a part once the gate is open; remembers which threads brought parts."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.gate = threading.Event()
        self.threads: list[int] = []
        self.error: Exception | None = None

    def put_part(self, upload, number, offset, data, checksum):
        self.threads.append(threading.get_ident())
        assert self.gate.wait(SECONDS)
        if self.error is not None:
            raise self.error
        return super().put_part(upload, number, offset, data, checksum)


def parts(count: int) -> list[CutPart]:
    working = cutter(SegmentLayout(part_size=200, block_size=200, index_step=100))
    found = [working.offer(1, entry, b"x" * 100, UNREADABLE) for entry in range(count + 1)]
    return [part for part in found if part is not None]


def begun(store: MemoryStore) -> PartUploads:
    return PartUploads(store, store.begin(data_key(TOPIC, UUID)))


def test_the_next_part_can_be_cut_while_one_is_sent() -> None:
    store = Gated()
    uploads = begun(store)
    first, second = parts(2)
    uploads.start(first)
    assert uploads.busy
    with pytest.raises(AssertionError, match="bounded"):
        uploads.start(second)
    store.gate.set()
    uploaded = uploads.wait()
    assert uploaded is not None
    assert uploaded.cut is first
    assert (uploads.busy, uploads.wait()) == (False, None)
    assert store.threads != [threading.get_ident()]
    uploads.close()


def test_a_refusal_is_told_when_it_is_asked_for_and_once() -> None:
    store = Gated()
    store.gate.set()
    store.error = StoreUnavailableError("not now")
    uploads = begun(store)
    uploads.start(parts(1)[0])
    with pytest.raises(StoreUnavailableError, match="not now"):
        uploads.wait()
    assert uploads.wait() is None
    uploads.close()
