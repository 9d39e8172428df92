"""`offloader explain` says of each ledger where it can be read from."""

from __future__ import annotations

from offloader.bridge.core.rounds import NOTHING_BRIDGED
from offloader.bridge.log import BridgeReader
from offloader.lifecycle.explaining.places import ReadFrom, places_told, topic_places
from offloader.state.managed_ledger import ListedLedger, OffloadContext
from tests.archive.bridges import Bridging, drawn
from tests.archive.support import TOPIC
from tests.archive.test_bridged import archived, whole


def listed(ledger: int, uuid: str = "", *, deleted: bool = False, entries: int = 20) -> ListedLedger:
    copy = OffloadContext(uuid, complete=True, bookkeeper_deleted=deleted) if uuid else None
    return ListedLedger(ledger, entries, 100, 1, copy)


def test_each_state_has_its_words():
    archive = archived(6)  # ledgers 0, 1, 2; 0 and 1 are bridged
    bridging = Bridging(archive)
    bridging.bridge({0: whole(0), 1: whole(1)})
    bridging.begin({2: whole(2)})
    ledgers = [
        listed(0, drawn(1), deleted=True),
        listed(1, drawn(2)),
        listed(2),
        listed(3, drawn(9), deleted=True),
        listed(4, entries=0),
    ]
    found = topic_places(ledgers, archive.catalogs.head(TOPIC), BridgeReader(archive.store).of(TOPIC))
    assert [each.places for each in found.ledgers] == [
        (ReadFrom.BRIDGED, ReadFrom.SEGMENTS),
        (ReadFrom.BOOKKEEPER, ReadFrom.BRIDGED, ReadFrom.SEGMENTS),
        (ReadFrom.BOOKKEEPER, ReadFrom.SEGMENTS),
        (ReadFrom.STOCK,),
        (ReadFrom.BOOKKEEPER,),
    ]
    assert [each.ledger for each in found.ledgers if each.under_way] == [2]
    assert found.archive_only is None
    told = list(places_told(found))
    assert told[2] == "Ledger 2 can be read from BookKeeper and the archive's segments, and being bridged."


def test_what_is_off_the_list_is_archive_only():
    archive = archived(6)
    found = topic_places([listed(2), listed(3, entries=0)], archive.catalogs.head(TOPIC))
    assert str(found.archive_only) == "0:0"
    first = next(places_told(found))
    assert first == "What is off its list can be read from the archive only (archive-only), from 0:0 on."


def test_ledgers_that_are_alike_are_told_together():
    found = topic_places([listed(1), listed(2), listed(5)], None, NOTHING_BRIDGED)
    assert list(places_told(found)) == ["Ledgers 1 to 5 of its list can be read from BookKeeper."]


def test_the_archives_end_may_lie_in_a_ledger():
    archive = archived(5)  # half of ledger 2
    found = topic_places([listed(1), listed(2)], archive.catalogs.head(TOPIC))
    assert [each.places[-1] for each in found.ledgers] == [ReadFrom.SEGMENTS, ReadFrom.IN_PART]
