"""A paused process, the one that has replaced it, and a deletion, step by step in every order: what a catalog names is
never gone; and what nobody has committed is found and goes in the end. A rule without proof is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, permutations
from random import Random

import pytest

from integration.soak import SOAK
from offloader.lifecycle.bucket import verdicts
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.verdicts import BucketRuling
from offloader.lifecycle.candidates import OrphanVerdict
from offloader.lifecycle.deletion.machine import UnreferencedLedger, marked
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.metadata import layout
from offloader.metadata.catalog import linked
from offloader.metadata.catalog_codec import encode_catalog, standing
from offloader.metadata.journal import Journal
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import CatalogHead, TopicState
from offloader.model import Segment
from tests.archive.support import TOPIC, stream
from tests.examples import few

from .support import HOUR, a_uuid, archive, in_time, open_segment, scanner

ORDERS = None if SOAK else 40  # of 560; all in a soak


class World:
    """After each step, all that the catalog names must be there."""

    def __init__(self, *, entries: int) -> None:
        self.made, self.clock = archive()
        self.clock.now += 1000 * HOUR  # no age protects anything
        self.store = self.made.store
        self.head: CatalogHead = self.made.catalogs.head(TOPIC)
        cuts = self.made.catalog.segments[0].cuts
        self.paused = self.made.made(stream(6, 10, 9 + entries), [], {}, cuts)
        self.live = self.made.made(stream(6, 10, 19), [], {}, cuts)
        self.records: list[PendingDeleteLedgerInfo] = []
        self.due: list[PendingDeleteLedgerInfo] = []
        tokens = count()
        self.journal = Journal.open(self.store, "app", lambda: f"live-{next(tokens)}")
        self.journal.record([TopicState(TOPIC).opened(open_segment(self.live[0].uuid, 6, 10))])

    @property
    def side(self) -> BucketSide:
        return BucketSide(self.store, scanner(self.store, self.clock, grace=0))

    def objects(self, of: tuple[Segment, bytes, bytes]) -> None:
        segment, data, index = of
        self.store.put(layout.data_key(TOPIC, segment.uuid), data)
        self.store.put(layout.index_key(TOPIC, segment.uuid), index)

    def steps_of_the_paused(self) -> list[Callable[[], None]]:
        """It has read its head long ago, and nobody's journal names its segment any more."""
        segment = linked(self.head, self.paused[0])
        data = encode_catalog(self.paused[0].uuid, segment)

        def slot() -> None:
            folder = layout.catalog_folder(TOPIC, self.head.generation)
            NumberedLog(self.store, folder).append(self.head.next_slot, standing(self.head, data))

        def beside() -> None:
            self.store.put(layout.record_key(TOPIC, self.paused[0].uuid), data, if_absent=True)

        return [lambda: self.objects(self.paused), beside, slot]

    def steps_of_the_live(self) -> list[Callable[[], None]]:
        def commit() -> None:
            self.objects(self.live)
            head = self.made.catalogs.head(TOPIC)
            if head.next_slot == self.head.next_slot:  # else it begins a segment behind what it finds
                self.made.catalogs.append(head, linked(head, self.live[0]))

        return [commit, lambda: self.journal.record([TopicState(TOPIC)])]

    def steps_of_the_deletion(self) -> list[Callable[[], None]]:
        return [self.mark, self.look, self.delete]

    def mark(self) -> None:
        found = scanner(self.store, self.clock, grace=0).scan()
        records = (marked(each.record("scan"), None, self.clock()) for each in found.orphans if each.deletable)
        self.records = sorted((each for each in records if each is not None), key=lambda each: each.name)

    def look(self) -> None:
        looks = self.side.look(self.records).looks
        self.due = [
            record
            for record in self.records
            if isinstance(found := looks[record.name], UnreferencedLedger) and found.node == record.node
        ]

    def delete(self) -> None:
        for record in self.due:
            self.side.delete(record, in_time)

    def missing(self) -> list[str]:
        keys = (of(TOPIC, s.uuid) for s in self.made.catalog.segments for of in (layout.data_key, layout.index_key))
        return [key for key in keys if self.store.stat(key) is None]


def orders() -> Iterator[tuple[int, ...]]:
    found = sorted(set(permutations([0, 0, 0, 1, 1, 2, 2, 2])))
    assert len(found) == 560
    return iter(found if ORDERS is None else Random(7).sample(found, ORDERS))


def in_order(order: tuple[int, ...], entries: int) -> World:
    world = World(entries=entries)
    steps = [world.steps_of_the_paused(), world.steps_of_the_live(), world.steps_of_the_deletion()]
    for actor in order:
        steps[actor].pop(0)()
        assert world.missing() == [], order
    return world


@pytest.mark.parametrize("entries", few([5, 10, 15], 1))
def test_in_every_order_of_steps_what_a_catalog_names_is_there(entries: int):
    for order in orders():
        world = in_order(order, entries)
        world.store.put(layout.data_key(TOPIC, a_uuid(9)), b"junk")
        world.made.add(stream(7, 0, 3), closed={7: 3})  # the topic goes on
        for step in world.steps_of_the_deletion():
            step()
        assert world.missing() == []
        assert scanner(world.store, world.clock, grace=0).scan().candidates == (), order


def test_a_rule_without_proof_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verdicts, "_by_spans", lambda *_: BucketRuling(OrphanVerdict.CERTAIN, ("nothing names it",)))
    with pytest.raises(AssertionError):
        [in_order(order, 10) for order in orders()]


def test_a_deletion_without_a_look_at_the_journals_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verdicts, "_by_spans", lambda *_: BucketRuling(OrphanVerdict.CERTAIN, ("nothing names it",)))
    monkeypatch.setattr("offloader.lifecycle.bucket.scan.applications", lambda _: [])
    world = World(entries=10)
    world.objects(world.live)
    world.mark()
    assert {record.object_key for record in world.records} >= {layout.data_key(TOPIC, world.live[0].uuid)}
