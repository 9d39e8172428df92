"""What is left of an archived topic, and which of its transactions were committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot, Unreadable
from offloader.archive.topic import ArchivedTopic
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER
from offloader.model import LedgerList, LedgerSpan, Source
from offloader.operations.restore.restore import ArchiveSource
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import TOPIC, Archive, gap, stream, uuid_of
from tests.format.support import Stored
from tests.operations.restore.support import archived, at

LAST_ENTRY = 2**63 - 1


def test_the_outline_is_of_what_comes_after_the_tail() -> None:
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 9), [gap(1, 10, 12)], closed={1: 12})
    archive.add(stream(2, 0, 3))
    source = ArchiveSource(ArchivedTopic.of(archive.store, archive.catalog))
    assert (source.outline(None).entries, source.outline(at(1, 4)).entries, source.outline(at(2, 3)).entries) == (
        14,
        9,
        0,
    )
    assert source.outline(None).bytes > source.outline(at(2, 2)).bytes > 0
    assert source.outline(None).lost == ()
    after = [item.position for item in source.items(at(1, 8)) if isinstance(item, ArchivedEntry)]
    assert after == [at(1, 9), *(at(2, n) for n in range(4))]


def test_ledgers_that_nothing_lists_are_told_of() -> None:
    archive = Archive()
    ledger = OffloadedLedger(at(5, 0), at(5, 9), uuid_of(5), 1_000)
    for listed, told in ((None, 1), (LedgerList((LedgerSpan(5, 9),)), 0)):
        view = TopicSnapshot(TOPIC, archive.catalog, (ledger,), listed)
        lost = ArchiveSource(ArchivedTopic.of(archive.store, view)).outline(None).lost
        assert ["nothing lists the ledgers" in text for text in lost] == [True] * told


def test_a_brokers_ledger_that_cannot_be_read_is_lost() -> None:
    archive = Archive()
    unreadable = Unreadable("the-index", "it is gone")
    ledger = OffloadedLedger(at(5, 0), at(5, LAST_ENTRY), uuid_of(5), 0, unreadable=unreadable)
    source = ArchiveSource(ArchivedTopic.of(archive.store, TopicSnapshot(TOPIC, archive.catalog, (ledger,))))
    assert "damaged: the-index: it is gone" in source.outline(None).lost[0]
    assert [type(item) for item in source.items(None)] == [Missing]


@pytest.mark.parametrize("source", [source for source in Source if source.complete])
def test_markers_are_looked_for_only_where_ledgers_were_copied(source: Source) -> None:
    archive = Archive()
    archive.claim(1)
    items = [archived(at(1, n), txnid_most_bits=0, txnid_least_bits=n) for n in (1, 2)]
    markers = [
        archived(at(1, n), marker_type=kind, txnid_most_bits=0, txnid_least_bits=txn)
        for n, txn, kind in ((3, 1, COMMIT_MARKER), (4, 2, ABORT_MARKER))
    ]
    archive.add(stream(1, 0, 0))
    archive.add([Stored(1, item.position.entry, item.data) for item in (*items, *markers)])
    catalog = archive.catalog
    assert ArchiveSource(ArchivedTopic.of(archive.store, catalog)).outcomes().raw == ()
    copied = replace(catalog, segments=(catalog.segments[0], replace(catalog.segments[1], source=source)))
    found = ArchiveSource(ArchivedTopic.of(archive.store, copied)).outcomes()
    assert found.raw == ((at(1, 1), at(1, 4)),)
    assert [found.committed(at(1, n), (0, n)) for n in (1, 2)] == [True, False]


def test_what_a_segment_has_of_a_brokers_ledger_was_delivered() -> None:
    archive = Archive()
    entries = [archived(at(5, n), txnid_most_bits=0, txnid_least_bits=n).data for n in range(4)]
    put_ledger(archive.store, 5, entries, uuid_of(5))
    archive.claim(5, 2)
    archive.add([Stored(5, n, entries[n]) for n in (2, 3)], closed={5: 3})
    view = TopicSnapshot(
        TOPIC, archive.catalog, (OffloadedLedger(at(5, 0), at(5, 3), uuid_of(5), sum(map(len, entries))),)
    )
    found = ArchiveSource(ArchivedTopic.of(archive.store, view)).outcomes()
    assert found.raw == ((at(5, 0), at(5, 1)),)
    assert found.committed(at(5, 3), (0, 3))
