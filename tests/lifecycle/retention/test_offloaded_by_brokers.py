"""With `bridge.keepSegments: false`, ledgers that brokers have offloaded by themselves go like those that are bridged,
once their copies have proven to be the same. What cannot be used keeps what is behind it, and the plan says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.bridge.core.rewrite import OffloadContextFacts, with_contexts
from offloader.lifecycle.retention.due_now import MOST_OWN
from offloader.lifecycle.retention.handing_over import HandingOver
from offloader.lifecycle.retention.outlook import outlook
from offloader.lifecycle.retention.own_copies import OwnCopy, copies_of
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.lifecycle.retention.second_look import SecondLook
from offloader.metadata import layout
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import DeletionReason, Tombstone
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.operations.verify.bridges import BridgeCheck
from offloader.operations.verify.brokers_view import BrokersView
from tests.archive.bridges import Bridging, opened
from tests.archive.ledgers.support import flip, put_ledger
from tests.archive.support import APPLICATION, TOPIC
from tests.archive.test_bridged import archived, entries, missing, whole

from .support import Clock

FALSE = RetentionPolicy(hands_over=True)
WHOLE = {(ledger, n): data for ledger in range(4) for n, data in enumerate(whole(ledger, 9 if ledger == 3 else 19))}


class KilledError(Exception):
    """A process ends here."""


def killed(*_: object) -> None:
    raise KilledError


class World:
    """Four ledgers in seven segments. The second was offloaded by brokers themselves, between two that are bridged."""

    def __init__(self, driver: str = "aws-s3", own: int = 1) -> None:
        self.clock = Clock()
        self.archive = archived(7)
        self.archive.store.backing.clock_ms = self.clock
        self.bridging = Bridging(self.archive)
        self.driver = driver
        self.copies: dict[int, str] = {}
        for ledger in range(3):
            if ledger == own:
                self.copies[ledger] = self.bridging.passed(ledger, whole(ledger))
            else:
                self.bridging.bridge({ledger: whole(ledger)})
        self.listed = [0, 1, 2, 3]

    @property
    def record(self) -> bytes:
        info = ManagedLedgerInfo()
        for ledger in self.listed:
            held = whole(ledger)
            info.ledgerInfo.add(ledgerId=ledger, entries=len(held), size=sum(map(len, held)))
        facts = {
            ledger: OffloadContextFacts(uuid, self.driver, (("bucket", "theirs"),), 1)
            for ledger, uuid in self.copies.items()
            if ledger in self.listed
        }
        return with_contexts(info.SerializeToString(), facts)

    def own(self, _: TopicName) -> Mapping[int, OwnCopy]:
        return copies_of(self.record, lambda name: {"theirs": self.bridging.bucket}[name])

    @property
    def handing_over(self) -> HandingOver:
        return HandingOver(BridgeReader(self.archive.store), opened, lambda _: self.listed, self.own)

    def retention(self) -> ArchiveRetention:
        store = self.archive.store
        catalogs = Catalogs(store, APPLICATION)
        deletion = ArchiveDeletion(store, catalogs, catalogs.append, lambda: None, self.clock, "memory", APPLICATION)
        grace = 10 * MINUTE_MS
        return ArchiveRetention(deletion, lambda _: FALSE, lambda _: None, grace, handing_over=self.handing_over)

    def visit(self, wait: int = 0) -> str:
        self.clock.now += wait
        return self.retention().visit(TOPIC, noted=TOPIC in self.retention().deletion.marked())

    def told(self) -> list[str]:
        head, now = Catalogs(self.archive.store, "").head(TOPIC), self.clock.now
        found = outlook(self.archive.store, head, FALSE, APPLICATION, now, 0, self.handing_over)
        return [f"{each.segment.start}: {each.words}" for each in found.waiting]

    @property
    def deleted(self) -> list[tuple[str, str, tuple[DeletionReason, ...]]]:
        ranges = Catalogs(self.archive.store, "").head(TOPIC).removed.ranges
        return [(str(each.start), str(each.end), each.reasons) for each in ranges]


BRIDGED = (DeletionReason.BRIDGED,)


def test_what_brokers_have_offloaded_by_themselves_goes_with_what_is_bridged_and_is_read_from_there():
    world = World()
    assert "6 segments" in world.visit()
    assert world.visit(wait=11 * MINUTE_MS) == "deletion 0 is done"
    assert world.deleted == [("0:0", "2:19", BRIDGED)]
    assert (entries(world.archive), missing(world.archive)) == (WHOLE, [])
    records = OpenArchive(Stores.of(world.archive.store)).catalogs.records(TOPIC)
    stones = [each for each in records.whole.catalog.segments if isinstance(each, Tombstone)]
    assert {copy.ledger for each in stones for copy in each.copies if copy.by_brokers} == {1}


def test_where_it_was_interrupted_it_goes_on_though_pulsar_lists_the_ledger_no_more():
    world = World()
    world.visit()
    world.clock.now += 11 * MINUTE_MS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ArchiveDeletion, "carry_out", killed)
        with pytest.raises(KilledError):
            world.visit()
    world.listed = [2, 3]
    assert world.visit() == "deletion 0 is done"
    assert entries(world.archive) == WHOLE


def gone(world: World) -> None:
    world.bridging.brokers.delete([data_key(world.copies[1], 1)])


def without_index(world: World) -> None:
    world.bridging.brokers.delete([index_key(world.copies[1], 1)])


def of_less(world: World) -> None:
    put_ledger(world.bridging.brokers, 1, whole(1)[:-1], world.copies[1])


@pytest.mark.parametrize("breaks", [gone, without_index, of_less])
def test_a_copy_of_brokers_that_is_not_there_or_not_whole_keeps_its_segments_and_those_behind(
    breaks: Callable[[World], None],
):
    world = World()
    breaks(world)
    assert "2 segments" in world.visit()
    world.visit(wait=11 * MINUTE_MS)
    assert world.deleted == [("0:0", "0:19", BRIDGED)]
    assert entries(world.archive) == WHOLE


def other_bytes(world: World) -> None:
    flip(world.bridging.brokers, data_key(world.copies[1], 1), 300)


def other_entries(world: World) -> None:
    """A whole and sound object of as many bytes."""
    put_ledger(world.bridging.brokers, 1, [data[::-1] for data in whole(1)], world.copies[1])


def off_the_list(world: World) -> None:
    world.listed = [2, 3]


@pytest.mark.parametrize("breaks", [gone, without_index, of_less, other_bytes, other_entries, off_the_list])
def test_at_the_second_look_it_is_read_whole_and_compared_with_the_segments(breaks: Callable[[World], None]):
    world = World()
    assert "6 segments" in world.visit()
    breaks(world)
    assert "undone" in world.visit(wait=11 * MINUTE_MS)
    assert world.deleted == []
    assert entries(world.archive) == WHOLE


def test_a_copy_is_compared_with_each_segment_that_it_stands_for():
    world = World()
    store, handed = world.archive.store, world.handing_over.readable(TOPIC).ledgers[1]
    found = Catalogs(store, "").load(TOPIC).segments
    first, second = [segment for segment in found if 1 in {held.ledger for held in segment.ledgers}][:2]
    look = SecondLook(store, TOPIC)
    assert look.fault(opened(world.bridging.bucket), handed, [first]) == ""
    flip(store, layout.data_key(TOPIC, second.uuid), second.size // 2)
    assert "cannot be compared" in look.fault(opened(world.bridging.bucket), handed, [second])


def test_a_copy_that_cannot_be_read_keeps_what_is_behind_it_and_the_plan_says_so():
    world = World(driver="filesystem")
    assert "2 segments" in world.visit()
    world.visit(wait=11 * MINUTE_MS)
    assert world.visit() == ""
    (told,) = world.told()
    assert told.startswith("1:0: stays, and so does all behind it: brokers have offloaded ledger 1 by themselves")
    assert "filesystem" in told


def test_the_plan_names_the_ledger_that_is_not_bridged_yet():
    world = World(own=-1)
    world.archive = archived(7)
    world.bridging = Bridging(world.archive)
    world.bridging.bridge({0: whole(0)})
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    (told,) = world.told()
    assert "ledger 1 is not bridged yet" in told


def test_a_copy_behind_the_bridges_end_may_be_of_a_round_that_nobody_has_proven():
    world = World(own=-1)
    world.archive = archived(7)
    world.archive.store.backing.clock_ms = world.clock
    world.bridging = Bridging(world.archive)
    world.bridging.bridge({0: whole(0)})
    world.bridging.begin({1: whole(1)})
    world.bridging.build({1: whole(1)})
    under_way = world.bridging.swap().round
    assert under_way is not None
    world.copies = {1: under_way.ledgers[0].uuid}
    assert "2 segments" in world.visit()


def test_verify_takes_what_brokers_have_by_themselves_for_no_loss_of_the_bridge_log():
    world = World()
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    archive = OpenArchive(Stores.of(world.archive.store))
    report = BridgeCheck(archive, lambda _: BrokersView({})).topic(TOPIC)
    assert [f.message for f in report.findings if "it does not have" in f.message] == []


def test_as_many_go_at_a_time_as_the_record_of_the_second_look_may_name():
    assert MOST_OWN >= 100
    world = World()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("offloader.lifecycle.retention.due_now.MOST_OWN", 0)
        assert "2 segments" in world.visit()
        world.visit(wait=11 * MINUTE_MS)
    assert "4 segments" in world.visit()
