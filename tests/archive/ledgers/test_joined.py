"""A topic that stock brokers offloaded first and our application afterwards, read as one sequence."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import Missing
from offloader.archive.ledgers.bucket import scan
from offloader.archive.ledgers.found import FoundLedgers, found_in, joined
from offloader.archive.reading.plan import plan
from offloader.archive.reading.range_reader import IndexCache
from offloader.archive.reading.reader import OnDamage, PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.metadata.state import TopicCatalog
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Position, TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.memory import MemoryStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.support import TOPIC, Archive, uuid_of
from tests.format.support import Stored

from .support import UUID, flip, messages, put_ledger

_NAMES = itertools.count()


@dataclass
class World:
    """An archive and a stock broker's bucket."""

    def __post_init__(self) -> None:
        name = next(_NAMES)
        self.settings = StoreSettings(f"memory://archive-{name}")
        self.bucket_settings = StoreSettings(f"memory://ledgers-{name}")
        self.bucket = open_store(self.bucket_settings)
        root = open_store(self.settings)
        assert isinstance(root, MemoryStore)
        self.archive = Archive(root)
        self.held: dict[int, list[bytes]] = {}
        self.stock: list[int] = []

    def fill(self, ledger: int, count: int) -> list[bytes]:
        self.held[ledger] = messages(ledger, count)
        return self.held[ledger]

    def offload(self, ledger: int, count: int) -> None:
        """By a stock broker."""
        put_ledger(self.bucket, ledger, self.fill(ledger, count))
        self.stock.append(ledger)

    def segment(self, *ledgers: int, count: int, closed: bool = True) -> None:
        """By our application, as a segment that ends with the last of these ledgers."""
        entries = [
            Stored(n, i, data) for n in ledgers for i, data in enumerate(self.held.get(n) or self.fill(n, count))
        ]
        last = {n: len(self.held[n]) - 1 for n in (ledgers if closed else ledgers[:-1])}
        self.archive.add(entries, closed=last)

    def listed(self) -> FoundLedgers:
        """With the contexts."""
        ledgers = tuple(
            ListedLedger(
                n, len(e), sum(map(len, e)), 1, OffloadContext(UUID, complete=True) if n in self.stock else None
            )
            for n, e in sorted(self.held.items())
        )
        return found_in(TOPIC, ManagedLedger(ledgers), lambda _: self.bucket_settings.root)

    def scanned(self) -> FoundLedgers:
        """Without."""
        return scan(self.bucket, store_url=self.bucket_settings.root).of(TOPIC)

    @property
    def catalog(self) -> TopicCatalog:
        return self.archive.catalog

    def read(self, view: TopicSnapshot, on_damage: OnDamage = OnDamage.FAIL) -> list[tuple[int, int, bytes] | Missing]:
        stores = Stores(self.settings, [self.bucket_settings])
        found: list[tuple[int, int, bytes] | Missing] = []
        for item in PlannedReader(stores, ReadOptions(on_damage=on_damage), IndexCache()).read(plan(view, Selection())):
            if isinstance(item, Missing):
                found.append(item)
            else:
                found += [(e.position.ledger, e.position.entry, e.data) for e in item.entries()]
        stores.close()
        return found

    @property
    def truth(self) -> list[tuple[int, int, bytes]]:
        return [(n, i, data) for n, held in sorted(self.held.items()) for i, data in enumerate(held)]


@pytest.fixture
def world() -> World:
    return World()


def missing(items) -> list[str]:
    return [item.why for item in items if isinstance(item, Missing)]


def test_offloaded_by_brokers_alone(world) -> None:
    for ledger in (3, 5, 8):
        world.offload(ledger, 20)
    assert world.read(joined(TopicCatalog.empty(TOPIC), world.listed())) == world.truth


def test_first_by_brokers_and_then_by_us(world) -> None:
    world.offload(3, 20)
    world.offload(5, 10)
    world.archive.claim(8)
    world.segment(8, 9, count=15)
    assert world.read(joined(world.catalog, world.listed())) == world.truth


def test_nothing_is_given_twice_where_both_have_it(world) -> None:
    world.offload(3, 20)
    world.offload(5, 10)
    world.archive.claim(5)
    world.segment(5, 9, count=15)
    assert world.read(joined(world.catalog, world.listed())) == world.truth


def test_a_segment_that_begins_inside_a_ledger(world) -> None:
    world.offload(3, 20)
    world.archive.claim(3, 12)
    entries = [Stored(3, number, data) for number, data in enumerate(world.held[3]) if number >= 12]
    world.archive.add(entries, closed={3: 19})
    view = joined(world.catalog, world.listed())
    assert world.read(view) == world.truth


def test_a_bucket_alone_proves_no_continuity(world) -> None:
    world.offload(3, 20)
    world.offload(5, 10)
    world.archive.claim(8)
    world.segment(8, count=5)
    items = world.read(joined(world.catalog, world.scanned()))
    assert [item for item in items if not isinstance(item, Missing)] == world.truth
    assert ["3 and 5" in missing(items)[0], "5 and 8" in missing(items)[1], len(missing(items))] == [True, True, 2]


def test_a_ledger_that_is_in_pulsar_alone_is_no_silent_hole(world) -> None:
    world.offload(3, 20)
    world.fill(5, 10)
    world.offload(8, 10)
    world.offload(9, 10)
    (why,) = missing(world.read(joined(TopicCatalog.empty(TOPIC), world.listed())))
    assert "between 3 and 8" in why


def test_so_is_one_between_brokers_and_us(world) -> None:
    world.offload(3, 20)
    world.fill(5, 10)
    world.archive.claim(8)
    world.segment(8, count=5)
    assert len(missing(world.read(joined(world.catalog, world.listed())))) == 1


def test_empty_ledgers_are_no_hole(world) -> None:
    world.offload(3, 20)
    world.held[4] = []
    world.offload(5, 10)
    assert world.read(joined(TopicCatalog.empty(TOPIC), world.listed())) == world.truth


def test_what_came_before_a_ledger_that_pulsar_lists_no_more_is_not_proven(world) -> None:
    world.archive.claim(3)
    world.segment(3, count=5)
    world.offload(5, 10)
    trimmed = found_in(
        TOPIC,
        ManagedLedger((ListedLedger(5, 10, 300, 1, OffloadContext(UUID, complete=True)),)),
        lambda _: world.bucket_settings.root,
    )
    (why,) = missing(world.read(joined(world.catalog, trimmed)))
    assert "between 3 and 5" in why


def test_ledgers_that_a_topic_of_an_earlier_incarnation_had(world) -> None:
    world.archive.claim(5)
    world.segment(5, count=5)
    world.archive.incarnation = 1
    world.archive.claim(20, created=2)
    world.segment(20, count=5)
    for ledger in (3, 8, 25):
        world.offload(ledger, 5)
    view = joined(world.catalog, world.scanned())
    assert [(held.start.incarnation, held.start.ledger) for held in view.ledgers] == [(0, 3), (0, 8), (1, 25)]


def test_pulsars_list_is_of_the_present_incarnation(world) -> None:
    world.archive.claim(5, created=1)
    world.segment(5, count=5)
    world.offload(9, 5)
    listed = ManagedLedger((ListedLedger(9, 5, 300, 1, OffloadContext(UUID, complete=True)),))
    places = [
        joined(world.catalog, found_in(TOPIC, replace(listed, created_ms=created))).ledgers[0].start
        for created in (None, 1, 2)
    ]
    assert places == [Position(0, 9, 0), Position(0, 9, 0), Position(1, 9, 0)]


def test_damage_in_a_brokers_object_is_an_error_that_names_it(world) -> None:
    world.offload(3, 20)
    view = joined(TopicCatalog.empty(TOPIC), world.listed())
    flip(world.bucket, f"{UUID}-ledger-3", 300)
    with pytest.raises(DamagedObjectError, match=rf"{UUID}-ledger-3.*offset \d+"):
        world.read(view)


def _cut(bucket, key: str, size: int) -> None:
    data, stat = bucket.read(key)
    bucket.put(key, data[:size], meta=stat.meta)


UNSOUND = {
    "data cut short": (data_key, lambda bucket, key: _cut(bucket, key, -1)),
    "data empty": (data_key, lambda bucket, key: _cut(bucket, key, 0)),
    "data deleted": (data_key, lambda bucket, key: bucket.delete([key])),
    "index damaged": (index_key, lambda bucket, key: flip(bucket, key, 1)),
    "index cut short": (index_key, lambda bucket, key: _cut(bucket, key, -1)),
    "index deleted": (index_key, lambda bucket, key: bucket.delete([key])),
}


@pytest.mark.parametrize("damage", UNSOUND)
@pytest.mark.parametrize("ledger", [3, 5])
def test_a_pair_that_is_not_sound_is_no_silent_hole(world, ledger, damage) -> None:
    for each in (3, 5, 8):
        world.offload(each, 20)
    key_of, spoil = UNSOUND[damage]
    key = key_of(UUID, ledger)
    spoil(world.bucket, key)
    view = joined(TopicCatalog.empty(TOPIC), world.scanned())
    with pytest.raises((DamagedObjectError, ObjectNotFoundError), match=key):
        world.read(view)
    items = world.read(view, OnDamage.SKIP)
    (told,) = [item for item in items if isinstance(item, Missing) and item.damaged]
    assert told.start == Position(0, ledger, 0)
    assert told.end >= Position(0, ledger, 19)
    assert (key in told.why, told.damaged in (data_key(UUID, ledger), key)) == (True, True)
    assert [item for item in items if not isinstance(item, Missing)] == [one for one in world.truth if one[0] != ledger]


def test_an_unsound_pair_of_which_we_have_all_that_was_in_it_does_not_matter(world) -> None:
    world.offload(3, 20)
    world.offload(5, 10)
    world.archive.claim(5)
    world.segment(5, 9, count=15)
    world.bucket.delete([index_key(UUID, 5)])
    view = joined(world.catalog, world.scanned())
    assert [item for item in world.read(view) if not isinstance(item, Missing)] == world.truth


def test_what_we_do_not_have_of_it_is_told(world) -> None:
    """A segment ends inside the ledger, and nothing says whether that had more entries."""
    world.archive.claim(5)
    world.segment(5, count=10, closed=False)
    put_ledger(world.bucket, 5, messages(5, 20))
    flip(world.bucket, index_key(UUID, 5), 0)
    items = world.read(joined(world.catalog, world.scanned()), OnDamage.SKIP)
    (told,) = [item for item in items if isinstance(item, Missing)]
    assert (told.start, told.end > Position(0, 5, 19)) == (Position(0, 5, 10), True)


def test_what_is_recorded_as_lost_is_told_once(world) -> None:
    world.archive.claim(3)
    world.segment(3, count=5)
    world.archive.lose(Position(0, 5, -1), Position(0, 5, 9))
    world.segment(8, count=5)
    put_ledger(world.bucket, 5, messages(5, 10))
    world.bucket.delete([index_key(UUID, 5)])
    view = joined(world.catalog, world.scanned())
    assert len([item for item in world.read(view, OnDamage.SKIP) if isinstance(item, Missing) and item.damaged]) == 0
    assert [item for item in world.read(view) if not isinstance(item, Missing)] == world.truth


def test_an_object_that_may_be_the_topics_is_told(world) -> None:
    """Its index is gone, and the store keeps no metadata."""
    world.offload(3, 5)
    world.bucket.put(data_key(UUID, 5), b"x")
    (why,) = (
        item.why
        for item in world.read(joined(TopicCatalog.empty(TOPIC), world.scanned()))
        if isinstance(item, Missing) and "-ledger-" in item.why
    )
    assert why.startswith(f"unproven: {index_key(UUID, 5)}: ")
    assert (
        joined(TopicCatalog.empty(TOPIC), scan(world.bucket).of(TopicName.parse("public/default/nothing"))).ledgers
        == ()
    )


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 25), st.sampled_from("bbsp")), min_size=1, max_size=8))
def test_however_it_is_spread_each_entry_is_read_once_and_each_hole_is_told(steps) -> None:
    """b: by a broker, s: by us, p: still in Pulsar alone."""
    world, ledger = World(), 0
    world.archive.claim(0)
    kinds: list[tuple[int, str]] = []
    for gap, count, how in steps:
        ledger += gap
        kinds.append((ledger, how))
        if how == "b":
            world.offload(ledger, count)
        elif how == "s":
            world.segment(ledger, count=count)
        else:
            world.fill(ledger, count)
    stored = {n for n, how in kinds if how != "p"}
    catalog = world.catalog
    view = joined(catalog, world.listed())
    # Segments follow on by themselves, or the plan refuses them; only what lies beside a broker's ledger is looked at
    # here.
    inner = [n for n, how in kinds if how == "p" and min(stored, default=n) < n < max(stored, default=n)]
    beside_brokers = [n for n in inner if not _between_segments(n, kinds)]
    items = world.read(view)
    assert [item for item in items if not isinstance(item, Missing)] == [e for e in world.truth if e[0] in stored]
    assert len(missing(items)) == len({max(k for k in stored if k < n) for n in beside_brokers})


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 25), st.sampled_from("bbs")), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from(sorted(UNSOUND)), st.integers(0, 7)), max_size=4),
)
def test_whatever_is_wrong_in_the_bucket_no_entry_is_left_out_in_silence(steps, harm) -> None:
    """But for the tail that may be on its way, of which a line tells, harm is an error that names the object."""
    world, ledger = World(), 0
    world.archive.claim(0)
    for gap, count, how in steps:
        ledger += gap
        if how == "b":
            world.offload(ledger, count)
        else:
            world.segment(ledger, count=count)
    harmed = set()
    for name, number in harm:
        key_of, spoil = UNSOUND[name]
        if number < len(world.stock) and world.stock[number] not in harmed:
            harmed.add(world.stock[number])
            spoil(world.bucket, key_of(UUID, world.stock[number]))
    view = joined(world.catalog, world.scanned())
    items = world.read(view, OnDamage.SKIP)
    read = [item for item in items if not isinstance(item, Missing)]
    assert read == [entry for entry in world.truth if entry[0] not in harmed]
    told = [(item.start, item.end) for item in items if isinstance(item, Missing) and "-ledger-" in item.why]
    for place in (Position(0, n, i) for n, i, _ in world.truth if n in harmed):
        assert any(start <= place <= end for start, end in told)
    if any(isinstance(item, Missing) and item.damaged for item in items):
        with pytest.raises((DamagedObjectError, ObjectNotFoundError), match=f"{UUID}-ledger-"):
            world.read(view)


def _between_segments(ledger: int, kinds: list[tuple[int, str]]) -> bool:
    stored = [(n, how) for n, how in kinds if how != "p"]
    before = [how for n, how in stored if n < ledger][-1]
    after = next(how for n, how in stored if n > ledger)
    return before == after == "s"


def test_uuids_may_differ_from_ledger_to_ledger(world) -> None:
    world.offload(3, 5)
    put_ledger(world.bucket, 7, world.fill(7, 5), uuid_of(9))
    view = joined(TopicCatalog.empty(TOPIC), world.scanned())
    assert [held.uuid for held in view.ledgers] == [UUID, uuid_of(9)]
    assert [item for item in world.read(view) if not isinstance(item, Missing)] == world.truth
