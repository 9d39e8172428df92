"""A topic's archive while segments are sealed and deleted, readers read, minds change, and processes are killed between
any two calls of the store. Whoever reads must get every position: as data, or told to be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from threading import get_ident
from typing import TypeVar

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.items import EntryRun, Missing
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.errors import IntegrityError, OffloadError
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.metadata.layout import data_key, index_key
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.invariants import check_invariants
from tests.times import MINUTE_MS
from tests.truth import TrueEntry, Truth, sha256

T = TypeVar("T")

GRACE = 10 * MINUTE_MS
ENTRIES = 6  # of a segment
A_LEDGER = 3  # segments


class KilledError(BaseException):
    """The process is gone."""


class SteppedStore(ForwardingStore):
    """Before each call something else may happen; a call may be the last one. Deletes one object at a time."""

    def __init__(self, store: MemoryStore, before: Callable[[], None]) -> None:
        super().__init__(store)
        self._before = before

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if verb != "delete":
            self._before()
            return work()
        for each in key.split():
            self._before()
            self.store.delete([each])
        return work()


class Reader:
    """One read of the topic, a step at a time, by the plan of its beginning."""

    def __init__(self, world: World) -> None:
        self._steps = self._read(world)
        self.done = False

    def step(self) -> None:
        self.done = next(self._steps, True) or self.done

    @staticmethod
    def _read(world: World) -> Iterator[bool]:
        expected = [place for place, _ in world.written]
        topic = ReadArchive(OpenArchive(Stores.of(world.store))).topic(TOPIC)
        planned = list(topic.records.plan())
        yield False
        got: list[tuple[int, int]] = []
        told: list[Missing] = []
        truth = dict(world.written)
        for item in PlannedReader(Stores.of(world.store), ReadOptions(prefetch=0)).read(planned):
            if isinstance(item, EntryRun):
                for entry in item.entries():
                    assert truth[entry.position.place] == entry.data, f"{entry.position} is another entry"
                    got.append(entry.position.place)
            else:
                assert item.deleted, f"{item} is no deletion"
                told.append(item)
            yield False
        assert got == sorted(set(got)), "an entry twice, or out of order"
        hidden = {p for p in expected for m in told if m.start.place <= p <= m.end.place}
        assert not hidden & set(got), "an entry that was told to be deleted"
        assert hidden | set(got) >= set(expected), f"{sorted(set(expected) - hidden - set(got))} is passed over"
        world.reads += 1
        world.told += bool(told)
        yield True


Making = Callable[[ArchiveDeletion, "World"], ArchiveRetention]


def sound(deletion: ArchiveDeletion, world: World) -> ArchiveRetention:
    return ArchiveRetention(deletion, lambda _: world.policy, lambda _: None, GRACE)


class World:
    """`make`: the retention that is tried, or a broken variant of it."""

    def __init__(self, seed: int, make: Making = sound) -> None:
        self.rng = Random(seed)
        self.now = 1_800_000_000_000
        self.store = MemoryStore(MemoryBacking(clock_ms=lambda: self.now))
        self.policy = RetentionPolicy(minutes=30)
        self.written: list[tuple[tuple[int, int], bytes]] = []
        self.readers: list[Reader] = []
        self.reads = self.told = self.kills = self.deleted = 0
        self._archive = Archive(self.store)
        self._archive.claim()
        self._segments = self._deleted = 0
        self._make = make
        self._kill_at = -1
        self.nested = False
        self._thread = get_ident()

    def seal(self) -> None:
        ledger, part = divmod(self._segments, A_LEDGER)
        first = part * ENTRIES
        entries = stream(ledger, first, first + ENTRIES - 1)
        self._archive.sealed_at = self.now
        closes = {ledger: first + ENTRIES - 1} if part == A_LEDGER - 1 else {}
        self._archive.add(entries, closed=closes)
        self._segments += 1
        self.written += [((ledger, e.entry), e.data) for e in entries]

    def visit(self, *, killed: bool = True) -> None:
        """A process of the application, which may be killed."""
        self._kill_at = self.rng.choice([-1, self.rng.randint(1, 60)]) if killed else -1
        before = Catalogs(self.store, "").head(TOPIC).removed.begun
        try:
            self._retention().visit(TOPIC)
        except KilledError:
            self.kills += 1
        except OffloadError:
            if self._make is sound:
                raise
        if self.policy.hold:
            after = Catalogs(self.store, "").head(TOPIC).removed
            assert after.begun == before or after.pending is None, "it began though it was held"
            assert self.deleted_by_now() == self._deleted or before is not None, "it went though it was held"
        self._deleted = self.deleted_by_now()

    def deleted_by_now(self) -> int:
        """Segments that are recorded as deleted."""
        return sum(each.segments for each in Catalogs(self.store, "").head(TOPIC).removed.ranges)

    def undelete(self) -> None:
        self._kill_at = -1
        try:
            self._retention().undelete(TOPIC, "somebody")
        except IntegrityError:
            return  # nothing is under way, or it has begun

    def run(self, steps: int) -> None:
        for _ in range(steps):
            action = self.rng.choice(
                ["seal", "seal", "wait", "wait", "visit", "visit", "visit", "mind", "hold", "read"]
            )
            match action:
                case "seal":
                    self.seal()
                case "wait":
                    self.now += self.rng.randint(1, 15) * MINUTE_MS
                case "visit":
                    self.visit()
                case "mind" if self.rng.random() < 0.3:
                    self.undelete()
                case "hold" if self.rng.random() < 0.3:
                    self.policy = RetentionPolicy(minutes=30, hold=self.rng.choice(["", "court"]))
                case _:
                    self._step_readers()
            self.check()

    def hold_in_time(self) -> None:
        """What is due is held after its deletion was recorded, and looked at after its grace."""
        for _ in range(3):
            self.seal()
        self.now += 31 * MINUTE_MS
        self.visit(killed=False)
        self.policy = RetentionPolicy(minutes=30, hold="court")
        self.now += GRACE + 1
        self.visit(killed=False)
        self.check()

    def finish(self) -> None:
        """Everything that is under way comes to its end; then all must hold."""
        self.policy = RetentionPolicy(minutes=30)
        for reader in self.readers:
            while not reader.done:
                reader.step()
        self.readers.clear()
        for _ in range(3):
            self.now += GRACE + 1
            self._kill_at = -1
            self._retention().visit(TOPIC)
        entries = {place: TrueEntry(sha256(data)) for place, data in self.written}
        check_invariants(self.store, {TOPIC: Truth(entries)})
        self.deleted = self.deleted_by_now()

    def check(self) -> None:
        """What must hold at every moment: an object may be absent only where its deletion has begun, data before
        index."""
        catalog = Catalogs(self.store, "").load(TOPIC)
        for segment in catalog.segments:
            data, index = (self.store.stat(key(TOPIC, segment.uuid)) is not None for key in (data_key, index_key))
            assert index or not data, "an index went before its data"
            if not (data and index):
                absent = range_of(catalog.head.removed.absent, segment.end)
                assert absent is not None, f"{segment.start} went without a record"

    def _retention(self) -> ArchiveRetention:
        store = SteppedStore(self.store, self._between)
        catalogs = Catalogs(store, APPLICATION)
        deletion = ArchiveDeletion(
            store, catalogs, catalogs.append, lambda: None, lambda: self.now, "memory", APPLICATION
        )
        return self._make(deletion, self)

    def _between(self) -> None:
        """Whatever happens between two calls of the application."""
        if self.nested or get_ident() != self._thread:  # catalogs are read by threads, too: these only read
            return
        self.nested = True
        try:
            if self._kill_at > 0:
                self._kill_at -= 1
                if self._kill_at == 0:
                    raise KilledError
            if self.rng.random() < 0.05:
                self.check()
            if self.rng.random() < 0.3:
                self._step_readers()
            if self.rng.random() < 0.02 and self._segments:
                self.seal()
        finally:
            self.nested = False

    def _step_readers(self) -> None:
        while len(self.readers) < 4:
            if not self.written:
                return
            self.readers.append(Reader(self))
        reader = self.rng.choice(self.readers)
        reader.step()
        if reader.done:
            self.readers.remove(reader)
