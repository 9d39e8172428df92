"""An archive written without an application: segments cut by hand, committed through the real catalog."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import crc32c

from offloader._proto import metadata_pb2 as pb
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.object_range import Run
from offloader.format.crc import combine
from offloader.format.cutter import PartCutter
from offloader.format.entry import inspect
from offloader.format.index import IndexEntry, index_of_segment
from offloader.format.v1_parts import examine
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs, linked
from offloader.metadata.catalog_codec import encode_catalog, standing
from offloader.metadata.envelope import wrap
from offloader.metadata.layout import catalog_folder, slot_name
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, Said, TopicCatalog, record_uuid
from offloader.model import (
    GIB,
    V1,
    Gap,
    GapKind,
    LedgerRange,
    Loss,
    Part,
    Position,
    RollReason,
    Segment,
    SegmentLayout,
    Source,
    TopicName,
)
from offloader.storage.memory import MemoryStore
from tests.format.stock import write_blocks
from tests.format.support import Stored, checksummed

TOPIC = TopicName.parse("persistent://public/default/orders")
SMALL = SegmentLayout(part_size=2_000, block_size=700, index_step=300)
META = {"s3managedledgeroffloaderformatversion": "1"}
APPLICATION = "app"


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def message(text: str) -> bytes:
    return checksummed(
        MessageMetadata(producer_name="p", sequence_id=0, publish_time=1_700_000_000_000 + len(text)), text.encode()
    )


def stream(ledger: int, first: int, last: int, size: int = 60) -> list[Stored]:
    return [Stored(ledger, entry, message(f"{ledger}:{entry} ".ljust(size, "x"))) for entry in range(first, last + 1)]


@dataclass
class Archive:
    """Builds what the application would have written."""

    store: MemoryStore = field(default_factory=MemoryStore)
    topic: TopicName = TOPIC
    incarnation: int = 0
    sealed_at: int = 20

    def __post_init__(self) -> None:
        numbers = itertools.count()
        self.token = lambda: f"token-{next(numbers)}"
        self.catalogs = Catalogs(self.store, APPLICATION)
        self.uuids: Iterator[int] = itertools.count(1)
        self._written: dict[TopicName, CatalogHead] = {}

    @property
    def catalog(self) -> TopicCatalog:
        """As it can be read now."""
        return self.catalogs.load(self.topic)

    def _known(self) -> CatalogHead:
        """The same, but that what was written or read before is not read again."""
        return self.catalogs.refresh_head(self._written.get(self.topic, CatalogHead(self.topic)))

    def _append(self, record: Said) -> None:
        """Past the catalog's own check that it follows: tests of damage need archives with holes."""
        known = self._known()
        record = linked(known, record)
        uuid = record_uuid(self.topic, record)
        data = encode_catalog(uuid, record)
        if isinstance(record, Claim):
            self.catalogs.mark(self.topic)
        self.store.put(layout.record_key(self.topic, uuid), data, if_absent=True)
        self.store.put(catalog_folder(self.topic) + slot_name(known.next_slot), standing(known, data), if_absent=True)
        self._written[self.topic] = known.after(record)

    def claim(self, ledger: int = 0, entry: int = 0, created: int = 1) -> None:
        self.store.put(layout.ROOT, wrap("root", pb.Body(root=pb.Root(uuid="root", cluster="memory"))), if_absent=True)
        begin = Position(self.incarnation, ledger, entry)
        self._append(Claim(APPLICATION, self.incarnation, created, begin, at=1))

    def closed(self, ledger: int, last: int) -> None:
        self._append(LedgerClosed(self.incarnation, ledger, last))

    def lose(self, start: Position, end: Position) -> None:
        self._append(Loss(start, end, "trimmed", "accept-loss", at=2))

    def add(
        self,
        entries: list[Stored],
        gaps: list[Gap] | None = None,
        *,
        closed: dict[int, int] | None = None,
        cuts: SegmentLayout = SMALL,
    ) -> Segment:
        """One more segment, objects and record."""
        segment, data, index = self.made(entries, gaps or [], closed or {}, cuts)
        if segment.parts:
            self.store.put(layout.data_key(self.topic, segment.uuid), data, meta=META)
            self.store.put(layout.index_key(self.topic, segment.uuid), index, meta=META)
        self._append(segment)
        return segment

    def add_copy(self, entries: list[Stored], *, block_size: int = 700, cuts: SegmentLayout = SMALL) -> Segment:
        """A whole ledger, as a copy of the object that a stock broker wrote."""
        ledger, last = entries[0].ledger, entries[-1].entry
        data = b"".join(write_blocks([e.data for e in entries], block_size))
        return self.add_object(ledger, last, data, cuts)

    def add_object(self, ledger: int, last: int, data: bytes, cuts: SegmentLayout = SMALL) -> Segment:
        """The same of such an object's bytes."""
        cuts = replace(cuts, version=V1)
        found, before = examine([data], len(data), ledger, cuts), self._known().last
        segment = Segment(
            uuid=uuid_of(next(self.uuids)),
            start=Position(self.incarnation, ledger, 0),
            end=Position(self.incarnation, ledger, last),
            assigned_at=10,
            offloaded_at=self.sealed_at,
            size=len(data),
            crc32c=combine((p.crc32c, p.size) for p in found.parts),
            cuts=cuts,
            source=Source.OFFLOADED,
            roll_reason=RollReason.SIZE,
            ledgers=(LedgerRange(ledger, 0, last + 1, count=found.last + 1, size=found.payload, closed_with=last),),
            parts=found.parts,
            predecessor_uuid=before.uuid if before else "",
            predecessor_end=before.end if before else None,
        )
        index = index_of_segment(found.index, segment.ledgers, len(data), self.sealed_at)
        self.store.put(layout.data_key(self.topic, segment.uuid), data, meta=META)
        self.store.put(layout.index_key(self.topic, segment.uuid), index, meta=META)
        self._append(segment)
        return segment

    def made(
        self, entries: list[Stored], gaps: list[Gap], closed: dict[int, int], cuts: SegmentLayout
    ) -> tuple[Segment, bytes, bytes]:
        parts, data, places = _cut(entries, cuts)
        ledgers = _ledgers(entries, gaps, closed)
        before = self._known().last
        segment = Segment(
            uuid=uuid_of(next(self.uuids)),
            start=Position(self.incarnation, ledgers[0].ledger, ledgers[0].first),
            end=Position(self.incarnation, ledgers[-1].ledger, ledgers[-1].last),
            assigned_at=10,
            offloaded_at=self.sealed_at,
            size=len(data),
            crc32c=combine((p.crc32c, p.size) for p in parts),
            cuts=cuts,
            source=Source.BROKER,
            roll_reason=RollReason.SIZE,
            ledgers=ledgers,
            parts=tuple(parts),
            gaps=tuple(gaps),
            predecessor_uuid=before.uuid if before else "",
            predecessor_end=before.end if before else None,
        )
        index = index_of_segment(places, [r for r in ledgers if r.count], len(data), self.sealed_at) if parts else b""
        return segment, data, index


def _cut(entries: list[Stored], cuts: SegmentLayout) -> tuple[list[Part], bytes, list[IndexEntry]]:
    cutter = PartCutter(cuts, first_part=1, offset=0, first_block=1, room=GIB)
    offered = [cutter.offer(e.ledger, e.entry, e.data, inspect(e.data)) for e in entries]
    found = [cut for cut in (*offered, cutter.finish()) if cut is not None]
    parts = [cut.to_part("etag", crc32c.crc32c(cut.data())) for cut in found]
    return parts, b"".join(cut.data() for cut in found), [place for cut in found for place in cut.index]


def _ledgers(entries: list[Stored], gaps: list[Gap], closed: dict[int, int]) -> tuple[LedgerRange, ...]:
    places = [(e.ledger, e.entry, e.entry) for e in entries] + [(g.ledger, g.first, g.last) for g in gaps]
    found = []
    for ledger in sorted({ledger for ledger, _, _ in places}):
        mine = [e for e in entries if e.ledger == ledger]
        first = min(a for x, a, _ in places if x == ledger)
        last = max(b for x, _, b in places if x == ledger)
        found.append(
            LedgerRange(
                ledger,
                first,
                last + 1,
                count=len(mine),
                size=sum(len(e.data) for e in mine),
                closed_with=closed.get(ledger),
            )
        )
    return tuple(found)


def gap(ledger: int, first: int, last: int, kind: GapKind = GapKind.ABORTED) -> Gap:
    return Gap(ledger, first, last + 1, kind=kind)


def run(ledger: int, first: int, last: int, kind: GapKind | None = None) -> Run:
    return Run(ledger, first, last + 1, kind)
