"""Archives with strays in them, of every making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from offloader.format.blocks import BlockHeader
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.candidates import OrphanCandidate, OrphanVerdict
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState
from offloader.model import OpenSegment, Position, Segment, SegmentLayout, Source, TopicName
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive, stream

HOUR = 3_600_000
CERTAIN, SUSPECT = OrphanVerdict.CERTAIN, OrphanVerdict.SUSPECT
START = 1_767_225_600_000


@dataclass
class StoreClock:
    """The store's and ours."""

    now: int = START

    def __call__(self) -> int:
        return self.now


def in_time() -> bool:
    """A try that has not taken too long."""
    return True


def a_uuid(number: int) -> str:
    return f"ffffffff-0000-4000-8000-{number:012d}"


def archive(clock: StoreClock | None = None) -> tuple[Archive, StoreClock]:
    """Three segments of a topic, 5:0 to 6:9, written three hours ago."""
    clock = clock or StoreClock()
    made = Archive()
    made.store.backing.clock_ms = clock
    made.claim(ledger=5)
    made.add(stream(5, 0, 9))
    made.add(stream(5, 10, 19), closed={5: 19})
    made.closed(5, 19)
    made.add(stream(6, 0, 9))
    Journal.open(made.store, "app", made.token).close()
    clock.now += 3 * HOUR
    return made, clock


def scanner(
    store: object,
    clock: Callable[[], int],
    *,
    grace: int = HOUR,
    kind: type[BucketScanner] = BucketScanner,
    **more: int,
) -> BucketScanner:
    tokens = count()
    return kind(store, clock, lambda: f"scan-{next(tokens)}", grace, **more)


def by_id(scan: ObjectScan) -> dict[str, OrphanCandidate]:
    return {each.id: each for each in scan.candidates}


def header(ledger: int, entry: int) -> bytes:
    """A data object that begins with this entry."""
    return BlockHeader(2, 200, entry, ledger).encode() + bytes(72)


def open_segment(uuid: str, ledger: int, entry: int, upload: str | None = None) -> OpenSegment:
    return OpenSegment(uuid, Position(0, ledger, entry), Source.BROKER, SegmentLayout(), 1, upload=upload)


def journal_opens(store: MemoryStore, application: str, topic: TopicName, segment: OpenSegment) -> None:
    tokens = count()
    with Journal.open(store, application, lambda: f"{application}-{next(tokens)}") as journal:
        journal.record([TopicState(topic).opened(segment)])


@dataclass
class Strays:
    """What was put into an archive, and what a scan must say of it. `foreign`: keys that it must not mention."""

    store: MemoryStore
    rng: Random
    expected: dict[str, tuple[ObjectKind, OrphanVerdict]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def put(self, key: str, data: bytes, kind: ObjectKind, verdict: OrphanVerdict = CERTAIN) -> str:
        self.store.put(key, data)
        self.expected[key] = kind, verdict
        return key

    def uuid(self) -> str:
        return a_uuid(next(self.numbers) + 1000 * self.rng.randrange(10**6))

    def data_of_a_segment(self, topic: TopicName, segment: Segment) -> None:
        """Cut once more by somebody who was overtaken."""
        uuid = self.uuid()
        if segment.size:
            data = self.store.read(layout.data_key(topic, segment.uuid))[0]
            self.put(layout.data_key(topic, uuid), data, ObjectKind.DATA)
            if self.rng.random() < 0.5:
                index = self.store.read(layout.index_key(topic, segment.uuid))[0]
                self.put(layout.index_key(topic, uuid), index, ObjectKind.INDEX)
        if self.rng.random() < 0.5 or not segment.size:
            record = encode_catalog(uuid, replace(segment, uuid=uuid))
            self.put(layout.record_key(topic, uuid), record, ObjectKind.RECORD)

    def index_alone(self, topic: TopicName, segment: Segment) -> None:
        if segment.size:
            index = self.store.read(layout.index_key(topic, segment.uuid))[0]
            self.put(layout.index_key(topic, self.uuid()), index, ObjectKind.INDEX)

    def junk(self, topic: TopicName) -> None:
        of = self.rng.choice((layout.data_key, layout.index_key, layout.record_key))
        kind = {layout.data_key: ObjectKind.DATA, layout.index_key: ObjectKind.INDEX}.get(of, ObjectKind.RECORD)
        self.put(of(topic, self.uuid()), self.rng.randbytes(self.rng.randrange(300)), kind)

    def past_the_end(self, topic: TopicName, end: Position) -> None:
        """Of a process that is paused: it may go on."""
        at = header(end.ledger + self.rng.randrange(2), end.entry + 1)
        self.put(layout.data_key(topic, self.uuid()), at, ObjectKind.DATA, SUSPECT)

    def upload(self, topic: TopicName) -> None:
        handle = self.store.begin(layout.data_key(topic, self.uuid()))
        self.expected[handle] = ObjectKind.UPLOAD, CERTAIN

    def left_overs(self, topic: TopicName) -> None:
        self.put(layout.proof_key(self.uuid()), b"first", ObjectKind.PROOF)
        folder = f"{layout.topic_folder(topic)}_catalog-damaged-2026-01-01/"
        self.put(f"{folder}{layout.slot_name(0)}", b"a record", ObjectKind.DAMAGED_CATALOG)
        key = layout.claim_key("nobody", topic)
        self.put(key, b"", ObjectKind.OWNERLESS_CLAIM, SUSPECT)

    def of_others(self, topic: TopicName) -> None:
        names = ("notes.txt", "a/b", "public/default", f"{self.uuid()}-ledger-7", "_unknown/x", "_deletion/other/x")
        keys = [*names, f"{layout.topic_folder(topic)}README", f"{layout.data_key(topic, self.uuid())}-bridged"]
        for key in keys:
            self.store.put(key, b"somebody's")
        handle = self.store.begin("somebody/s/upload")
        self.foreign |= {*keys, handle}


def segment_of(made: Archive, number: int) -> Segment:
    return made.catalog.segments[number]
