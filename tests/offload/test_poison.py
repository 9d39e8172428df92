"""Entries are copied byte for byte whatever they are; what arrives broken is read again once, since it may have changed
on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.format.blocks import entries as entries_of
from offloader.format.blocks import read_blocks
from offloader.metadata.layout import data_key
from offloader.model import FailureKind, Position, Receipt, SliceStop
from offloader.offload.worker.slice_worker import run_slice
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import UploadedPart
from offloader.storage.memory import MemoryStore
from tests.format.support import checksummed

from .test_worker import TOPIC, UUID, work

POISON = [
    b"\x0e\x02",
    b"\x0e\x02\xff\xff\xff\xff and no frame",
    b"\x0e\x02\0\0\0\x02\xff\xff and no broker metadata",
    b"\x0e\x01\0",
    checksummed(MessageMetadata(producer_name="p", publish_time=1))[:-1] + b"?",
    b"\x0e\x02",
]
GOOD = [checksummed(MessageMetadata(producer_name="p", publish_time=n), b"payload %d" % n) for n in range(60)]
MIXED = [*GOOD[:3], *POISON, *GOOD[3:50], *POISON, *GOOD[50:], POISON[0]]


class Deliveries:
    """A source whose n-th reader gives what the n-th delivery says of each entry, `size` at a time; the last one goes
    for all later ones."""

    def __init__(self, *deliveries: list[bytes], size: int = 7) -> None:
        self._deliveries = deliveries
        self._size = size
        self.opened: list[int] = []

    def open(self, topic, ledger, entry, *, max_bytes, extent):
        delivered = self._deliveries[min(len(self.opened), len(self._deliveries) - 1)]
        self.opened.append(entry)
        return _Reader([RawEntry(ledger, n, delivered[n]) for n in range(entry, len(delivered))], self._size)

    def explain(self, topic, missing, *, limit):
        return (), missing.first


class _Reader:
    def __init__(self, entries: list[RawEntry], size: int) -> None:
        self._entries, self._size = entries, size

    def read(self, timeout):
        now, self._entries = self._entries[: self._size], self._entries[self._size :]
        return now

    def close(self):
        pass


def offloaded(source: Deliveries, count: int) -> tuple[Receipt, list[bytes]]:
    """One slice of a topic with so many entries, and what the object has then."""
    store, clock = MemoryStore(), iter(range(10_000_000))
    asked = replace(work(store.begin(data_key(TOPIC, UUID))), bound=Position(0, 5, count - 1))
    receipt = run_slice(asked, source, store, lambda: next(clock))
    if receipt.stop is SliceStop.FAILED:
        return receipt, []
    store.commit(receipt.id.upload, [UploadedPart(p.number, p.size, p.etag, p.crc32c) for p in receipt.parts])
    data = store.read(data_key(TOPIC, UUID))[0]
    return receipt, [stored.data for block in read_blocks(data, 0) for stored in entries_of(block)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_poison_entries_are_copied_and_counted(size: int) -> None:
    receipt, found = offloaded(Deliveries(MIXED, size=size), len(MIXED))
    assert (receipt.stop, receipt.finished, found) == (SliceStop.BOUND, True, MIXED)
    assert sum(part.stats.unreadable for part in receipt.parts) == 2 * len(POISON) + 1
    assert sum(part.stats.messages for part in receipt.parts) == len(GOOD)


def test_what_arrives_together_is_read_again_together() -> None:
    source = Deliveries(MIXED, size=1000)
    offloaded(source, len(MIXED))
    assert source.opened == [0, 3]


def test_what_changed_on_the_way_is_stored_as_it_was_sent() -> None:
    changed = [*GOOD[:20], GOOD[20][:-1] + b"?", *GOOD[21:]]
    receipt, found = offloaded(Deliveries(changed, GOOD), len(GOOD))
    assert found == GOOD
    assert sum(part.stats.unreadable for part in receipt.parts) == 0


def test_what_arrives_broken_in_two_ways_is_not_taken() -> None:
    one, other = ([*GOOD[:20], GOOD[20][:-1] + last, *GOOD[21:]] for last in (b"?", b"!"))
    receipt, _ = offloaded(Deliveries(one, other), len(GOOD))
    assert (receipt.stop, receipt.failure_kind) == (SliceStop.FAILED, FailureKind.RETRYABLE)
    assert "5:20 arrived twice" in receipt.failure_reason
