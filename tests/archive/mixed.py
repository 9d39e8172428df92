"""Topics whose ledgers are in every state at once, and what whoever reads must get of each position."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.bridge.core.record import with_contexts
from offloader.bridge.core.rounds import BridgePhase
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionReason,
    PulsarTrimmed,
    SegmentRange,
    buried,
)
from offloader.model import GapKind, Position, Segment
from offloader.state.managed_ledger import OffloadContext
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging, opened
from tests.archive.ledgers.support import put_ledger
from tests.archive.support import APPLICATION, TOPIC, Archive, gap, message, uuid_of
from tests.format.support import Stored

Place = tuple[int, int]
FIRST = 10  # the id of the first ledger
STOCK = 500  # uuids of copies that brokers made themselves


class Asked(StrEnum):
    """Who says what brokers have offloaded themselves."""

    NOBODY = "nobody"
    RECORD = "record"
    BUCKET = "bucket"


@dataclass
class MixedTopic:
    """Ledgers that brokers have offloaded before our time; streamed ones, of which some are bridged; then what is too
    old is gone for good, and what Pulsar has trimmed, too."""

    seed: int
    rng: Random = field(init=False)
    stock: list[int] = field(default_factory=list)
    streamed: list[int] = field(default_factory=list)
    entries: dict[int, list[bytes]] = field(default_factory=dict)
    gaps: set[Place] = field(default_factory=set)
    segments: list[Segment] = field(default_factory=list)
    bridged: list[int] = field(default_factory=list)
    too_old: list[Segment] = field(default_factory=list)
    trimmed: int = FIRST  # Pulsar's list begins here

    def __post_init__(self) -> None:
        rng = self.rng = Random(self.seed)
        self.archive = Archive()
        self.bridging = Bridging(self.archive)
        before = rng.randint(0, 3)
        ledgers = list(range(FIRST, FIRST + before + rng.randint(2, 6)))
        self.stock, self.streamed = ledgers[:before], ledgers[before:]
        self.entries = {
            ledger: [message(f"{ledger}:{n} ".ljust(rng.choice((20, 60, 150)), "x")) for n in range(rng.randint(1, 9))]
            for ledger in ledgers
        }
        for ledger in self.stock:
            put_ledger(self.bridging.brokers, ledger, self.entries[ledger], uuid_of(STOCK + ledger))
        self._stream()
        self._bridge()
        if rng.random() < 0.4:
            self._delete_for_good()
        if rng.random() < 0.6:
            self._trim()

    def _stream(self) -> None:
        rng = self.rng
        places = [(ledger, n) for ledger in self.streamed for n in range(len(self.entries[ledger]))]
        self.gaps = {place for place in places if rng.random() < 0.15}
        self.archive.claim(self.streamed[0])
        while places:
            taken, places = self._cut(places)
            held = [Stored(*p, self.entries[p[0]][p[1]]) for p in taken if p not in self.gaps]
            missing = [gap(*p, p[1], GapKind.MARKER) for p in taken if p in self.gaps]
            closed = {
                ledger: len(self.entries[ledger]) - 1
                for ledger, n in taken
                if n == len(self.entries[ledger]) - 1 and ledger != self.streamed[-1]
            }
            self.segments.append(self.archive.add(held, missing, closed=closed))

    def _cut(self, places: list[Place]) -> tuple[list[Place], list[Place]]:
        count = self.rng.randint(1, 8)
        return places[:count], places[count:]

    def _bridge(self) -> None:
        closed = self.streamed[:-1]
        self.bridged = closed[: self.rng.randint(0, len(closed))]
        left = list(self.bridged)
        while left:
            count = self.rng.randint(1, len(left))
            self.bridging.bridge({ledger: self.entries[ledger] for ledger in left[:count]})
            left = left[count:]
        following = closed[len(self.bridged) : len(self.bridged) + 1]
        if following and self.rng.random() < 0.7:
            self._under_way({following[0]: self.entries[following[0]]})

    def _under_way(self, ledgers: dict[int, list[bytes]]) -> None:
        rng, bridging = self.rng, self.bridging
        bridging.begin(ledgers)
        if rng.random() < 0.3:
            return
        whole = rng.random() < 0.5
        bridging.build(ledgers, index=whole)
        if whole and rng.random() < 0.6:
            bridging.swap()
        if rng.random() < 0.3:
            bridging.withdraw()

    def _delete_for_good(self) -> None:
        catalogs = Catalogs(self.archive.store, APPLICATION)
        head = catalogs.head(TOPIC)
        rest = self.segments[:-1]
        if not rest:
            return
        self.too_old = rest[: self.rng.randint(1, len(rest))]
        span = SegmentRange(self.too_old[0].start, self.too_old[-1].end, len(self.too_old))
        head = catalogs.append(head, Deleting(0, (span,), DeletionReason.TIME, "too old", "retention", 5, 6))
        number = head.removed.following - 1
        head = catalogs.append(head, DeletionBegun(number, "app", 7))
        for each in self.too_old:
            self.archive.store.delete([layout.data_key(TOPIC, each.uuid), layout.index_key(TOPIC, each.uuid)])
            stone = encode_catalog(each.uuid, buried(each, DeletionReason.TIME, "too old", 5))
            self.archive.store.put(layout.record_key(TOPIC, each.uuid), stone)
        catalogs.append(head, Deleted(number, (span,), DeletionReason.TIME, "too old", "retention", 5))

    def _trim(self) -> None:
        """The broker drops ledgers from its list, and deletes its copies."""
        self.trimmed = self.rng.choice([*self.stock, *self.bridged, *self.streamed[len(self.bridged) :][:1]])
        for key, _ in list(self.bridging.brokers.list()):
            ledger = int(key.split("-ledger-")[1].removesuffix("-index"))
            if ledger < self.trimmed:
                self.bridging.brokers.delete([key])
        if self.rng.random() < 0.5:
            catalogs = Catalogs(self.archive.store, APPLICATION)
            catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(0, self.trimmed, 9))

    @property
    def record(self) -> bytes:
        """Of the topic's managed ledger."""
        info = ManagedLedgerInfo()
        last = self.streamed[-1]
        contexts: dict[int, OffloadContext] = {}
        for ledger, entries in self.entries.items():
            if ledger < self.trimmed:
                continue
            counts = (0, 0) if ledger == last else (len(entries), sum(map(len, entries)))
            info.ledgerInfo.add(ledgerId=ledger, entries=counts[0], size=counts[1])
            copy = self._copy(ledger)
            if copy:
                contexts[ledger] = OffloadContext(copy, True, False, (("bucket", "brokers"),), "S3", 1)
        return with_contexts(info.SerializeToString(), contexts)

    def _copy(self, ledger: int) -> str:
        if ledger in self.stock:
            return uuid_of(STOCK + ledger)
        state = self.bridging._head.state
        under_way = state.round if state is not None else None
        if under_way is not None and under_way.phase is BridgePhase.SWAPPING and ledger == under_way.ledgers[0].ledger:
            return under_way.ledgers[0].uuid
        names = {key.split("-ledger-")[1]: key.split("-ledger-")[0] for key, _ in self.bridging.brokers.list()}
        return names[str(ledger)] if ledger in self.bridged else ""

    def reader(self, asked: Asked, read_size: int) -> ReadArchive:
        """Of the archive, with what brokers have offloaded themselves, if anybody is asked."""
        bucket = None
        if asked is not Asked.NOBODY:
            records = {TOPIC: self.record} if asked is Asked.RECORD else {}
            bucket = LedgerBucket(StoreSettings(self.bridging.bucket), records)
        stores = Stores(
            StoreSettings("memory://unused"),
            [StoreSettings(self.bridging.bucket)],
            borrowed=self.archive.store,
            opener=lambda settings: opened(settings.root),
        )
        return ReadArchive(OpenArchive(stores, bucket), options=ReadOptions(read_size=read_size))

    def expected(self, asked: Asked) -> tuple[dict[Place, bytes], set[Place], set[Place]]:
        """What is read, what was a gap, and what is told to be deleted."""
        data: dict[Place, bytes] = {}
        gone: set[Place] = set()
        if asked is not Asked.NOBODY:
            data |= {(x, n): e for x in self.stock if x >= self.trimmed for n, e in enumerate(self.entries[x])}
        for ledger in self.streamed:
            for n, entry in enumerate(self.entries[ledger]):
                at = Position(0, ledger, n)
                if _in(self.too_old, at):
                    gone.add(at.place)
                elif at.place not in self.gaps:
                    data[at.place] = entry
        return data, self.gaps - gone, gone

    def check(self, asked: Asked, read_size: int = 1 << 20) -> None:
        """Each position once, or told."""
        data, gaps, gone = self.expected(asked)
        got: list[Place] = []
        told: set[Place] = set()
        found_gaps: set[Place] = set()
        last = Position(-1, 0, 0)
        for item in self.reader(asked, read_size).topic(TOPIC).items():
            if isinstance(item, ArchivedEntry):
                assert item.position > last, f"{item.position} after {last}"
                assert data.get(item.position.place) == item.data, f"{item.position} is not to be read, or another"
                got.append(item.position.place)
                last = item.position
            elif item.kind is not None:
                found_gaps |= {(item.start.ledger, n) for n in item.entries.ids}
            elif not item.why.startswith("unproven"):
                assert item.deleted, f"{item} is no deletion"
                told |= self._places(item)
        assert got == sorted(data), f"{sorted(set(data) - set(got))} were passed over"
        assert gaps <= found_gaps <= self.gaps, "gaps differ"
        assert gone <= told | found_gaps, f"{sorted(gone - told)} were passed over"
        assert not told & set(got), "told, and read"

    def _places(self, item: Missing) -> set[Place]:
        return {
            (ledger, n)
            for ledger in self.streamed
            for n in range(len(self.entries[ledger]))
            if item.start.place <= (ledger, n) <= item.end.place
        }


def _in(segments: list[Segment], at: Position) -> bool:
    return any(each.start <= at <= each.end for each in segments)
