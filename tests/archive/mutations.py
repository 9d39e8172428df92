"""A bucket with everything in it, and what can happen to each of its objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from offloader.archive.findings import Finding
from offloader.archive.items import Missing
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.reading.stores import Stores
from offloader.archive.snapshot import TopicSnapshot
from offloader.metadata import layout
from offloader.metadata.journal import Journal
from offloader.metadata.layout import KeyKind, parse_topic_key
from offloader.metadata.state import OpenTopic, Releasing, TopicState
from offloader.model import OpenSegment, Position, SegmentLayout, Source, TopicName
from offloader.operations.verify.strays import check_root
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.support import APPLICATION, META, TOPIC, Archive, gap, stream, uuid_of
from tests.format.support import Stored, broker_metadata

OTHER = replace(TOPIC, name="invoices")
KINDS = ("data", "index", "record", "catalog", "journal", "root")
Read = list[tuple[Position, bytes]]


@dataclass(frozen=True)
class Bucket:
    """Its objects, and what its topics hold."""

    objects: dict[str, bytes]
    truths: dict[TopicName, Read]
    upload: str

    def store(self, **changed: bytes | None) -> MemoryStore:
        """A copy with changes; None: deleted."""
        store = MemoryStore(MemoryBacking(uploads=dict(_BACKING.uploads)))
        for key, data in (self.objects | changed).items():
            if data is not None:
                store.put(key, data, meta=META)
        return store

    def keys(self, kind: str) -> list[str]:
        return [key for key in self.objects if kind_of(key) == kind]


_BACKING = MemoryBacking()


def kind_of(key: str) -> str:
    parsed = parse_topic_key(key)
    if parsed is not None:
        return {KeyKind.DATA: "data", KeyKind.INDEX: "index", KeyKind.RECORD: "record", KeyKind.CATALOG: "catalog"}[
            parsed.kind
        ]
    return "root" if key == layout.ROOT else "claim" if key.startswith(f"{layout.CLAIMS}/") else "journal"


def opaque(ledger: int, first: int, last: int, seed: int) -> list[Stored]:
    """Entries without a checksum of their own, some behind the broker's metadata."""
    random = Random(seed)
    bodies = [random.randbytes(random.randint(1, 90)).replace(b"\x0e", b"\x0d") for _ in range(first, last + 1)]
    return [Stored(ledger, n, broker_metadata(5, n) * (n % 2) + body) for n, body in enumerate(bodies, first)]


@cache  # its uuids are always the same, and so is the store that holds it
def bucket() -> Bucket:
    """Two topics of several ledgers, one of them a copy of what a stock broker wrote, with gaps, a loss, an end on its
    own record, two incarnations; one has a segment open."""
    store = MemoryStore(_BACKING)
    truths = {TOPIC: _orders(Archive(store)), OTHER: _invoices(Archive(store, OTHER))}
    upload = store.begin(layout.data_key(TOPIC, uuid_of(90)))
    end = Position(0, 9, 11)
    last = Archive(store).catalog.segments[-1].uuid
    opened = OpenSegment(
        uuid_of(90),
        end._replace(entry=12),
        Source.BROKER,
        SegmentLayout(),
        1,
        predecessor_uuid=last,
        predecessor_end=end,
        upload=upload,
    )
    numbers = iter(range(1000))
    with Journal.open(store, APPLICATION, lambda: f"journal-{next(numbers)}") as journal:
        journal.record([TopicState(OTHER, releasing=Releasing.REQUEST)])
        journal.record([OpenTopic(TOPIC, open=opened)])
    objects = {key: store.read(key)[0] for key, _ in store.list()}
    return Bucket(objects, truths, upload)


def _orders(archive: Archive) -> Read:
    archive.claim(3)
    kept = [stream(3, 0, 20), stream(3, 21, 30) + opaque(5, 0, 3, 1) + stream(5, 6, 12), opaque(9, 0, 11, 2)]
    archive.add(kept[0])
    archive.add(kept[1], [gap(5, 4, 5)], closed={3: 30})
    archive.lose(Position(0, 5, 13), Position(0, 7, -1))
    archive.closed(7, -1)
    copied = stream(8, 0, 7) + opaque(8, 8, 21, 4)
    archive.add_copy(copied)
    archive.add(kept[2])
    return [(Position(0, s.ledger, s.entry), s.data) for part in (*kept[:2], copied, kept[2]) for s in part]


def _invoices(archive: Archive) -> Read:
    archive.uuids = iter(range(50, 100))
    archive.claim(1)
    first, second = opaque(1, 0, 9, 3), stream(12, 0, 8)
    archive.add(first)
    archive.closed(1, 9)
    archive.incarnation = 1
    archive.claim(12, created=2)
    archive.add(second)
    return [(Position(0, s.ledger, s.entry), s.data) for s in first] + [
        (Position(1, s.ledger, s.entry), s.data) for s in second
    ]


def findings(store: MemoryStore) -> list[Finding]:
    return [*check_root(store), *verify(store).findings]


def read(store: MemoryStore, topic: TopicName) -> Iterator[tuple[Position, bytes]]:
    """Everything that a reader gives, up to its error."""
    catalog = Archive(store, topic).catalog
    for run in PlannedReader(Stores.of(store)).read(plan(TopicSnapshot.of(catalog))):
        if not isinstance(run, Missing):
            yield from ((entry.position, entry.data) for entry in run.entries())
