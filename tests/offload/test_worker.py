"""A slice answers with what is uploaded, whatever happens to the topic or the store."""

from dataclasses import replace

import crc32c
import pytest

from offloader.errors import BrokerUnavailableError, DataLostError, StoreUnavailableError
from offloader.metadata.layout import data_key
from offloader.model import (
    FailureKind,
    Lane,
    LedgerSpan,
    Position,
    SegmentLayout,
    Slice,
    SliceId,
    SliceStop,
    Source,
    TopicName,
)
from offloader.offload.worker.slice_worker import run_slice
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import UploadedPart
from offloader.storage.memory import MemoryStore

TOPIC = TopicName.parse("persistent://t/n/a")
UUID = "00000000-0000-4000-8000-000000000000"
CUTS = SegmentLayout(part_size=4096, block_size=1024, index_step=512)
ENTRIES = [bytes([n % 251]) * 100 for n in range(200)]


class ScriptedReader:
    """Delivers a few entries a call, then raises or falls silent."""

    def __init__(self, entries, error=None):
        self._entries = [RawEntry(5, n, data) for n, data in enumerate(entries)]
        self._error = error
        self.closed = False

    def read(self, timeout):
        if not self._entries and self._error is not None:
            raise self._error
        now, self._entries = self._entries[:7], self._entries[7:]
        return now

    def close(self):
        self.closed = True


class ScriptedSource:
    def __init__(self, reader):
        self._reader = reader

    def open(self, topic, ledger, entry, *, max_bytes, extent):
        return self._reader

    def explain(self, topic, missing, *, limit):
        return (), missing.first


class FailingStore(MemoryStore):
    """Refuses one part."""

    refused = 0

    def put_part(self, upload, number, offset, data, checksum):
        if number == self.refused:
            raise StoreUnavailableError("not now")
        return super().put_part(upload, number, offset, data, checksum)


def work(upload, *, seal=True):
    return Slice(
        SliceId(TOPIC, "r", Lane.FAST, 1, UUID, upload, 1, Position(0, 5, 0)), bound=Position(0, 5, len(ENTRIES) - 1),
        seal=seal, offset=0, first_block=1, room=1 << 30, byte_budget=1 << 30, time_budget_ms=60_000,
        hard_limit_ms=60_000, silent_ms=2_000, goal=4096, read_ahead=1 << 24, source=Source.BROKER, cuts=CUTS,
        ledgers=(LedgerSpan(5, None),),
    )  # fmt: skip


def run(store, *, error=None, entries=ENTRIES, **changes):
    reader = ScriptedReader(entries, error)
    clock = iter(range(10_000_000))
    receipt = run_slice(
        replace(work(store.begin(data_key(TOPIC, UUID))), **changes), ScriptedSource(reader), store, lambda: next(clock)
    )
    assert reader.closed
    return receipt


def covered(receipt):
    return sum(p.entries for p in receipt.parts)


def test_every_part_of_a_sealing_slice_is_uploaded_when_it_answers():
    store = MemoryStore()
    receipt = run(store)
    assert (receipt.stop, receipt.finished, covered(receipt)) == (SliceStop.BOUND, True, len(ENTRIES))
    assert [p.number for p in receipt.parts] == list(range(1, len(receipt.parts) + 1))
    stat = store.commit(receipt.id.upload, [p_of(p) for p in receipt.parts])
    data, _ = store.read(data_key(TOPIC, UUID))
    assert stat.size == len(data) == sum(p.size for p in receipt.parts)
    for p in receipt.parts:
        assert crc32c.crc32c(data[p.offset : p.offset + p.size]) == p.crc32c


def p_of(part):
    return UploadedPart(part.number, part.size, part.etag, part.crc32c)


@pytest.mark.parametrize("url", ["memory://elsewhere", "file:///local"])
@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_refused_part_ends_the_slice_with_the_parts_before_it(refused, url):
    store = FailingStore(url=url)
    store.refused = refused
    receipt = run(store)
    assert (receipt.stop, receipt.failure_kind) == (SliceStop.FAILED, FailureKind.RETRYABLE)
    assert "not now" in receipt.failure_reason
    assert [p.number for p in receipt.parts] == list(range(1, refused))
    assert not receipt.finished


def test_the_refusal_of_the_last_part_is_told():
    whole = run(MemoryStore())
    store = FailingStore()
    store.refused = len(whole.parts)
    receipt = run(store)
    assert (receipt.stop, receipt.finished) == (SliceStop.FAILED, False)
    assert receipt.parts == whole.parts[:-1]


def test_a_part_uploaded_before_the_reader_fails_is_in_the_receipt():
    receipt = run(MemoryStore(), entries=ENTRIES[:120], error=BrokerUnavailableError("gone"))
    whole = run(MemoryStore())
    assert (receipt.stop, receipt.failure_kind) == (SliceStop.FAILED, FailureKind.RETRYABLE)
    assert receipt.parts
    assert receipt.parts == whole.parts[: len(receipt.parts)]
    assert 120 - covered(receipt) < 2 * whole.parts[0].entries


def test_what_came_first_is_what_a_slice_failed_for():
    store = FailingStore()
    store.refused = 1
    receipt = run(store, entries=ENTRIES[:40], error=DataLostError("trimmed"))
    assert (receipt.failure_kind, receipt.parts) == (FailureKind.DATA_LOST, ())
    assert "trimmed" in receipt.failure_reason


def test_a_slice_with_a_part_is_not_slow():
    reader_stops_after = 60  # one whole part of about 36 entries, then silence
    receipt = run(MemoryStore(), entries=ENTRIES[:reader_stops_after], time_budget_ms=50, hard_limit_ms=50, seal=False)
    assert receipt.stop is SliceStop.BUDGET
    assert len(receipt.parts) == 1


def test_an_entry_that_a_broker_never_delivers_fails_the_slice_though_nothing_follows_it():
    receipt = run(MemoryStore(), entries=ENTRIES[:-1], hard_limit_ms=6_000)
    assert (receipt.stop, receipt.failure_kind) == (SliceStop.FAILED, FailureKind.INTEGRITY)
    assert "entries 5:199 to 199 were not delivered and nothing says why" in receipt.failure_reason
    assert receipt.elapsed_ms < 6_000


def test_bookies_that_are_silent_are_waited_for():
    receipt = run(MemoryStore(), entries=[], hard_limit_ms=6_000, source=Source.BOOKKEEPER)
    assert (receipt.stop, receipt.failure_kind) == (SliceStop.SLOW, None)


DAY_MS = 24 * 3_600_000


class Slowly(ScriptedReader):
    """An entry every so many reads."""

    def __init__(self, entries, every):
        super().__init__(entries)
        self._every = every
        self._reads = 0

    def read(self, timeout):
        self._reads += 1
        now = self._entries[:1] if self._reads % self._every == 0 else []
        self._entries = self._entries[len(now) :]
        return now


def slowly(entries, every, **changes):
    """A slice of a topic that is given a day, over bookies, from which nothing is explained."""
    store = MemoryStore()
    source = ScriptedSource(Slowly(entries, every))
    told = {
        "time_budget_ms": DAY_MS,
        "hard_limit_ms": DAY_MS,
        "source": Source.BOOKKEEPER,
        "stall_ms": 10_000,
        **changes,
    }
    clock = iter(range(0, 10 * DAY_MS, 50))
    return run_slice(replace(work(store.begin(data_key(TOPIC, UUID))), **told), source, store, lambda: next(clock))


def test_a_slice_that_may_take_a_day_ends_soon_when_nothing_comes_any_more():
    receipt = slowly(ENTRIES[:20], 1)
    assert (receipt.stop, receipt.parts) == (SliceStop.SLOW, ())
    assert 10_000 <= receipt.elapsed_ms < 20_000
    with_a_part = slowly(ENTRIES[:60], 1)
    assert (with_a_part.stop, len(with_a_part.parts)) == (SliceStop.BUDGET, 1)
    assert with_a_part.elapsed_ms < 40_000


def test_a_slice_that_is_slow_and_advances_is_not_ended():
    receipt = slowly(ENTRIES, 40)
    assert (receipt.stop, receipt.finished) == (SliceStop.BOUND, True)
    assert receipt.elapsed_ms > 10 * 10_000
