"""What a broker keeps back comes from bookies: every stored entry once, in order, whatever the broker delivers and
when."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.filling import FilledSource
from offloader.bookkeeper.model import Fragment, LedgerMetadata, StoredEntry, Versioned
from offloader.errors import BrokerUnavailableError, DataLostError, NotShownError
from offloader.model import (
    EntryRange,
    FailureKind,
    Gap,
    GapKind,
    Lane,
    LedgerList,
    LedgerSpan,
    Position,
    Receipt,
    SegmentLayout,
    Slice,
    SliceId,
    Source,
    TopicName,
)
from offloader.offload.worker.slice_worker import run_slice
from offloader.ports.entry_source import Extent, RawEntry
from offloader.storage.memory import MemoryStore
from tests.fakes.bookkeeper import SimulatedCluster, SimulatedStore
from tests.offload.simulation import Ticking

TOPIC = TopicName.parse("public/default/t")
Place = tuple[int, int]


class Scripted:
    """A source that gives entries in pieces; an empty piece is silence. `opened` notes from where, and how far, it was
    read."""

    def __init__(self, pieces: list[list[RawEntry]], error: Exception | None = None) -> None:
        self.pieces = list(pieces)
        self.error = error
        self.opened: list[tuple[Place, Place | None, int]] = []
        self.closed = 0

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> Scripted:
        self.opened.append(((ledger, entry), extent and extent.last, max_bytes))
        return self

    def read(self, timeout: float) -> list[RawEntry]:
        if not self.pieces and self.error is not None:
            raise self.error
        return self.pieces.pop(0) if self.pieces else []

    def cached(self) -> Scripted:
        return self

    def close(self) -> None:
        self.closed += 1


class Stored:
    """What bookies hold; `rng` says how much a read gives."""

    def __init__(self, entries: list[RawEntry], rng: random.Random) -> None:
        self.entries = entries
        self.rng = rng
        self.read_places: list[Place] = []
        self.open_now = 0

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> StoredReader:
        assert extent is not None
        self.open_now += 1
        wanted = [e for e in self.entries if (ledger, entry) <= (e.ledger, e.entry) <= extent.last]
        return StoredReader(self, wanted)

    def cached(self) -> Stored:
        return self


class StoredReader:
    def __init__(self, source: Stored, entries: list[RawEntry]) -> None:
        self._source = source
        self._left = entries

    def read(self, timeout: float) -> list[RawEntry]:
        count = self._source.rng.randint(0, 4)
        now, self._left = self._left[:count], self._left[count:]
        self._source.read_places += [(e.ledger, e.entry) for e in now]
        return now

    def close(self) -> None:
        self._source.open_now -= 1


class Clock:
    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def raw(ledger: int, *entries: int) -> list[RawEntry]:
    return [RawEntry(ledger, entry, f"{ledger}:{entry}".encode()) for entry in entries]


def everything(counts: dict[int, int]) -> list[RawEntry]:
    return [e for ledger, count in counts.items() for e in raw(ledger, *range(count))]


def extent_of(counts: dict[int, int]) -> Extent:
    """All of these ledgers; the last one is open."""
    spans = [LedgerSpan(ledger, count - 1) for ledger, count in counts.items()]
    ledgers = LedgerList((*spans[:-1], LedgerSpan(spans[-1].ledger, None)))
    last = max((s.ledger, s.last) for s in spans if s.last is not None and s.last >= 0)
    return Extent(ledgers, last)


def drain(source: FilledSource, start: Place, extent: Extent, reads: int = 2_000) -> list[RawEntry]:
    reader = source.open(TOPIC, *start, max_bytes=1_000, extent=extent)
    found: list[RawEntry] = []
    for _ in range(reads):
        found += reader.read(0.2)
        if found and (found[-1].ledger, found[-1].entry) >= extent.last:
            break
    reader.close()
    return found


@given(st.integers(0, 10**9))
def test_every_stored_entry_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    counts = {ledger: rng.choice([0, 1, 2, 7, 20]) for ledger in range(5, 5 + rng.randint(1, 4))}
    if not sum(counts.values()):
        counts[5] = 3
    stored = everything(counts)
    hidden = rng.choice([0.0, 0.1, 0.9, 1.0])
    delivered = [e for e in stored if rng.random() >= hidden]
    extent = extent_of(counts)
    beyond = raw(max(counts), *range(counts[max(counts)], counts[max(counts)] + rng.randint(0, 2)))
    bookies = Stored(stored + beyond, rng)
    source = FilledSource(Scripted(list(pieces(delivered + beyond, rng))), bookies, Clock(rng.choice([0.01, 0.3, 2.0])))
    start = rng.choice([(e.ledger, e.entry) for e in stored if (e.ledger, e.entry) <= extent.last])
    found = drain(source, start, extent)
    wanted = [e for e in stored if (e.ledger, e.entry) >= start]
    assert [e for e in found if (e.ledger, e.entry) <= extent.last] == wanted
    assert all(place <= extent.last for place in bookies.read_places), "nobody knows whether that is confirmed"
    assert bookies.open_now == 0


def pieces(entries: list[RawEntry], rng: random.Random) -> Iterator[list[RawEntry]]:
    while entries:
        count = rng.randint(0, 5)
        yield entries[:count]
        entries = entries[count:]


def test_what_is_delivered_is_not_read_from_bookies() -> None:
    counts = {3: 10}
    broker = Scripted([raw(3, 0, 1, 2), raw(3, 5, 6, 7, 9)])
    bookies = Stored(everything(counts), random.Random(1))
    assert drain(FilledSource(broker, bookies, Clock(0)), (3, 0), extent_of(counts)) == everything(counts)
    assert bookies.read_places == [(3, 3), (3, 4), (3, 8)]


def test_after_a_second_of_silence_the_rest_comes_from_bookies_and_is_dropped_when_it_is_delivered_later() -> None:
    counts = {3: 6}
    late = [raw(3, 0), [], [], [], [], [], [], [], [], [], raw(3, 1, 2, 3), raw(3, 5)]
    bookies = Stored(everything(counts), random.Random(1))
    assert drain(FilledSource(Scripted(late), bookies, Clock(0.5)), (3, 0), extent_of(counts)) == everything(counts)


def test_where_the_end_of_a_ledger_is_not_known_nothing_is_filled_behind_it() -> None:
    """The list is older than what is delivered: whoever asked finds the ledger's end in a newer one."""
    ledgers = LedgerList((LedgerSpan(3, None), LedgerSpan(4, None)))
    bookies = Stored(everything({3: 3, 4: 1}), random.Random(1))
    source = FilledSource(Scripted([raw(3, 0, 1), raw(4, 0)]), bookies, Clock(0))
    assert drain(source, (3, 0), Extent(ledgers, (4, 0))) == raw(3, 0, 1) + raw(4, 0)
    assert bookies.read_places == []


def test_what_both_hold_stays_within_the_limit() -> None:
    """The broker's reader is full again while what it gave is held behind a gap."""
    broker, bookies = Scripted([raw(3, 1)]), Scripted([raw(3, 0)])
    drain(FilledSource(broker, bookies, Clock(0)), (3, 0), extent_of({3: 2}))
    delivered, filled = broker.opened[0][2], bookies.opened[0][2]
    assert 990 <= 2 * delivered + filled <= 1_000
    assert (broker.closed, bookies.closed) == (1, 1)


class Counted(SimulatedStore):
    reads = 0

    def read(self, ledger: int) -> Versioned:
        self.reads += 1
        return super().read(ledger)


def keep(cluster: SimulatedCluster, metadata: LedgerMetadata, entries: Iterable[int]) -> None:
    for entry in entries:
        stored = encode(StoredEntry(7, entry, entry - 1, entry + 1, f"7:{entry}".encode()), digest_for(metadata))
        for bookie in metadata.write_set(entry):
            cluster.bookies[bookie].memory.add(7, entry, stored, master_key(b""))


def test_where_a_ledger_is_is_asked_once_however_many_gaps_it_has() -> None:
    cluster = SimulatedCluster(1, 3, prompt=True)
    keep(cluster, cluster.create(7, 3, 3, 2), range(100))
    bookies, store = cluster.client()[0], Counted(cluster)
    broker = Scripted([raw(7, *(e for e in range(100) if e % 10))])
    source = FilledSource(broker, BookKeeperSource(store, bookies), Clock(0.5))
    whole = Extent(LedgerList((LedgerSpan(7, None),)), (7, 99))
    assert drain(source, (7, 0), whole) == raw(7, *range(100))
    assert store.reads == 1
    assert drain(FilledSource(Scripted([]), BookKeeperSource(store, bookies), Clock(0.5)), (7, 0), whole) == raw(
        7, *range(100)
    )
    assert store.reads == 2, "another reader asks for itself"


@pytest.mark.parametrize("gone", ["empty", "down"])
def test_a_gap_on_other_bookies_than_the_one_before_is_filled(gone: str) -> None:
    """The ensemble changes between two gaps: those that are remembered deny the second one, or are down."""
    cluster = SimulatedCluster(1, 3, prompt=True)
    metadata = cluster.create(7, 1, 1, 1)
    keep(cluster, metadata, range(5))
    (first,) = metadata.fragments[0].ensemble
    other = next(bookie for bookie in cluster.bookies if bookie != first)
    bookies, store = cluster.client()
    whole = Extent(LedgerList((LedgerSpan(7, None),)), (7, 9))
    reader = FilledSource(
        Scripted([raw(7, 1, 2, 3, 4), raw(7, 6, 7, 8, 9)]), BookKeeperSource(store, bookies), Clock(0)
    ).open(TOPIC, 7, 0, max_bytes=1_000, extent=whole)
    found: list[RawEntry] = []
    while len(found) < 5:
        found += reader.read(0.2)
    changed = replace(metadata, fragments=(*metadata.fragments, Fragment(5, (other,))))
    cluster.metadata.cluster.put_ledger(7, changed)
    keep(cluster, changed, range(5, 10))
    cluster.bookies[first].up = gone == "empty"
    for _ in range(20):
        found += reader.read(0.2)
    assert found == raw(7, *range(10))


class Tiered(Stored):
    """BookKeeper, which has some of the ledgers no more: brokers have offloaded them."""

    def __init__(self, entries: list[RawEntry], rng: random.Random, moved: frozenset[int]) -> None:
        super().__init__(entries, rng)
        self.moved = moved
        self.asked = 0

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> TieredReader:
        assert extent is not None
        self.open_now += 1
        return TieredReader(self, [e for e in self.entries if (ledger, entry) <= (e.ledger, e.entry) <= extent.last])


class TieredReader(StoredReader):
    def __init__(self, source: Tiered, entries: list[RawEntry]) -> None:
        self._tiered = source
        held = next((n for n, e in enumerate(entries) if e.ledger in source.moved), None)
        self._lost = held is not None
        super().__init__(source, entries if held is None else entries[:held])

    def read(self, timeout: float) -> list[RawEntry]:
        if self._lost and not self._left:
            self._tiered.asked += 1
            raise DataLostError("the ledger is gone from BookKeeper before it was offloaded")
        return super().read(timeout)


class Broker(Scripted):
    """Says why it keeps back what it keeps back."""

    def __init__(self, pieces: list[list[RawEntry]], hidden: set[Place]) -> None:
        super().__init__(pieces)
        self.hidden = hidden
        self.explained: list[EntryRange] = []

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        self.explained.append(missing)
        known = next((e for e in missing.ids if (missing.ledger, e) not in self.hidden), missing.after)
        gap = Gap(missing.ledger, missing.first, known, kind=GapKind.MARKER)
        return (gap,) if gap.span else (), None if known == missing.after else known


def test_a_broker_that_takes_its_time_over_what_it_has_offloaded_is_waited_for() -> None:
    """BookKeeper has its ledger no more; that is no loss."""
    counts = {3: 6}
    late = [*([[]] * 12), raw(3, 0, 1, 2), raw(3, 3, 4, 5)]
    bookies = Tiered(everything(counts), random.Random(1), frozenset({3}))
    assert drain(FilledSource(Scripted(late), bookies, Clock(0.5)), (3, 0), extent_of(counts)) == everything(counts)
    assert (bookies.asked, bookies.open_now) == (1, 0)


def read_by_a_worker(broker: Broker, bookies: Tiered, counts: dict[int, int]) -> Receipt:
    extent = extent_of(counts)
    store = MemoryStore()
    upload = store.begin("data")
    work = Slice(
        SliceId(TOPIC, "run", Lane.FAST, 1, "u", upload, 1, Position(0, min(counts), 0)),
        bound=Position(0, *extent.last),
        seal=True,
        offset=0,
        first_block=0,
        room=10**9,
        byte_budget=10**9,
        time_budget_ms=10**5,
        hard_limit_ms=10**5,
        silent_ms=10**9,
        goal=1,
        read_ahead=10**6,
        source=Source.BROKER_WITH_BOOKIES,
        cuts=SegmentLayout(1 << 20, 1 << 10),
        ledgers=extent.ledgers.spans,
    )
    return run_slice(work, FilledSource(broker, bookies, Clock(0.2)), store, Ticking(100))


class Lost(Broker):
    """Its own reads of the ledger fail, too."""

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        raise NotShownError(f"the broker answered 500 for {missing.ledger}:{missing.first}")


def test_a_ledger_that_nobody_has_is_lost_and_not_tried_for_ever_as_if_it_might_come() -> None:
    counts = {5: 3, 6: 4}
    stored = everything(counts)
    broker = Lost([stored[:3], *([[]] * 50)], set())
    got = read_by_a_worker(broker, Tiered(stored, random.Random(1), frozenset({6})), counts)
    assert got.failure_kind is FailureKind.DATA_LOST
    assert "ledger 6 is gone from BookKeeper, and nobody has a copy" in got.failure_reason


@given(st.integers(0, 10**9))
def test_entries_of_offloaded_ledgers_that_a_broker_keeps_back_are_explained_and_all_others_are_there(
    seed: int,
) -> None:
    rng = random.Random(seed)
    counts = {ledger: rng.choice([1, 2, 7, 20]) for ledger in range(5, 5 + rng.randint(1, 5))}
    stored, moved = everything(counts), frozenset(ledger for ledger in counts if rng.random() < 0.5)
    share = rng.choice([0.0, 0.1, 0.9, 1.0])
    hidden = {(e.ledger, e.entry) for e in stored if rng.random() < share}
    delivered = [e for e in stored if (e.ledger, e.entry) not in hidden]
    broker = Broker(list(pieces(delivered, rng)), hidden)
    bookies = Tiered(stored, rng, moved)
    got = read_by_a_worker(broker, bookies, counts)
    assert (got.finished, got.failure_reason) == (True, "")
    gaps = [gap for part in got.parts for gap in part.gaps] + list(got.gaps)
    missing = {(gap.ledger, entry) for gap in gaps for entry in gap.ids}
    assert missing == {place for place in hidden if place[0] in moved}
    assert sum(part.entries for part in got.parts) == len(stored) - len(missing)
    assert {each.ledger for each in broker.explained} <= moved
    assert bookies.open_now == 0


def test_a_brokers_error_is_ours() -> None:
    reader = FilledSource(Scripted([], BrokerUnavailableError("gone")), Scripted([])).open(
        TOPIC, 3, 0, max_bytes=10, extent=extent_of({3: 1})
    )
    with pytest.raises(BrokerUnavailableError):
        reader.read(0.1)
