"""What brokers know of bridged ledgers is what the bridge log says, and their objects are what segments have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offloader.archive.findings import FindingKind
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.bridge.operations.verify import BridgeCheck, BridgeReport, BrokersView
from offloader.errors import ObjectArchivedError
from offloader.metadata.layout import bridge_folder
from offloader.metadata.stock_keys import data_key, index_key
from offloader.ports.object_store import Stat
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.memory import MemoryStore
from tests.archive.bridges import BRIDGED_BLOCK, Bridging, drawn
from tests.archive.ledgers.support import flip, put_ledger
from tests.archive.support import TOPIC, message
from tests.archive.test_bridged import archived, whole

LAST = 19


class World:
    """Ledgers 0 and 1 are bridged, ledger 2 is open."""

    def __init__(self) -> None:
        self.archive = archived()
        self.bridging = Bridging(self.archive)
        self.round = self.bridging.bridge({0: whole(0), 1: whole(1)})
        bucket = self.bridging.bucket.removeprefix("memory://")
        self.contexts = {
            number: ListedLedger(
                number, LAST + 1, 100, 1, OffloadContext(drawn(number + 1), True, properties=(("bucket", bucket),))
            )
            for number in range(2)
        } | {2: ListedLedger(2)}
        self.reported: frozenset[int] | None = frozenset({0, 1})
        self.there = True

    def report(self, *, quick: bool = False) -> BridgeReport:
        archive = OpenArchive(Stores.of(self.archive.store))
        view = self.view() if self.there else None
        return BridgeCheck(archive, lambda _: view, quick=quick).topic(TOPIC)

    def kinds(self, *, quick: bool = False) -> set[FindingKind]:
        return {each.kind for each in self.report(quick=quick).findings}

    def change(self, ledger: int, **fields: object) -> None:
        listed = self.contexts[ledger]
        self.contexts[ledger] = listed._replace(context=listed.copy._replace(**fields))

    def view(self) -> BrokersView:
        return BrokersView(ManagedLedger(tuple(sorted(self.contexts.values()))), self.reported)


@pytest.mark.parametrize("quick", [False, True])
def test_what_agrees_has_no_finding(quick: bool) -> None:
    report = World().report(quick=quick)
    assert report.findings == ()
    assert (report.topics, report.ledgers, report.off_list, report.under_way) == (1, 2, 0, 0)
    assert report.bytes > 0


def test_a_topic_that_was_never_bridged_has_nothing_to_check() -> None:
    archive = archived()
    check = BridgeCheck(OpenArchive(Stores.of(archive.store)), lambda _: None)
    assert check.topic(TOPIC) == BridgeReport()


def test_what_pulsar_has_deleted_is_no_finding() -> None:
    world = World()
    del world.contexts[0]
    world.reported = frozenset({1})
    world.bridging.delete_in_pulsar(world.round, 0)
    report = world.report()
    assert (report.findings, report.off_list) == ((), 1)


def no_context(world: World) -> None:
    world.change(0, uuid="", complete=False)
    world.reported = frozenset({1})


def incomplete(world: World) -> None:
    world.change(0, complete=False)
    world.reported = frozenset({1})


def another(world: World) -> None:
    world.change(0, uuid=drawn(99))


def in_another_bucket(world: World) -> None:
    world.change(0, properties=(("bucket", "elsewhere"),))


def of_another_length(world: World) -> None:
    world.contexts[0] = world.contexts[0]._replace(entries=6)


def not_reported(world: World) -> None:
    world.reported = frozenset({1})


def reported_without_a_record(world: World) -> None:
    no_context(world)
    world.reported = frozenset({0, 1})


def no_data(world: World) -> None:
    world.bridging.brokers.delete([data_key(drawn(1), 0)])


def no_index(world: World) -> None:
    world.bridging.brokers.delete([index_key(drawn(1), 0)])


def cut_off(world: World) -> None:
    data, stat = world.bridging.brokers.read(data_key(drawn(1), 0))
    world.bridging.brokers.put(data_key(drawn(1), 0), data[:-1], meta=stat.meta)


def damaged(world: World) -> None:
    flip(world.bridging.brokers, data_key(drawn(1), 0), 200)


def other_entries(world: World) -> None:
    """Sound by themselves, and as long."""
    others = [message("y".ljust(60, "y")) for _ in range(LAST + 1)]
    put_ledger(world.bridging.brokers, 0, others, drawn(1), block_size=BRIDGED_BLOCK)


def off_the_list_and_there(world: World) -> None:
    del world.contexts[0]
    world.reported = frozenset({1})


def gone(world: World) -> None:
    world.there = False


def blocked(world: World) -> None:
    state = world.bridging.state
    world.bridging._append(state.blocked_by(UnbridgedLedger(2, 9, BridgeVerdict.LOSS, "trimmed")))


def passed_over(world: World) -> None:
    world.contexts[-1] = ListedLedger(-1, 6, 100)  # listed, and before the end of the bridge
    world.contexts = {0: world.contexts[0], 1: world.contexts[1], -1: world.contexts[-1]}


def broken_log(world: World) -> None:
    key = f"{bridge_folder(TOPIC)}{2:020d}"
    world.archive.store.put(key, b"x")


BREAKS: dict[Callable[[World], None], set[FindingKind]] = {
    no_context: {FindingKind.MISSING_CONTEXT, FindingKind.UNNAMED_COPY},
    incomplete: {FindingKind.MISSING_CONTEXT, FindingKind.UNNAMED_COPY},
    another: {FindingKind.OTHER_CONTEXT, FindingKind.UNNAMED_COPY},
    in_another_bucket: {FindingKind.OTHER_CONTEXT},
    of_another_length: {FindingKind.OTHER_CONTEXT},
    not_reported: {FindingKind.STALE_BROKER},
    reported_without_a_record: {FindingKind.STALE_BROKER, FindingKind.MISSING_CONTEXT, FindingKind.UNNAMED_COPY},
    no_data: {FindingKind.MISSING_OBJECT},
    no_index: {FindingKind.MISSING_INDEX},
    cut_off: {FindingKind.WRONG_SIZE},
    damaged: {FindingKind.DAMAGED_ENTRY},
    off_the_list_and_there: {FindingKind.UNNAMED_COPY},
    gone: {FindingKind.UNNAMED_COPY},
    blocked: {FindingKind.NOT_BRIDGED},
    passed_over: {FindingKind.NOT_BRIDGED},
    broken_log: {FindingKind.DAMAGED_RECORD},
}


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda each: each.__name__)
def test_each_difference_is_found_by_its_name(breaks: Callable[[World], None]) -> None:
    world = World()
    breaks(world)
    assert world.kinds() == BREAKS[breaks]


def test_a_copy_of_other_bytes_than_were_built_is_found_by_the_recorded_sum() -> None:
    world = World()
    other_entries(world)
    [found] = world.report().findings
    assert (found.kind, "when it was built" in found.message) == (FindingKind.DAMAGED_PART, True)


def test_a_copy_of_other_entries_is_found_by_its_bytes_alone() -> None:
    """It was built so."""
    world = World()
    world.bridging = Bridging(world.archive)
    world.archive.store.delete([key for key, _ in world.archive.store.list(bridge_folder(TOPIC))])
    world.bridging.begin({0: whole(0), 1: whole(1)})
    world.bridging.build({0: whole(0), 1: whole(1)})
    other_entries(world)
    world.bridging.swap()
    world.bridging.finish()
    for ledger in range(2):
        world.change(ledger, properties=(("bucket", world.bridging.bucket.removeprefix("memory://")),))
    [found] = world.report().findings
    assert (found.kind, "its segment" in found.message) == (FindingKind.WRONG_ENTRIES, True)


def test_quickly_no_data_is_read() -> None:
    world = World()
    damaged(world)
    assert world.kinds(quick=True) == set()


@pytest.mark.parametrize("key_of", [data_key, index_key])
def test_a_copy_in_an_archive_tier_is_a_finding(
    key_of: Callable[[str, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    key, read = key_of(drawn(1), 0), MemoryStore.read

    def read_unless_asleep(self: MemoryStore, asked: str, *a: int) -> tuple[bytes, Stat]:
        if asked == key:
            raise ObjectArchivedError(f"reading {key}: the object is in an archive tier")
        return read(self, asked, *a)

    monkeypatch.setattr(MemoryStore, "read", read_unless_asleep)
    assert [(each.kind, each.key) for each in world.report().findings] == [(FindingKind.ARCHIVED_OBJECT, key)]


def while_it_reads(world: World, happens: Callable[[World], object]) -> set[FindingKind]:
    """What is found where something happens once brokers have said what they know."""
    first = [world.view()]

    def view_of(_: object) -> BrokersView:
        if not first:
            return world.view()
        happens(world)
        return first.pop()

    check = BridgeCheck(OpenArchive(Stores.of(world.archive.store)), view_of)
    return {each.kind for each in check.topic(TOPIC).findings}


def trimmed(world: World) -> None:
    off_the_list_and_there(world)
    world.bridging.delete_in_pulsar(world.round, 0)


def reported_now(world: World) -> None:
    world.reported = frozenset({0, 1})


def test_what_brokers_delete_while_it_reads_is_no_finding() -> None:
    assert while_it_reads(World(), trimmed) == set()
    assert while_it_reads(World(), no_data) == {FindingKind.MISSING_OBJECT}


def test_a_swap_between_the_report_and_the_record_makes_no_broker_stale() -> None:
    world = World()
    world.reported = frozenset({1})
    assert while_it_reads(world, reported_now) == set()


def test_a_ledger_of_a_round_under_way_makes_no_broker_stale() -> None:
    world = World()
    world.contexts[2] = ListedLedger(2, 10, 100, 1, OffloadContext(drawn(3), complete=True))
    assert world.kinds() == {FindingKind.STALE_BROKER}
    world.bridging.begin({2: whole(2)})
    assert world.kinds() == set()
