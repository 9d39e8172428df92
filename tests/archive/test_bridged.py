"""Topics that stock brokers read, too: what the bridge has built beside the segments changes nothing for readers."""

from __future__ import annotations

from typing import TypeVar

import pytest

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.metadata import layout
from offloader.operations.verify.verify import verify
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging, fresh_bucket, opened
from tests.archive.support import TOPIC, Archive, stream

ENTRIES = 10  # of each segment, two to a ledger
Place = tuple[int, int]
T = TypeVar("T")


def archived(segments: int = 5) -> Archive:
    archive = Archive()
    archive.claim()
    for number in range(segments):
        ledger, half = divmod(number, 2)
        first = ENTRIES * half
        last = first + ENTRIES - 1
        archive.add(stream(ledger, first, last), closed={ledger: last} if half else {})
    return archive


def whole(ledger: int, last: int = 2 * ENTRIES - 1) -> list[bytes]:
    return [entry.data for entry in stream(ledger, 0, last)]


def topic_of(archive: Archive) -> ArchivedTopic:
    return ReadArchive(OpenArchive(Stores.of(archive.store))).topic(TOPIC)


def entries(archive: Archive, selection: Selection = Selection()) -> dict[Place, bytes]:  # noqa: B008 (frozen)
    found = [item for item in topic_of(archive).items(selection) if isinstance(item, ArchivedEntry)]
    assert len({each.position.place for each in found}) == len(found)
    assert [each.position for each in found] == sorted(each.position for each in found)
    return {each.position.place: each.data for each in found}


def missing(archive: Archive) -> list[Missing]:
    return [item for item in topic_of(archive).items() if isinstance(item, Missing)]


WHOLE = {(e.ledger, e.entry): e.data for ledger in range(2) for e in stream(ledger, 0, 19)} | {
    (2, e.entry): e.data for e in stream(2, 0, 9)
}


def test_what_brokers_delete_of_a_bridged_ledger_that_they_alone_have_is_told_and_never_damage() -> None:
    """The archive begins behind it: where its records were lost, the brokers' copy is read in place."""
    archive = Archive()
    archive.claim(1)
    archive.add(stream(1, 0, 9))
    bridging = Bridging(archive)
    done = bridging.bridge({0: whole(0, 9)})
    bucket = LedgerBucket(StoreSettings(bridging.bucket))
    stores = Stores(StoreSettings("memory://x"), [StoreSettings(bridging.bucket)], borrowed=archive.store)
    topic = ReadArchive(OpenArchive(stores, bucket)).topic(TOPIC)
    places = [item.position.place for item in topic.items() if isinstance(item, ArchivedEntry)]
    assert places == [(ledger, entry) for ledger in range(2) for entry in range(10)]
    planned = list(topic.records.plan())
    bridging.delete_in_pulsar(done, 0)
    told = [item for item in topic.read(planned) if isinstance(item, Missing) and item.kind is None]
    assert [(str(each.start), str(each.end), each.deleted) for each in told if each.deleted] == [("0:0", "0:9", True)]
    assert not any(each.damaged for each in told)


@pytest.mark.parametrize("step", ["building", "swapping", "finished", "withdrawing"])
def test_brokers_may_have_their_objects_in_the_archives_own_bucket(step: str) -> None:
    url = fresh_bucket()
    archive = Archive(store=opened(url))
    archive.claim()
    archive.add(stream(0, 0, 9), closed={0: 9})
    archive.add(stream(1, 0, 9))
    bridging = Bridging(archive, url)
    bridging.begin({0: whole(0, 9)})
    bridging.build({0: whole(0, 9)}, index=step != "building")
    archive.store.begin("bbbbbbbb-0000-4000-8000-000000000001-ledger-0")
    if step != "building":
        bridging.swap()
    if step == "finished":
        bridging.finish()
    if step == "withdrawing":
        bridging.withdraw()
    assert verify(archive.store).findings == ()
    if step == "withdrawing":
        bridging.withdrawn()
        kinds = {(each.kind, each.key.partition("-")[0]) for each in verify(archive.store).findings}
        assert kinds == {(FindingKind.STRAY_OBJECT, "bbbbbbbb"), (FindingKind.OPEN_UPLOAD, "bbbbbbbb")}


def test_a_damaged_bridge_log_is_found() -> None:
    archive = archived()
    Bridging(archive).bridge({0: whole(0)})
    archive.store.put(f"{layout.bridge_folder(TOPIC)}{2:020d}", b"x")
    assert [each.kind for each in verify(archive.store).findings] == [FindingKind.DAMAGED_RECORD]


@pytest.mark.parametrize("index", [False, True])
def test_what_a_round_under_way_has_built_so_far_is_neither_damage_nor_a_second_copy(index: bool) -> None:
    archive = Archive()
    archive.claim()
    archive.add(stream(0, 0, 9))  # nothing records yet that it was closed with this
    bridging = Bridging(archive)
    bridging.begin({0: whole(0, 9)})
    bridging.build({0: whole(0, 9)}, index=index)
    bucket = LedgerBucket(StoreSettings(bridging.bucket))
    found = ReadArchive(OpenArchive(Stores.of(archive.store), bucket)).topic(TOPIC)
    assert [item.position.place for item in found.items() if isinstance(item, ArchivedEntry)] == [
        (0, entry) for entry in range(10)
    ]
    assert not [item for item in found.items() if isinstance(item, Missing)]
