"""With `bridge.keepSegments: false` a segment goes once brokers have all of its ledgers, and never as the only copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.errors import StoreUnavailableError
from offloader.lifecycle.retention.due_now import planned
from offloader.lifecycle.retention.handing_over import HandingOver
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention, GoneDoubt
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.bridged import BridgedLedgers
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import DeletionReason, PulsarTrimmed
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.archive.bridges import Bridging, drawn, opened
from tests.archive.ledgers.support import flip
from tests.archive.support import APPLICATION, TOPIC
from tests.archive.test_bridged import WHOLE, archived, entries, missing, whole

from .support import Clock

FALSE = RetentionPolicy(hands_over=True)


class World:
    """Three ledgers in five segments; the first two are bridged."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.archive = archived()
        assert isinstance(self.archive.store, MemoryStore)
        self.archive.store.backing.clock_ms = self.clock
        self.bridging = Bridging(self.archive)
        self.round = self.bridging.bridge({0: whole(0), 1: whole(1)})
        self.policy = FALSE
        self.listed = [0, 1, 2]
        self.gone: int | GoneDoubt | None = None

    def retention(self) -> ArchiveRetention:
        store = self.archive.store
        catalogs = Catalogs(store, APPLICATION)
        deletion = ArchiveDeletion(store, catalogs, catalogs.append, lambda: None, self.clock, "memory", APPLICATION)
        handing_over = HandingOver(BridgeReader(store), opened, lambda _: self.listed)
        gone = 10 * MINUTE_MS
        return ArchiveRetention(deletion, lambda _: self.policy, lambda _: self.gone, gone, handing_over=handing_over)

    def visit(self, wait: int = 0) -> str:
        self.clock.now += wait
        return self.retention().visit(TOPIC, noted=TOPIC in self.retention().deletion.marked())

    @property
    def deleted(self) -> list[tuple[str, str, tuple[DeletionReason, ...]]]:
        ranges = Catalogs(self.archive.store, "").head(TOPIC).removed.ranges
        return [(str(each.start), str(each.end), each.reasons) for each in ranges]


BRIDGED = (DeletionReason.BRIDGED,)


def test_segments_whose_ledgers_are_all_bridged_go_after_the_grace_and_are_read_from_brokers():
    world = World()
    assert "4 segments" in world.visit()
    assert world.visit(wait=MINUTE_MS) == ""
    assert world.deleted == []
    assert world.visit(wait=10 * MINUTE_MS) == "deletion 0 is done"
    assert world.deleted == [("0:0", "1:19", BRIDGED)]
    assert (entries(world.archive), missing(world.archive)) == (WHOLE, [])


@pytest.mark.parametrize("policy", [RetentionPolicy(), RetentionPolicy(hands_over=True, hold="court")])
def test_nothing_goes_because_it_is_bridged_where_segments_are_kept_or_held(policy: RetentionPolicy):
    world = World()
    world.policy = policy
    assert world.visit() == ""
    assert Catalogs(world.archive.store, "").head(TOPIC).removal is None


def test_a_ledger_that_is_not_bridged_keeps_its_segments_and_what_is_behind_them():
    world = World()
    archive = archived()
    Bridging(archive).bridge({1: whole(1)})
    world.archive = archive
    assert world.visit() == ""


def test_the_newest_segment_stays():
    world = World()
    world.bridging.bridge({2: whole(2, 9)})
    assert "4 segments" in world.visit()


def test_of_a_topic_that_is_gone_brokers_delete_their_copies_and_nothing_is_handed_over():
    world = World()
    world.gone = world.clock.now
    assert world.visit() == ""


def test_a_topic_that_is_gone_before_the_second_look_keeps_its_segments():
    world = World()
    world.visit()
    world.gone = world.clock.now
    assert "undone" in world.visit(wait=11 * MINUTE_MS)
    assert world.deleted == []


def unlisted(world: World) -> None:
    world.bridging.delete_in_pulsar(world.round, 0)


def without_index(world: World) -> None:
    world.bridging.brokers.delete([index_key(drawn(1), 0)])


def longer(world: World) -> None:
    data, stat = world.bridging.brokers.read(data_key(drawn(1), 0))
    world.bridging.brokers.put(data_key(drawn(1), 0), data + b"x", meta=stat.meta)


def broken_index(world: World) -> None:
    flip(world.bridging.brokers, index_key(drawn(1), 0), 0)


def index_of_another(world: World) -> None:
    data, stat = world.bridging.brokers.read(index_key(drawn(2), 1))
    world.bridging.brokers.put(index_key(drawn(1), 0), data, meta=stat.meta)
    flip(world.bridging.brokers, index_key(drawn(1), 0), 15)  # the length of the data object


BREAKS = [unlisted, without_index, longer, broken_index, index_of_another]


@pytest.mark.parametrize("breaks", BREAKS)
def test_before_the_second_phase_each_object_is_looked_at_again(breaks: Callable[[World], None]):
    world = World()
    assert "4 segments" in world.visit()
    breaks(world)
    said = world.visit(wait=11 * MINUTE_MS)
    assert "undone" in said
    assert drawn(1) in said
    assert world.deleted == []
    assert entries(world.archive) == WHOLE


@pytest.mark.parametrize("breaks", BREAKS)
def test_what_is_not_sound_is_not_even_recorded_to_go(breaks: Callable[[World], None]):
    world = World()
    breaks(world)
    assert world.visit() == ""
    head = Catalogs(world.archive.store, "").head(TOPIC)
    handing_over = HandingOver(BridgeReader(world.archive.store), opened)
    found = planned(world.archive.store, head, FALSE, world.clock.now, None, handing_over)
    assert drawn(1) in found.why_not


def test_a_sound_beginning_goes_before_one_that_is_not():
    world = World()
    world.bridging.delete_in_pulsar(world.round, 1)
    assert "2 segments" in world.visit()
    world.visit(wait=11 * MINUTE_MS)
    assert world.deleted == [("0:0", "0:19", BRIDGED)]


def test_a_changed_setting_takes_it_back():
    world = World()
    world.visit()
    world.policy = RetentionPolicy()
    assert "undone" in world.visit(wait=11 * MINUTE_MS)


def test_what_is_too_old_is_deleted_for_readers_and_what_brokers_get_is_not():
    world = World()
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    world.policy = replace(FALSE, minutes=1)
    world.clock.now += 61 * MINUTE_MS
    assert world.visit() == ""  # the newest one stays
    assert [reasons for _, _, reasons in world.deleted] == [BRIDGED]


def test_a_time_that_is_due_wins_and_readers_are_told():
    world = World()
    world.policy = RetentionPolicy(minutes=1, hands_over=True)
    world.clock.now += 60 * MINUTE_MS
    assert "4 segments" in world.visit()
    world.visit(wait=11 * MINUTE_MS)
    assert world.deleted == [("0:0", "1:19", (DeletionReason.TIME,))]
    assert entries(world.archive) == {place: data for place, data in WHOLE.items() if place >= (2, 0)}


def test_what_went_for_brokers_and_what_went_for_good_stay_apart():
    world = World()
    world.archive = archived()
    world.bridging = Bridging(world.archive)
    world.archive.store.backing.clock_ms = world.clock
    world.bridging.bridge({0: whole(0)})
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    world.policy = RetentionPolicy(minutes=1)
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    assert [reasons for _, _, reasons in world.deleted] == [BRIDGED, (DeletionReason.TIME,)]
    assert entries(world.archive) == {place: data for place, data in WHOLE.items() if place >= (2, 0)}
    told = missing(world.archive)
    assert [(str(each.start), str(each.end)) for each in told] == [("0:0", "0:19"), ("1:0", "1:19")]
    assert all("archiveRetentionTimeInMinutes 1" in each.why for each in told)


def test_a_bucket_that_cannot_be_reached_deletes_nothing():
    world = World()
    world.visit()

    def unreachable(_: str) -> ObjectStore:
        raise StoreUnavailableError("no route")

    one = world.retention()
    world.clock.now += 11 * MINUTE_MS
    one = replace(one, handing_over=HandingOver(BridgeReader(world.archive.store), unreachable))
    with pytest.raises(StoreUnavailableError):
        one.visit(TOPIC)
    assert world.deleted == []
    assert "done" in world.visit()


def other_bytes(world: World) -> None:
    """As long as before; nothing that is no message has a sum of its own."""
    flip(world.bridging.brokers, data_key(drawn(1), 0), 300)


def test_before_the_second_phase_a_copy_is_read_whole_and_compared_with_what_was_built():
    world = World()
    assert "4 segments" in world.visit()
    other_bytes(world)
    said = world.visit(wait=11 * MINUTE_MS)
    assert "undone" in said
    assert f"{drawn(1)}-ledger-0 has other bytes" in said
    assert entries(world.archive) == WHOLE


def test_what_pulsar_takes_off_its_list_in_the_grace_stays_though_the_copy_is_still_there():
    world = World()
    world.visit()
    world.listed = [1, 2]
    said = world.visit(wait=11 * MINUTE_MS)
    assert "undone" in said
    assert "ledger 0 is off Pulsar's list" in said
    world.bridging.delete_in_pulsar(world.round, 0)
    assert entries(world.archive) == WHOLE


def test_what_is_recorded_as_off_the_list_stays():
    world = World()
    world.visit()
    catalogs = Catalogs(world.archive.store, APPLICATION)
    catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(0, 1, world.clock.now))
    assert (entries(world.archive), missing(world.archive)) == (WHOLE, [])
    assert "undone" in world.visit(wait=11 * MINUTE_MS)
    assert (world.visit(), entries(world.archive)) == ("", WHOLE)


def test_what_is_off_the_list_is_not_even_recorded_to_go():
    world = World()
    world.listed = [1, 2]
    assert world.visit() == ""


def test_in_the_grace_all_is_read_from_segments_whatever_pulsar_deletes():
    world = World()
    world.visit()
    world.bridging.delete_in_pulsar(world.round, 0)
    assert (entries(world.archive), missing(world.archive)) == (WHOLE, [])


def test_a_look_at_a_topic_of_which_nothing_is_new_reads_no_round_of_its_bridge_log():
    world = World()
    asked = []

    class Counted(BridgeReader):
        def of(self, topic: TopicName) -> BridgedLedgers:
            asked.append(topic)
            return super().of(topic)

    one = replace(world.retention(), handing_over=HandingOver(Counted(world.archive.store), opened, lambda _: ()))
    assert one.visit(TOPIC) == ""  # everything is off the list
    assert asked
    asked.clear()
    assert one.visit(TOPIC) == ""
    assert not asked
    world.bridging.bridge({2: whole(2)})
    assert one.visit(TOPIC) == ""
    assert asked, "a round has been finished"


def test_what_was_handed_over_is_read_no_more_once_the_rest_goes_on_request():
    world = World()
    world.visit()
    world.visit(wait=11 * MINUTE_MS)
    world.gone = world.clock.now
    said = world.retention().delete(TOPIC, "me")
    assert "4 segments were handed over: only Pulsar deletes" in said
    assert entries(world.archive) == {}
    world.retention().undelete(TOPIC, "me")
    assert entries(world.archive) == WHOLE
    world.retention().delete(TOPIC, "me")
    world.visit(wait=11 * MINUTE_MS)
    assert entries(world.archive) == {}
    assert all(each.deleted and "request of me" in each.why for each in missing(world.archive))
