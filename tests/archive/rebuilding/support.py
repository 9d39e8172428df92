"""Archives whose catalogs lose records."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random

from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import PieceReader
from offloader.archive.reading.stores import Stores
from offloader.archive.rebuilding.found import Given
from offloader.archive.rebuilding.gather import gather
from offloader.archive.rebuilding.propose import Proposal, propose
from offloader.archive.rebuilding.replace import rebuild
from offloader.archive.stored import EntryRun
from offloader.archive.view import TopicView
from offloader.metadata import layout
from offloader.metadata.state import TopicCatalog
from offloader.model import Position
from offloader.storage.base import ObjectStore
from tests.archive.support import APPLICATION, SMALL, TOPIC, Archive, gap, message
from tests.format.support import Stored

LEDGERS = {3: 11, 7: 4, 8: 16}  # ledger: the id it was closed with
TOKENS = itertools.count()
GIVEN = Given(APPLICATION, at=99, created="then", cuts=SMALL)


@dataclass
class Built:
    """An archive, and what it holds."""

    archive: Archive
    original: TopicCatalog
    entries: list[tuple[Position, bytes]]
    hidden: set[Position]


def built(random: Random, *, hide: float = 0.15) -> Built:
    """Three ledgers in segments of any lengths, with gaps; ends of ledgers are recorded in segments or on their own; a loss between
    two incarnations' ends."""
    archive = Archive()
    kept: list[tuple[Position, bytes]] = []
    hidden: set[Position] = set()
    for incarnation, shift in ((0, 0), (1, 100))[: random.choice([1, 2])]:
        archive.incarnation = incarnation
        archive.claim(3 + shift, 0, created="then" if incarnation == 0 else "later")
        places = [(ledger + shift, entry) for ledger, last in LEDGERS.items() for entry in range(last + 1)]
        while places:
            count = random.randint(1, len(places))
            mine, places = places[:count], places[count:]
            gone = {place for place in mine if random.random() < hide}
            present = [Stored(*p, message(f"{p}".ljust(random.randint(0, 200), "."))) for p in mine if p not in gone]
            _add(archive, present, gone, {x + shift: last for x, last in LEDGERS.items()}, random)
            kept += [(Position(incarnation, s.ledger, s.entry), s.data) for s in present]
            hidden |= {Position(incarnation, *p) for p in gone}
    return Built(archive, archive.catalog, kept, hidden)


def _add(archive: Archive, present: list[Stored], gone: set[tuple[int, int]], closed: dict[int, int], random: Random) -> None:
    last = max([(s.ledger, s.entry) for s in present] + list(gone))
    known = random.random() < 0.5 or last[1] < closed[last[0]]
    ends = {ledger: end for ledger, end in closed.items() if ledger < last[0] or (ledger == last[0] and known)}
    if last[1] < closed[last[0]] and random.random() < 0.5:
        del ends[last[0]]
    archive.add(present, [gap(*p, p[1]) for p in sorted(gone)], closed=ends)
    if last[0] not in ends and last[1] == closed[last[0]]:
        archive.closed(*last)


def record_key(slot: int) -> str:
    return layout.catalog_folder(TOPIC) + layout.slot_name(slot)


def damage(archive: Archive, slot: int) -> None:
    data = archive.store.read(record_key(slot))[0]
    archive.store.put(record_key(slot), data[:-1] + bytes([data[-1] ^ 1]))


def proposed(archive: Archive, given: Given = GIVEN) -> Proposal:
    return propose(gather(archive.store, TOPIC), given)


def written(archive: Archive, given: Given = GIVEN, store: ObjectStore | None = None) -> Proposal:
    return rebuild(store or archive.store, TOPIC, given, lambda: f"new-{next(TOKENS)}")


def read(archive: Archive, catalog: TopicCatalog) -> list[tuple[Position, bytes]]:
    reader = PieceReader(Stores.of(archive.store))
    found = reader.read(plan(TopicView.of(catalog)))
    return [(e.position, e.data) for run in found if isinstance(run, EntryRun) for e in run.entries()]
