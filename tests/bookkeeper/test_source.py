"""Straight from bookies: every stored entry up to what is confirmed, ledger by ledger, never beyond, and never with a
fence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import Fragment, StoredEntry, Versioned
from offloader.errors import BookieUnavailableError, DataLostError, IntegrityError, MetadataUnavailableError
from offloader.model import EntryRange, GapKind, LedgerList, LedgerSpan, TopicName
from offloader.ports.entry_source import EntryReader, Extent, RawEntry
from tests.fakes.bookkeeper import SimulatedCluster
from tests.fakes.cluster import MemoryCluster
from tests.fakes.cluster_ledgers import MemoryBookies, MemoryLedgers

TOPIC = TopicName.parse("persistent://public/ns/a")


@pytest.fixture
def cluster() -> MemoryCluster:
    """Two closed ledgers and an open one, with all that a broker hides; another subscription keeps everything."""
    cluster = MemoryCluster(seed=3)
    cluster.create(TOPIC)
    cluster.add_subscription(TOPIC, "keeper")
    for number in range(7):
        cluster.produce(TOPIC, b"first %d" % number)
    cluster.roll(TOPIC)
    cluster.add_hidden(TOPIC, GapKind.ABORTED)
    cluster.add_withheld(TOPIC)
    cluster.add_hidden(TOPIC, GapKind.MARKER)
    cluster.roll(TOPIC)
    cluster.produce(TOPIC, b"plain")
    cluster.add_pending(TOPIC, b"of an open transaction")
    cluster.produce(TOPIC, b"behind it")
    return cluster


def everything(cluster: MemoryCluster) -> list[RawEntry]:
    return [RawEntry(e.ledger, e.entry, e.data) for e in cluster.entries(TOPIC)]


def extent(cluster: MemoryCluster, last: tuple[int, int] | None = None) -> Extent:
    info = cluster.admin.topic_info(TOPIC)
    assert info.last_confirmed is not None
    return Extent(info.ledgers, last or info.last_confirmed)


def drain(reader: EntryReader, found: list[RawEntry] | None = None) -> list[RawEntry]:
    found = [] if found is None else found
    try:
        while entries := reader.read(0.01):
            found += entries
    finally:
        reader.close()
    return found


def test_every_stored_entry_is_delivered_once_and_in_order(cluster: MemoryCluster) -> None:
    stored = everything(cluster)
    for number, (ledger, entry, _) in enumerate(stored):
        assert (
            drain(cluster.stored.open(TOPIC, ledger, entry, max_bytes=1_000, extent=extent(cluster))) == stored[number:]
        )


def test_nothing_beyond_the_extent_is_delivered(cluster: MemoryCluster) -> None:
    stored = everything(cluster)
    start = stored[0][:2]
    for number, (ledger, entry, _) in enumerate(stored):
        reader = cluster.stored.open(TOPIC, *start, max_bytes=1_000, extent=extent(cluster, (ledger, entry)))
        assert drain(reader) == stored[: number + 1]
    before_a_ledger = (stored[7].ledger, -1)
    assert (
        drain(cluster.stored.open(TOPIC, *start, max_bytes=1_000, extent=extent(cluster, before_a_ledger)))
        == stored[:7]
    )


def test_without_a_broker_only_closed_ledgers_are_read(cluster: MemoryCluster) -> None:
    closed = [e for e in everything(cluster) if e.ledger != cluster.ledgers(TOPIC).spans[-1].ledger]
    assert drain(cluster.stored.open(TOPIC, 0, 0, max_bytes=1_000)) == closed
    cluster.terminate(TOPIC)
    assert drain(cluster.stored.open(TOPIC, 0, 0, max_bytes=1_000)) == everything(cluster)


def test_nothing_follows_a_ledger_whose_end_nobody_knows(cluster: MemoryCluster) -> None:
    """The list is older than BookKeeper's own metadata: those say where a ledger ended, or nobody does."""
    whole = extent(cluster)
    unknown = LedgerList(tuple(replace(span, last=None) for span in whole.ledgers.spans))
    stored = everything(cluster)
    reader = cluster.stored.open(TOPIC, *stored[0][:2], max_bytes=1_000, extent=Extent(unknown, whole.last))
    assert drain(reader) == stored
    behind = Extent(unknown, (whole.last[0] + 1, 5))
    assert drain(cluster.stored.open(TOPIC, *stored[0][:2], max_bytes=1_000, extent=behind)) == stored[:10]


def test_a_ledger_that_is_deleted_meanwhile_is_a_loss_and_no_storm(cluster: MemoryCluster) -> None:
    stored = everything(cluster)
    reader = cluster.stored.open(TOPIC, *stored[0][:2], max_bytes=1_000, extent=extent(cluster))
    second = stored[7].ledger
    cluster.vanish(TOPIC, second)
    found: list[RawEntry] = []
    with pytest.raises(DataLostError, match=f"ledger {second} is gone from BookKeeper"):
        drain(reader, found)
    assert found == stored[:7]
    assert cluster.faults.count("ledgers.read") <= 3


def test_a_ledger_that_is_deleted_while_it_is_read(cluster: MemoryCluster) -> None:
    stored = everything(cluster)
    reader = cluster.stored.open(TOPIC, *stored[0][:2], max_bytes=40, extent=extent(cluster))
    assert reader.read(0.01)
    cluster.vanish(TOPIC, stored[0].ledger)
    with pytest.raises(DataLostError, match="is gone from BookKeeper"):
        drain(reader)


def test_who_reads_again_after_an_error_skips_no_ledger(cluster: MemoryCluster) -> None:
    stored = everything(cluster)
    reader = cluster.stored.open(TOPIC, *stored[0][:2], max_bytes=1_000, extent=extent(cluster))
    found = list(reader.read(0.01))
    assert found == stored[:7]
    cluster.faults.add("ledgers.read", lambda: MetadataUnavailableError("busy"), times=2)
    for _ in range(2):
        with pytest.raises(MetadataUnavailableError):
            reader.read(0.01)
    assert drain(reader, found) == stored


def test_a_ledger_that_was_cut_off_is_not_passed_over_by_who_reads_again(cluster: MemoryCluster) -> None:
    first = everything(cluster)[0]
    confirmed = LedgerList((LedgerSpan(first.ledger, 9), *extent(cluster).ledgers.spans[1:]))
    reader = cluster.stored.open(
        TOPIC, first.ledger, 0, max_bytes=1_000, extent=Extent(confirmed, extent(cluster).last)
    )
    for _ in range(2):
        with pytest.raises(IntegrityError, match=f"entry {first.ledger}:9 was confirmed"):
            reader.read(0.01)


def test_an_absent_entry_that_was_confirmed_is_an_integrity_failure(cluster: MemoryCluster) -> None:
    last = cluster.admin.topic_info(TOPIC).last_confirmed
    assert last is not None
    reader = cluster.stored.open(TOPIC, *last, max_bytes=1_000, extent=extent(cluster, (last[0], last[1] + 1)))
    with pytest.raises(
        IntegrityError, match=rf"entry {last[0]}:{last[1] + 1} was confirmed, and its bookies do not have it"
    ) as failure:
        drain(reader)
    assert "\n" not in str(failure.value)


def test_a_ledger_that_was_closed_before_what_was_confirmed_is_an_integrity_failure(cluster: MemoryCluster) -> None:
    first = everything(cluster)[0]
    reader = cluster.stored.open(TOPIC, first.ledger, 0, max_bytes=1_000, extent=extent(cluster, (first.ledger, 9)))
    with pytest.raises(
        IntegrityError, match=f"entry {first.ledger}:9 was confirmed, but BookKeeper closed the ledger with 6"
    ):
        reader.read(0.01)


def test_bookies_that_do_not_answer_are_tried_again_later(cluster: MemoryCluster) -> None:
    cluster.faults.add("bookies.read", lambda: BookieUnavailableError("busy"), times=100)
    reader = cluster.stored.open(TOPIC, *everything(cluster)[0][:2], max_bytes=1_000, extent=extent(cluster))
    with pytest.raises(BookieUnavailableError):
        reader.read(0.01)
    reader.close()


@pytest.fixture
def three() -> SimulatedCluster:
    """Ledger 7 on three bookies, entries 0..2; only b1 still has entry 1, and is away."""
    three = SimulatedCluster(1, 3, prompt=True)
    metadata = three.create(7, 3, 3, 2)
    for entry in range(3):
        stored = encode(StoredEntry(7, entry, entry - 1, entry + 1, b"x"), digest_for(metadata))
        for bookie in three.bookies if entry != 1 else ["b1:3181"]:
            three.bookies[bookie].memory.add(7, entry, stored, master_key(b""))
    three.bookies["b1:3181"].up = False
    return three


def read_three(three: SimulatedCluster, found: list[RawEntry]) -> None:
    bookies, store = three.client()
    whole = Extent(LedgerList((LedgerSpan(7, None),)), (7, 2))
    drain(BookKeeperSource(store, bookies).open(TOPIC, 7, 0, max_bytes=1_000, extent=whole), found)


def test_while_a_bookie_has_not_said_an_entry_that_others_deny_is_waited_for(three: SimulatedCluster) -> None:
    found: list[RawEntry] = []
    with pytest.raises(BookieUnavailableError, match="entry 7:1: no bookie gave it"):
        read_three(three, found)
    assert [entry.entry for entry in found] == [0]
    three.bookies["b1:3181"].up = True
    again: list[RawEntry] = []
    read_three(three, again)
    assert [entry.entry for entry in again] == [0, 1, 2]


def test_a_ledger_that_is_deleted_is_a_loss_although_a_bookie_is_away(three: SimulatedCluster) -> None:
    bookies, store = three.client()
    whole = Extent(LedgerList((LedgerSpan(7, None),)), (7, 2))
    reader = BookKeeperSource(store, bookies).open(TOPIC, 7, 0, max_bytes=1_000, extent=whole)
    assert reader.read(0.01)
    three.metadata.cluster.delete_ledger(7)
    with pytest.raises(DataLostError, match="is gone from BookKeeper"):
        drain(reader)


class Moved(MemoryLedgers):
    """Bookies were replaced: an ensemble that nobody answers for, until the metadata are read again."""

    stale = 1

    def read(self, ledger: int) -> Versioned:
        found = super().read(ledger)
        self.stale -= 1
        if self.stale < 0:
            return found
        return replace_ensemble(found, ("bookie-gone:3181",))


class OnlyPresent(MemoryBookies):
    """The others answer that they have nothing."""

    def batch(self, bookie, ledger, first, *, count, size):
        return super().batch(bookie, ledger if bookie == "bookie-1:3181" else -1, first, count=count, size=size)

    def read(self, bookie, ledger, entry, *, fence=None):
        return super().read(bookie, ledger if bookie == "bookie-1:3181" else -1, entry, fence=fence)


def replace_ensemble(found: Versioned, ensemble: tuple[str, ...]) -> Versioned:
    return Versioned(replace(found.metadata, fragments=(Fragment(0, ensemble),)), found.version)


def test_where_the_bookies_were_replaced_meanwhile_reading_goes_on_with_the_others(cluster: MemoryCluster) -> None:
    source = BookKeeperSource(Moved(cluster), OnlyPresent(cluster))
    stored = everything(cluster)
    reader = source.open(TOPIC, *stored[0][:2], max_bytes=1_000, extent=extent(cluster))
    found: list[RawEntry] = []
    for _ in range(100):
        found += reader.read(0.01)
    assert found == stored


def test_nothing_is_explained_because_everything_is_delivered(cluster: MemoryCluster) -> None:
    assert cluster.stored.explain(TOPIC, EntryRange(1, 5, 10), limit=100) == ((), 5)
