"""What applications may have done to a topic: every write may be the last one of a process, and the next process goes
on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from random import Random

from offloader.archive.items import EntryRun, Missing
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.reading.stores import Stores
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import OffloadError
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.state import Claim, LedgerClosed, Said, TopicCatalog
from offloader.model import Loss, Position, Segment
from offloader.operations.rebuild.propose import Proposal
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import proposed, rebuild
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import META, SMALL, TOPIC, Archive, gap, message
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.format.support import Stored

TOKENS = itertools.count()
Place = tuple[int, int]


@dataclass
class History:
    """A topic's archive. `truth`: what it must hold; `copied`: that, and what segments hold that were not committed."""

    random: Random
    store: MemoryStore = field(default_factory=MemoryStore)
    truth: dict[Position, bytes] = field(default_factory=dict)
    copied: dict[Position, bytes] = field(default_factory=dict)
    application: str = "app"
    incarnation: int = 0
    ledger: int = 3
    entry: int = 0
    read_up_to: int = -1
    clock: int = 20

    def __post_init__(self) -> None:
        self.uuids = itertools.count(1)
        self._hidden: dict[tuple[int, int, int], bool] = {}
        self._claim(1)

    @property
    def catalog(self) -> TopicCatalog:
        return Catalogs(self.store, "reader").load(TOPIC)

    def steps(self, count: int) -> History:
        """Anything, in any order."""
        doing = [self._segment] * 5 + [
            self._lose,
            self._next_ledger,
            self._next_ledger,
            self._recreated,
            self._handed_over,
        ]
        for _ in range(count):
            self.random.choice(doing)()
        return self

    def _segment(self) -> None:
        """Its uuid may be abandoned after any of its writes, and its range gets another one, of another length."""
        while not self._sealed(self.random.randint(1, 6)):
            pass

    def _sealed(self, count: int) -> bool:
        self.clock += 1
        self.read_up_to = max(self.read_up_to, self.entry + count - 1)
        archive = Archive(self.store, sealed_at=self.clock, incarnation=self.incarnation)
        archive.uuids = self.uuids
        entries = [Stored(self.ledger, n, self._bytes(n)) for n in range(self.entry, self.entry + count)]
        hidden = [gap(self.ledger, e.entry, e.entry) for e in entries if self._is_hidden(e.entry)]
        entries = [e for e in entries if e.entry not in {g.first for g in hidden}]
        segment, data, index = archive.made(entries, hidden, {}, SMALL)
        self.copied |= {Position(self.incarnation, e.ledger, e.entry): e.data for e in entries}
        while True:
            try:
                self._write(self._unsafe(), segment, data, index)
            except OffloadError:
                if self.random.random() < 0.5:
                    continue  # the same again
                if segment.uuid not in {s.uuid for s in self.catalog.segments}:
                    return False
            self.truth |= {Position(self.incarnation, e.ledger, e.entry): e.data for e in entries}
            self.entry += count
            return True

    def _is_hidden(self, entry: int) -> bool:
        """Once and for all: whoever copies it, and however often."""
        return self._hidden.setdefault((self.incarnation, self.ledger, entry), self.random.random() < 0.1)

    def _write(self, store: ObjectStore, segment: Segment, data: bytes, index: bytes) -> None:
        if segment.parts:
            store.put(layout.data_key(TOPIC, segment.uuid), data, meta=META, if_absent=True)
            store.put(layout.index_key(TOPIC, segment.uuid), index, meta=META, if_absent=True)
        catalogs = Catalogs(store, self.application)
        catalogs.append(catalogs.head(TOPIC), segment)

    def dangle(self) -> None:
        """A process ends after the record of a segment, and before its commit."""
        archive = Archive(self.store, sealed_at=self.clock - 1, incarnation=self.incarnation)
        archive.uuids = self.uuids
        entries = [Stored(self.ledger, n, self._bytes(n)) for n in range(self.entry, self.entry + 2)]
        segment, data, index = archive.made(entries, [], {}, SMALL)
        fault = StoreFault("put", key=lambda key: "_catalog" in key)
        try:
            self._write(FaultyStore(self.store, StoreFaults([fault])), segment, data, index)
        except OffloadError:
            return
        raise AssertionError("it must not be committed")

    def _next_ledger(self) -> None:
        while self.entry <= self.read_up_to:  # the ledger has what was read of it
            self._sealed(self.read_up_to - self.entry + 1)
        following = self.ledger + self.random.randint(1, 3)
        closed = LedgerClosed(self.incarnation, self.ledger, self.entry - 1, followed_by=following)
        held = self.random.random() < 0.7
        self._append(closed if held else replace(closed, followed_by=None))
        if held and self.random.random() < 0.2:
            self._append(replace(closed, followed_by=None))
        self.ledger, self.entry, self.read_up_to = following, 0, -1

    def _lose(self) -> None:
        if self.entry:
            count = self.random.randint(1, 4)
            first = Position(self.incarnation, self.ledger, self.entry)
            self._append(
                Loss(first, first._replace(entry=self.entry + count - 1), "trimmed", "accept-loss", self.clock)
            )
            self.entry += count

    def _recreated(self) -> None:
        self.incarnation += 1
        self.ledger, self.entry, self.read_up_to = self.ledger + 10, 0, -1
        self._claim(2)

    def _handed_over(self) -> None:
        claim = self.catalog.claim
        assert claim is not None
        if self.random.random() < 0.5:
            self._append(released(claim, self.clock, "released"))
            self.application = self.random.choice(["app", "other"])
            self._append(replace(claim, application=self.application, at=self.clock))
        else:
            former, self.application = self.application, "heir" if self.application != "heir" else "app"
            while (catalog := self.catalog).claim == claim:
                try:
                    Catalogs(self._unsafe(), self.application).take_over_claim(catalog.head, former, self.clock)
                except OffloadError:
                    continue

    def _claim(self, created: int) -> None:
        begin = Position(self.incarnation, self.ledger, self.entry)
        self._append(Claim(self.application, self.incarnation, created, begin, self.clock))

    def _append(self, record: Said) -> None:
        self.clock += 1
        written = False
        while not written:
            catalogs = Catalogs(self._unsafe(), self.application)
            try:
                catalogs.append(catalogs.head(TOPIC), record)
                written = True
            except OffloadError:
                continue

    def _unsafe(self) -> ObjectStore:
        """Fails at one of the next writes, before or after it."""
        effect = self.random.choice([Effect.BEFORE, Effect.LOST])
        return FaultyStore(self.store, StoreFaults([StoreFault("put", effect, after=self.random.randint(0, 12))]))

    def _bytes(self, entry: int) -> bytes:
        return message(f"{self.incarnation} {self.ledger}:{entry}".ljust(40 + entry * 7 % 90, "."))


def plain(catalog: TopicCatalog) -> TopicCatalog:
    """Without how it is numbered, and in which order ends of ledgers were recorded."""
    head, after = catalog.head, catalog.head.accounted
    closed = {c for c in head.closed if after is None or (c.incarnation, c.ledger) >= after[:2]}
    head = replace(
        head, next_slot=0, generation=0, closed=tuple(sorted(closed, key=lambda c: (c.incarnation, c.ledger)))
    )
    return replace(catalog, head=head)


def catalog_keys(store: ObjectStore) -> list[str]:
    return [key for key, _ in store.list(layout.generations_folder(TOPIC))]


def manifest_keys(store: ObjectStore) -> list[str]:
    return [key for key, _ in store.list(layout.topic_folder(TOPIC)) if f"/{layout.MANIFESTS}/" in key]


def record_keys(store: ObjectStore) -> list[str]:
    return [key for key, _ in store.list(layout.topic_folder(TOPIC)) if key.endswith(layout.RECORD)]


def given(at: int = 900, **said: object) -> Given:
    return replace(Given("app", at, 1), **said)


def look(store: ObjectStore) -> Proposal:
    return proposed(store, TOPIC, given())


def again(store: ObjectStore, **said: object) -> Proposal:
    return rebuild(store, TOPIC, given(**said), lambda: f"token-{next(TOKENS)}")


def read(store: ObjectStore, catalog: TopicCatalog) -> dict[Position, bytes]:
    """What every reader gets; each position once."""
    found: dict[Position, bytes] = {}
    for run in PlannedReader(Stores.of(store)).read(plan(TopicSnapshot.of(catalog))):
        for entry in run.entries() if isinstance(run, EntryRun) else ():
            assert entry.position not in found
            found[entry.position] = entry.data
    return found


def missing(catalog: TopicCatalog) -> list[tuple[Position, Position]]:
    """What every reader reports."""
    return [(m.start, m.end) for m in plan(TopicSnapshot.of(catalog)) if isinstance(m, Missing)]
